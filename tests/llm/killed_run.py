"""A run of the runner over a model at an endpoint, killed at random moments and taken up again."""

import json
import random
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from multiprocessing import Process
from pathlib import Path

from pwagents.evaluation.episodes import run_episodes
from pwagents.llm.budget import Budget
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory

from ..processes import begin, kill
from .server import request_key

MODEL = "gpt-4o-mini"


def play(url: str, folder: Path, episodes: int, steps: int, workers: int) -> None:
    """Episodes of some calls each, every call with the replies before it."""
    inner = OpenAIModel(MODEL, url, budget=Budget(max_usd=1000), workers=workers)
    model = StoredModel(inner, ResponseStore(folder / "replies.sqlite"))

    def solve(task: Task) -> Trajectory:
        messages, taken = [{"role": "user", "content": f"{task.instruction} {task.task_id}"}], []
        for _ in range(steps):
            reply = model.complete(messages, temperature=0)
            messages += [
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": "And then?"},
            ]
            action = Action(name="respond", arguments={"content": reply.text}, usage=reply.usage)
            taken.append(Step(action=action, observation=Observation(text="And then?")))
        return Trajectory(task_id=task.task_id, user_id="u", type="search", target="B1", steps=tuple(taken))

    fields = {"user_id": "u", "type": "search", "timestamp": 1, "target": "B1", "review": Review(rating=5)}
    tasks = [Task(task_id=f"t{i}", instruction="a coat", **fields) for i in range(episodes)]
    run_episodes(tasks, solve, folder / "runs.jsonl", method="m", model=MODEL, params={}, workers=workers)


def kill_and_resume(
    url: str,
    folder: Path,
    counts: Callable[[], dict[str, dict[str, int]]],
    *,
    episodes: int,
    steps: int,
    workers: int,
    kills: int,
    seed: int = 0,
) -> dict[str, int]:
    """Start the run, kill it (SIGKILL) ``kills`` times at random moments, then let it end.

    Args:
        counts: the server's "calls" and "paid" (answered in full), each by request key.

    Returns:
        "episodes_stored"; "episodes_lost" (stored before a kill but not after it, or missing in the end);
        "episodes_twice"; "requests" (different ones); "asked_though_stored" (requests sent again though the
        reply was stored at a kill); "paid_twice" (calls answered in full whose request was answered in full
        before); "most_under_way" (kills x workers: calls under way at a kill are paid for, and lost).
    """
    moments, kept, stored_calls, lost = random.Random(seed), b"", {}, 0
    for times in range(kills):
        process = begin(play, url, folder, episodes, steps, workers)
        _wait_for_lines(folder, episodes * (times + moments.random()) / (kills + 1), process)
        time.sleep(moments.random() * 0.2)
        kill(process)
        lost += not _whole_lines(folder).startswith(kept)
        kept = _whole_lines(folder)
        calls = counts()["calls"]
        stored_calls |= {key: calls[key] for key in _stored_keys(folder) if key not in stored_calls}
    last = begin(play, url, folder, episodes, steps, workers)
    last.join()
    assert last.exitcode == 0

    lost += not _whole_lines(folder).startswith(kept)
    records = [json.loads(line) for line in _whole_lines(folder).splitlines()]
    ended = Counter(record["task_id"] for record in records if record["outcome"] == "scored")
    final = counts()
    return {
        "episodes_stored": len(ended),
        "episodes_lost": lost + episodes - len(ended),
        "episodes_twice": sum(ended.values()) - len(ended),
        "requests": len(final["calls"]),
        "asked_though_stored": sum(final["calls"][key] - count for key, count in stored_calls.items()),
        "paid_twice": sum(final["paid"].values()) - len(final["paid"]),
        "most_under_way": kills * workers,
    }


def _whole_lines(folder: Path) -> bytes:
    path = folder / "runs.jsonl"
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def _wait_for_lines(folder: Path, count: float, process: Process) -> None:
    deadline = time.monotonic() + 120
    while _whole_lines(folder).count(b"\n") < count:
        if process.exitcode is not None or time.monotonic() > deadline:
            raise RuntimeError("the run did not get so far")
        time.sleep(0.005)


def _stored_keys(folder: Path) -> list[str]:
    """The server's keys of the requests whose replies are stored."""
    with closing(sqlite3.connect(folder / "replies.sqlite")) as db:
        contents = [zlib.decompress(content) for (content,) in db.execute("SELECT content FROM answer")]
    requests = [json.loads(content)[1] for content in contents]
    bodies = [{"model": MODEL, "messages": r["messages"], **r["sampling"]} for r in requests]
    return [request_key(body) for body in bodies]
