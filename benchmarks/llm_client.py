"""What our path to an endpoint costs (stored, budgeted, retried) beside the bare openai client; kills.

    .venv/bin/python benchmarks/llm_client.py

About two minutes. A local server in a process of its own answers every call after 200 ms. Expect a wall-time
ratio of at most 1.15 and at most 2 ms more CPU time a call; and of a run killed ten times and taken up again,
no more calls asked twice than were under way.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from pwagents.llm.make import Models
from pwagents.settings import Players

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.processes import begin, kill  # noqa: E402

MODEL, LATENCY = "gpt-4o-mini", 0.2
EPISODES, STEPS, ROUNDS = 200, 5, 2
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": QUERY}}
HISTORY = "\n".join(f"{i}. Wool coat, camel, size M, 129.99, four stars, warm but heavy" for i in range(30))
RESULTS = "\n".join(f"{i}. Rain jacket, navy, 59.99, three stars" for i in range(10))

Ask = Callable[[list[dict]], dict]  # messages -> the assistant's message


@contextmanager
def chat_server() -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, str(ROOT / "tests" / "llm" / "server.py"), str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def measure_client(url: str, concurrency: int) -> dict[str, float]:
    """EPISODES episodes of STEPS calls, ``concurrency`` at once, through both clients in turns.

    Returns:
        "bare_s", "ours_s": wall time of the fastest of ROUNDS rounds; "ratio" of the two. "bare_cpu_ms",
        "ours_cpu_ms": CPU time of this process a call, in the cheapest round. "ideal_s": latency alone.
    """
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(_timed(_bare_client(url), concurrency))
        with tempfile.TemporaryDirectory() as folder:
            ours.append(_timed(_our_path(url, Path(folder), concurrency), concurrency))
    bare_s, bare_cpu = map(min, zip(*bare, strict=True))
    ours_s, ours_cpu = map(min, zip(*ours, strict=True))
    return {
        "concurrency": concurrency,
        "ideal_s": -(-EPISODES // concurrency) * STEPS * LATENCY,
        "bare_s": bare_s,
        "ours_s": ours_s,
        "ratio": ours_s / bare_s,
        "bare_cpu_ms": 1000 * bare_cpu,
        "ours_cpu_ms": 1000 * ours_cpu,
    }


def _bare_client(url: str) -> Ask:
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="none", max_retries=0)

    def ask(messages: list[dict]) -> dict:
        completion = client.chat.completions.create(
            model=MODEL, messages=messages, tools=[TOOL], temperature=0
        )
        call = completion.choices[0].message.tool_calls[0]
        return _assistant(call.id, call.function.name, call.function.arguments)

    return ask


def _our_path(url: str, folder: Path, concurrency: int) -> Ask:
    players = Players(base_url=url, budget_usd=1000, workers=concurrency)
    model = Models(players, folder / "replies.sqlite")(f"openai:{MODEL}")

    def ask(messages: list[dict]) -> dict:
        call = model.complete(messages, [TOOL], temperature=0).tool_calls[0]
        return _assistant(call.id, call.name, call.arguments)

    return ask


def _assistant(call_id: str, name: str, arguments: str) -> dict:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _timed(ask: Ask, concurrency: int) -> tuple[float, float]:
    """Wall time (seconds) of all episodes, and CPU time a call."""

    def play(episode: int) -> None:
        messages = [
            {"role": "system", "content": f"You shop for a user. What the user bought:\n{HISTORY}"},
            {"role": "user", "content": f"Find me coat number {episode}."},
        ]
        for _ in range(STEPS):
            said = ask(messages)
            result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": RESULTS}
            messages += [said, result]

    play(-1)  # imports, the first connection
    wall, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(concurrency) as threads:
        list(threads.map(play, range(EPISODES)))
    return time.perf_counter() - wall, (time.process_time() - cpu) / (EPISODES * STEPS)


def measure_kills(kills: int = 10, workers: int = 16) -> dict[str, int]:
    """All episodes, killed (SIGKILL) ``kills`` times at random moments and taken up again.

    Returns:
        "requests" (different ones); "asked_twice" (calls whose request was asked before); "most_allowed" of
        these: the calls under way at each kill, which are lost, and a trial before each run.
    """
    moments = random.Random(0)
    with chat_server() as url, tempfile.TemporaryDirectory() as folder:

        def asked() -> dict[str, int]:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)

        for times in range(kills):
            process = begin(_play_all, url, Path(folder), workers)
            enough = EPISODES * STEPS * (times + moments.random()) / (kills + 1)
            while sum(asked().values()) < enough:
                time.sleep(0.005)
            kill(process)
        _play_all(url, Path(folder), workers)
        counts = asked()
    twice = sum(counts.values()) - len(counts)
    return {"requests": len(counts), "asked_twice": twice, "most_allowed": kills * (workers + 1)}


def _play_all(url: str, folder: Path, concurrency: int) -> None:
    _timed(_our_path(url, folder, concurrency), concurrency)


def main() -> None:
    os.environ.pop("OPENAI_API_KEY", None)  # the local server needs none
    with chat_server() as url:
        rows = [measure_client(url, concurrency) for concurrency in (16, 64)]
    print(f"{EPISODES * STEPS:,} calls of {1000 * LATENCY:.0f} ms")
    print(pd.DataFrame(rows).round(3).to_string(index=False), "\n")
    print(f"{EPISODES} episodes of {STEPS} calls, 16 at once, killed ten times")
    print(pd.Series(measure_kills()).to_string())


if __name__ == "__main__":
    main()
