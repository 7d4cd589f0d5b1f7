"""A run of the runner over a model at an endpoint, killed at random moments and taken up again."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pwagents.evaluation.episodes import run_episodes
from pwagents.llm.budget import Budget
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory

from ..processes import begin, kill

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
    paid: Callable[[], dict[str, int]],
    *,
    episodes: int,
    steps: int,
    workers: int,
    kills: int,
) -> dict[str, int]:
    """Start the run, kill it (SIGKILL) ``kills`` times at random moments, then let it end.

    Args:
        paid: how often the server answered each request in full.

    Returns:
        "episodes_stored"; "episodes_lost" (stored before a kill but not after it, or missing in the end);
        "episodes_twice"; "requests" (different ones); "paid_twice" (calls answered in full whose request was
        answered in full before); "most_under_way" (kills x workers: calls under way at a kill are paid for,
        and lost; any more than these were stored and asked again).
    """
    moments, file, kept, lost = random.Random(0), folder / "runs.jsonl", b"", 0

    def whole_lines() -> bytes:
        content = file.read_bytes() if file.exists() else b""
        return content[: content.rfind(b"\n") + 1]

    for times in range(kills):
        process, deadline = begin(play, url, folder, episodes, steps, workers), time.monotonic() + 120
        least = episodes * (times + moments.random()) / (kills + 1)
        while whole_lines().count(b"\n") < least:
            assert process.exitcode is None and time.monotonic() < deadline, "the run did not get so far"
            time.sleep(0.005)
        time.sleep(moments.random() * 0.2)
        kill(process)
        lost += not whole_lines().startswith(kept)
        kept = whole_lines()
    last = begin(play, url, folder, episodes, steps, workers)
    last.join()
    assert last.exitcode == 0

    lost += not whole_lines().startswith(kept)
    records = [json.loads(line) for line in whole_lines().splitlines()]
    ended = Counter(record["task_id"] for record in records if record["outcome"] == "scored")
    return {
        "episodes_stored": len(ended),
        "episodes_lost": lost + episodes - len(ended),
        "episodes_twice": sum(ended.values()) - len(ended),
        "requests": len(paid()),
        "paid_twice": sum(paid().values()) - len(paid()),
        "most_under_way": kills * workers,
    }
