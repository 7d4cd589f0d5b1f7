"""PersonalWAB's published tasks, checked against the histories and against each other."""

from collections import Counter
from pathlib import Path

from pwagents.errors import DataError
from pwagents.schema import Behavior, Split, Task


def playable_tasks(
    path: Path,
    tasks: dict[Split, tuple[Task, ...]],
    behaviors: dict[str, tuple[Behavior, ...]],
    repairs: Counter,
) -> dict[Split, tuple[Task, ...]]:
    """The tasks as they may be played, compared with histories and with each other.

    Were a task dated after its own purchase, the history before it would hold its answer: it is dated by the
    purchase. Of a purchase in both splits, what is trained on would: its train tasks are dropped, as are
    tasks listed twice. A target that is missing in the history is seen by nobody: it is counted alone.

    Raises:
        DataError: no task is left in a split.
    """
    times: dict[tuple[str, str], list[int]] = {}
    for user, history in behaviors.items():
        for behavior in history:
            times.setdefault((user, behavior.parent_asin), []).append(behavior.timestamp)
    kept: dict[Split, dict[tuple, Task]] = {split: {} for split in tasks}
    for split, listed in tasks.items():
        for task in listed:
            task = _dated(task, times.get((task.user_id, task.target), []), repairs)
            same = (*_purchase(task), task.type, task.instruction)
            repairs["task listed again dropped (the first is kept)"] += same in kept[split]
            kept[split].setdefault(same, task)
    tested = {_purchase(task) for task in kept["test"].values()}
    train = {same: task for same, task in kept["train"].items() if _purchase(task) not in tested}
    repairs["train task of a purchase that is tested dropped"] += len(kept["train"]) - len(train)
    kept["train"] = train
    for split in kept:
        if not kept[split]:
            raise DataError(path, "-", split, "no task", "tasks in both splits, of different purchases")
    return {split: tuple(kept[split].values()) for split in tasks}


def _dated(task: Task, bought: list[int], repairs: Counter) -> Task:
    """``task`` at the time of its purchase: of the user's times of ``bought`` the nearest."""
    repairs["task whose target is missing in the user's history"] += not bought
    if not bought or task.timestamp in bought:
        return task
    repairs["task at another time than its purchase, dated by the purchase"] += 1
    nearest = min(bought, key=lambda time: (abs(time - task.timestamp), time))
    return task.model_copy(update={"timestamp": nearest})


def _purchase(task: Task) -> tuple[str, str, int]:
    return task.user_id, task.target, task.timestamp
