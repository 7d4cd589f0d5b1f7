"""The chronological split of a user's behaviours into history, train and test (PersonalWAB, 3.2.1)."""

from collections.abc import Sequence


def chronological_split(n: int) -> tuple[int, int, int]:
    """How many of ``n`` behaviours, oldest first, are history, train and test: 80/10/10 by count.

    From three behaviours on there is at least one of each; the sizes of train and test are rounded, and
    history takes the rest. With fewer than three, all are history, and that user gets no task.

    Returns:
        (n_history, n_train, n_test), which sum to ``n``.
    """
    if n < 3:
        return n, 0, 0
    tenth = max(1, round(n / 10))
    return n - 2 * tenth, tenth, tenth


def split_by_time(timestamps: Sequence[int]) -> tuple[int, int, int]:
    """:func:`chronological_split` for behaviours at ``timestamps`` (oldest first), never between equal times.

    Each boundary moves to the nearest place where time moves on, so that all of history lies strictly before
    the first train behaviour, and all of train strictly before the first test behaviour: otherwise "before
    the first test task" would cut into a group of purchases made at once. Of two equally near places the
    earlier one is taken. With fewer than three distinct times, all are history. No paper mentions ties.

    Returns:
        (n_history, n_train, n_test), which sum to ``len(timestamps)``.
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
