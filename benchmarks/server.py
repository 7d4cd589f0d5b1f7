"""What the server of the shop's tasks holds: many clients at once, beside a server that does nothing.

    .venv/bin/python benchmarks/server.py [--clients 200]

About two minutes on 2 cores, one for each process. Every client has a session of its own
and plays episodes of six calls (reset, search, respond, search, stop, reward) one after another, without a
pause: so the latency of many clients is their number divided by the rate. "nothing" is the same protocol and
the same answers' size without a shop: the ratio is what the shop costs. Then some clients fall silent in the
middle, and their sessions end.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import psutil
from mcp.client.client import Client

EPISODES = 4  # a client
IDLE_S = 5.0
CALLS = (
    ("search_product_by_query", {"query": "wool coat navy"}),
    ("respond", {"content": "Which color would you like?"}),
    ("search_product_by_query", {"query": "rain jacket"}),
    ("stop", {}),
)


@contextmanager
def server(kind: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The URL of a server in a process of its own, and the process, which then says each second how many
    sessions are open."""
    command = [sys.executable, __file__, "--serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()


def serve(kind: str) -> None:
    """Be such a server."""
    from pwagents.adapters.load import load_tasks
    from pwagents.adapters.serve import serving
    from pwagents.adapters.sessions import Sessions

    class Nothing(Sessions):
        """Answers as long as the shop's, without one."""

        def call(self, name, arguments):
            if name == "tasks":
                return super().call(name, arguments)
            return {"session": "s", "observation": "x" * 700, "reward": 0.0, "done": False, "trajectory": {}}

    tasks = load_tasks("smoke", tasks=0, output_dir="outputs/benchmarks/server")
    sessions = (Nothing if kind == "nothing" else Sessions)(tasks, idle_s=IDLE_S)
    with serving(sessions) as url:
        print(url, flush=True)
        while True:
            time.sleep(1)
            print(len(sessions), flush=True)


async def episode(client: Client, task: str, seconds: list[float], calls: int = len(CALLS)) -> dict:
    """Play a task; adds each request's seconds. The answer to ``reward``, or to the last of fewer calls."""

    async def ask(name: str, arguments: dict) -> dict:
        begin = time.perf_counter()
        result = await client.call_tool(name, arguments)
        seconds.append(time.perf_counter() - begin)
        if result.is_error:
            raise RuntimeError(result.content[0].text)
        return json.loads(result.content[0].text)

    session = (await ask("reset", {"task": task}))["session"]
    for name, arguments in CALLS[:calls]:
        answer = await ask("step", {"session": session, "name": name, "arguments": arguments})
    return await ask("reward", {"session": session}) if calls == len(CALLS) else answer


async def load(url: str, clients: int) -> tuple[list[float], float, int]:
    """Seconds of all requests, wall-clock, and episodes that hold others' steps."""
    async with Client(url) as first:
        tasks = (await first.call_tool("tasks", {})).structured_content["tasks"]
    seconds: list[float] = []
    gate = asyncio.Barrier(clients + 1)

    async def play(number: int) -> int:
        mixed = 0
        async with Client(url) as client:
            await gate.wait()
            for turn in range(EPISODES):
                task = tasks[(number * EPISODES + turn) % len(tasks)]
                played = (await episode(client, task, seconds))["trajectory"]
                mixed += bool(played) and len(played["steps"]) != len(CALLS)
        return mixed

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(play(number)) for number in range(clients)]
        await gate.wait()
        begin = time.perf_counter()
    return seconds, time.perf_counter() - begin, sum(task.result() for task in running)


def measure(clients: int) -> pd.DataFrame:
    """A row a server: rate, latency, CPU of the server's process."""
    rows = {}
    for kind in ("nothing", "shop"):
        with server(kind) as (url, process):
            asyncio.run(load(url, 10))  # warms up
            watched = psutil.Process(process.pid)
            before = watched.cpu_times()
            seconds, wall, mixed = asyncio.run(load(url, clients))
            after = watched.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        p50, p99 = np.percentile(seconds, [50, 99]) * 1000
        rows[kind] = {
            "clients": clients,
            "requests": len(seconds),
            "requests_per_s": len(seconds) / wall,
            "p50_ms": p50,
            "p99_ms": p99,
            "server_cpu_ms": 1000 * cpu / len(seconds),
            "mixed_episodes": mixed,
        }
    frame = pd.DataFrame(rows).T
    return frame.assign(ratio=frame["requests_per_s"] / frame.loc["nothing", "requests_per_s"])


def measure_silence(clients: int) -> dict[str, float]:
    """Sessions that are open after ``clients`` fell silent in the middle, at once and IDLE_S later."""

    async def begin(url: str) -> None:
        async with Client(url) as client:
            tasks = (await client.call_tool("tasks", {})).structured_content["tasks"]
            for number in range(clients):
                await episode(client, tasks[number % len(tasks)], [], calls=1)

    with server("shop") as (url, process):
        asyncio.run(begin(url))
        begun, counts = time.monotonic(), []
        while time.monotonic() < begun + IDLE_S + 3:
            counts.append(int(process.stdout.readline()))
    return {"open_at_most": max(counts), "open_in_the_end": counts[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--serve", choices=["shop", "nothing"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    frame = pd.concat([measure(clients) for clients in (1, arguments.clients)])
    print(frame.round(2).to_string(), "\n")
    print(f"{arguments.clients} clients fall silent; a silent session ends after {IDLE_S:g} s")
    print(pd.Series(measure_silence(arguments.clients)).to_string())


if __name__ == "__main__":
    main()
