"""Splits in time: a user's history, train and test (PersonalWAB, 3.2.1), and what all may learn from."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from pwagents.schema import Task
from pwagents.seeds import rng


def chronological_split(n: int) -> tuple[int, int, int]:
    """Return the sizes of history, train and test of ``n`` behaviors: 80/10/10 by count, rounded.

    From three behaviors on there is at least one of each. With fewer, all are history, and no task is made.
    """
    if n < 3:
        return n, 0, 0
    tenth = max(1, round(n / 10))
    return n - 2 * tenth, tenth, tenth


def split_by_time(timestamps: Sequence[int]) -> tuple[int, int, int]:
    """Split behaviors as :func:`chronological_split` does, but never between equal times.

    Each boundary moves to the nearest place where time moves on, so that all of history lies strictly before
    the first train behavior, and all of train strictly before the first test behavior: otherwise "before
    the first test task" would cut into a group of purchases made at once. Of two equally near places the
    earlier one is taken. With fewer than three distinct times, all are history. No paper mentions ties.

    Args:
        timestamps: of the behaviors, oldest first.
    """
    n = len(timestamps)
    # Cuts are the positions between two different times. Train needs one of its own before that of test.
    cuts = [i for i in range(1, n) if timestamps[i - 1] < timestamps[i]]
    if len(cuts) < 2:
        return n, 0, 0
    n_history, n_train, _ = chronological_split(n)
    test_start = min(cuts[1:], key=lambda cut: (abs(cut - n_history - n_train), cut))
    earlier = [cut for cut in cuts if cut < test_start]
    train_start = min(earlier, key=lambda cut: (abs(cut - n_history), cut))
    return train_start, test_start - train_start, n - test_start


def parting_date(train: Sequence[Task], tested: Sequence[Task], first_task: Callable[[str], int]) -> int:
    """Return the date (ms) between training and test where nobody's past may be another's future.

    Train tasks before it are trained on; users whose first test task is not before it are tested. So all that
    is learned lies before the first evaluated task of all tested users. Where users shop at different times,
    as in real data, train tasks are lost to the one side and test tasks to the other: the date is the one
    that keeps the greatest share on the side that loses more, the earliest of equally good ones. Where all
    train tasks lie before all test tasks, as in the synthetic world, nothing is lost. PersonalWAB trains on
    all users' train tasks, whatever their time; Orion does not say.

    Args:
        first_task: user_id -> when the user's first test task begins (:meth:`Benchmark.first_task`).

    Raises:
        ValueError: no train task lies before the first test task of any user, or there is none to test.
    """
    times = sorted(task.timestamp for task in train)
    starts = sorted(first_task(task.user_id) for task in tested)

    def kept(date: int) -> tuple[float, float]:
        """Give the shares of train tasks before a date and of test tasks of users who begin no earlier."""
        return bisect_left(times, date) / len(times), 1 - bisect_left(starts, date) / len(starts)

    # Parting at a user's first test task keeps that user; a date before all train tasks would leave none.
    dates = [date for date in sorted(set(starts)) if times and times[0] < date]
    if not dates:
        raise ValueError(
            f"none of the {len(times)} train tasks is older than a user's first test task ({len(starts)} "
            "test tasks): a training would use the future of tested users; take more users"
        )
    return max(dates, key=lambda date: (min(kept(date)), -date))


def sample_tasks(tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """Draw ``n`` of the tasks, in their order; all of them for ``n`` = 0 or more than there are."""
    if not 0 < n < len(tasks):
        return list(tasks)
    chosen = rng(seed, "sample_tasks").choice(len(tasks), size=n, replace=False)
    return [tasks[i] for i in sorted(chosen)]
