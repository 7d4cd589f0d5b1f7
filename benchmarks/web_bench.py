"""Fifty agents at once on the bench, beside fifty visitors of the local web: requests a second, p99, memory.

    .venv/bin/python benchmarks/web_bench.py [--agents 50] [--requests 40]

About a minute on two cores. Both servers are processes of their own and show the same pages (portal, results,
an item); on the bench each agent also begins its task, asks the history once and finishes, off the watch.
Servers take turns, three rounds each; reported are medians, and the bench as a multiple of its peer. Expect
.8 of the requests a second or more. Seconds are the clock's: run it where nothing else runs.
"""

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from pwagents.persona2web.world.domains import make_sites

DEMAND = 0.8  # of the peer's requests a second
ROUNDS = 3
SITE = next(iter(make_sites(0).values()))
PAGES = [("start.test", "/"), (SITE.host, "/search"), (SITE.host, f"/item/{SITE.items[0].item_id}")]


def memory_mb(process: subprocess.Popen) -> float:
    """Return the megabytes that a process holds in memory."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def visit(port: int, begun: dict | None, n: int) -> list[float]:
    """Open so many pages, in the session of a task or of a cookie; return milliseconds."""
    line, taken, cookie = http.client.HTTPConnection("127.0.0.1", port), [], ""
    ending = begun["start_url"].split("/")[2].removeprefix("start.test") if begun else ""
    for i in range(n):
        host, path = PAGES[i % len(PAGES)]
        start = time.perf_counter()
        line.request("GET", path, headers={"Host": host + ending, "Cookie": cookie})
        reply = line.getresponse()
        reply.read()
        taken.append(1000 * (time.perf_counter() - start))
        if reply.status != 200:
            raise SystemExit(f"{host}{path}: status {reply.status}")
        cookie = cookie or (reply.getheader("set-cookie") or "").split(";")[0]
    return taken


def ask(port: int, path: str, token: str = "", method: str = "POST", **fields: str):
    """Ask the bench's API."""
    line = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    line.request(method, path, json.dumps(fields), headers)
    return json.load(line.getresponse())


def play(port: int, agents: int, requests: int, tasks: list[str]) -> dict[str, float]:
    """Return what a round took; tasks of the bench are begun and finished outside the watch."""
    begun = [ask(port, f"/tasks/{tasks[i % len(tasks)]}") if tasks else None for i in range(agents)]
    with ThreadPoolExecutor(agents) as threads:
        start = time.perf_counter()
        taken = [ms for each in threads.map(lambda b: visit(port, b, requests), begun) for ms in each]
        seconds = time.perf_counter() - start
    for number, each in enumerate(begun if tasks else ()):
        ask(port, "/recall", each["token"], query="usual size")
        end = ask(port, "/finish", each["token"])
        if len(end["trajectory"]["requests"]) != requests:
            raise SystemExit(f"Agent {number} made {requests} requests; its log has others")
    series = pd.Series(taken)
    return {"per_s": len(taken) / seconds, "p50_ms": series.median(), "p99_ms": series.quantile(0.99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--requests", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        changes = f"{{study: {{retriever: bm25}}, histories: {{n_users: 50}}, output_dir: {folder}}}"
        arguments = {
            "the local web alone": ["pwagents.persona2web.site.serve", "--port", "8791"],
            "the bench": ["pwagents", "web-bench", "--preset", "smoke", "--port", "8792", "-y", changes],
        }
        servers = {
            name: subprocess.Popen([sys.executable, "-m", *each], stdout=subprocess.PIPE, text=True)
            for name, each in arguments.items()
        }
        try:
            ports = {
                name: int(re.findall(r":(\d+)", each.stdout.readline())[0]) for name, each in servers.items()
            }
            tasks = [task["task_id"] for task in ask(ports["the bench"], "/tasks", method="GET")]
            rows, before = [], {name: memory_mb(server) for name, server in servers.items()}
            for _ in range(ROUNDS):
                for name, port in ports.items():
                    played = play(port, given.agents, given.requests, tasks if name == "the bench" else [])
                    rows.append({"server": name} | played)
            table = pd.DataFrame(rows).groupby("server").median()
            table["memory_mb"] = pd.Series({name: memory_mb(server) for name, server in servers.items()})
            table["mb_an_agent"] = (table["memory_mb"] - pd.Series(before)) / (ROUNDS * given.agents)
        finally:
            for server in servers.values():
                server.kill()
    ratio = table.loc["the bench"] / table.loc["the local web alone"]
    print(f"{given.agents} at once, {given.requests} pages each\n{table.round(2).to_string()}")
    print(f"The bench as a multiple of its peer\n{ratio.round(2).to_string()}")
    print(
        "as demanded" if ratio["per_s"] >= DEMAND else f"LESS THAN {DEMAND} OF THE PEER'S REQUESTS A SECOND"
    )


if __name__ == "__main__":
    main()
