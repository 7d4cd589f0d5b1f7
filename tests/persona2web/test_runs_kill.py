"""A run on the local web that is killed for real and taken up again."""

import json
import os
import time

from pwagents.persona2web.agents.episode import WebEpisode
from pwagents.persona2web.world.types import Goal, MemoryStep, WebStep, WebTask, WebTrajectory
from pwagents.store import episodes

from ..processes import begin, kill

N_TASKS = 40


def play(store, calls):
    """The run that is killed; ``calls`` gets a line an episode."""
    called = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    goal = Goal(domain="flights", host="a.test", operation="booking", stated={}, masked={"seat": "window"})
    texts = {0: "Book", 1: "Book", 2: "Book"}
    tasks = [WebTask(task_id=f"t{i}", user_id="u", now=1, texts=texts, goal=goal) for i in range(N_TASKS)]
    steps = (
        MemoryStep(query="seat", retrieved=("e1",), answer="window"),
        WebStep(observation="a page " * 2_000, action="click [1]"),
    )

    def solve(task):
        os.write(called, f"{task.task_id}\n".encode())
        time.sleep(0.005)
        where = {"level": 2, "scheme": "on_demand", "architecture": "occam"}
        return WebTrajectory(task_id=task.task_id, steps=steps, **where)

    episodes(store, tasks, solve, {"code": []}, method="m", workers=2, record=WebEpisode)


def test_sigkill_loses_no_episode_and_repeats_none(tmp_path):
    store, calls = tmp_path / "web.jsonl", tmp_path / "calls"
    process = begin(play, store, calls)
    while not store.exists() or store.read_bytes().count(b"\n") < 10:
        assert process.exitcode is None
        time.sleep(0.001)
    kill(process)
    content = store.read_bytes()
    kept = content[: content.rfind(b"\n") + 1]
    finished = {json.loads(line)["task_id"] for line in kept.splitlines()}
    before = calls.read_text().split()
    assert 10 <= len(finished) < N_TASKS

    last = begin(play, store, calls)
    last.join(timeout=200)
    assert last.exitcode == 0
    assert store.read_bytes().startswith(kept)
    stored = [json.loads(line)["task_id"] for line in store.read_bytes().splitlines()]
    assert sorted(stored) == sorted(f"t{i}" for i in range(N_TASKS))
    again = calls.read_text().split()[len(before) :]
    assert not finished & set(again)
