"""A run that is killed for real, at random moments, and taken up again until it is done."""

import json
import os
import random
import time
from collections import Counter

import pytest

from pwagents.evaluation.runner import run_episodes, run_user_episodes
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory

from ..processes import begin, kill

N_TASKS, WORKERS, KILLS = 300, 3, 3


def play(of_users, store, calls):
    """The run that is killed; ``calls`` gets a line an episode."""
    called = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    common = {"type": "search", "instruction": "a coat", "target": "B1", "review": Review(rating=5)}
    tasks = [Task(task_id=f"t{i}", user_id=f"u{i % 10}", timestamp=1 + i, **common) for i in range(N_TASKS)]
    step = Step(action=Action(name="respond"), observation=Observation(text="x" * 20_000))

    def solve(task):
        os.write(called, f"{task.task_id}\n".encode())
        time.sleep(0.002)
        return Trajectory(
            task_id=task.task_id, user_id=task.user_id, type="search", target="B1", steps=(step,)
        )

    def solve_next(task, memory):
        return solve(task), {"seen": [*memory.get("seen", []), task.task_id]}

    run, solver = (run_user_episodes, solve_next) if of_users else (run_episodes, solve)
    run(tasks, solver, store, method="m", model="none", params={}, workers=WORKERS)


def whole_lines(store):
    content = store.read_bytes() if store.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def wait_for_lines(store, count, process):
    deadline = time.monotonic() + 60
    while whole_lines(store).count(b"\n") < count:
        assert process.exitcode is None and time.monotonic() < deadline, "the run did not get so far"
        time.sleep(0.001)


def call_counts(calls):
    return Counter(calls.read_text().split())


@pytest.mark.parametrize("of_users", [False, True], ids=["tasks", "users"])
def test_sigkill_loses_nothing_and_repeats_nothing(tmp_path, of_users):
    store, calls = tmp_path / "episodes.jsonl", tmp_path / "calls"
    moments = random.Random(5)
    for _ in range(KILLS):
        process = begin(play, of_users, store, calls)
        lines = whole_lines(store).count(b"\n")
        wait_for_lines(store, lines + moments.randint(1, N_TASKS // (2 * KILLS)), process)
        time.sleep(moments.random() * 0.004)
        kill(process)

        kept = whole_lines(store)
        finished = {json.loads(line)["task_id"] for line in kept.splitlines()}
        called = call_counts(calls)
        assert 0 < len(finished) < N_TASKS
    last = begin(play, of_users, store, calls)
    last.join(timeout=60)
    assert last.exitcode == 0

    lines = [json.loads(line) for line in store.read_bytes().splitlines()]
    stored = [line["task_id"] for line in lines]
    assert sorted(stored) == sorted(f"t{i}" for i in range(N_TASKS))
    assert store.read_bytes().startswith(kept)
    after = call_counts(calls)
    assert all(after[task_id] == called[task_id] for task_id in finished)
    # Only episodes under way at a kill were begun twice: at most one for each thread.
    assert sum(after.values()) - N_TASKS <= KILLS * WORKERS
    if of_users:
        for line in lines:
            number = int(line["task_id"][1:])
            assert line["memory"]["seen"] == [f"t{i}" for i in range(number % 10, number + 1, 10)]
