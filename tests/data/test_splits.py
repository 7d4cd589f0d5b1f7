"""How a history is split by time, and which tasks are drawn."""

from hypothesis import given
from hypothesis import strategies as st

from pwagents.data.splits import sample_tasks, split_by_time


@given((st.lists(st.integers(1, 30)) | st.lists(st.integers(1, 10**6), min_size=3, unique=True)).map(sorted))
def test_split_never_parts_equal_times(times):
    n_history, n_train, n_test = split_by_time(times)
    parts = times[:n_history], times[n_history : n_history + n_train], times[n_history + n_train :]
    assert [time for part in parts for time in part] == times
    assert len(parts[2]) == n_test
    if len(set(times)) < 3:
        assert n_history == len(times)
    else:
        assert max(parts[0]) < min(parts[1]) and max(parts[1]) < min(parts[2])
    if len(set(times)) == len(times) >= 3:
        assert n_train == n_test == max(1, round(len(times) / 10))


def test_sample_tasks_is_seeded_and_keeps_order(benchmark):
    tasks = benchmark.tasks["test"]
    sample = sample_tasks(tasks, 20, seed=1)
    assert len(sample) == 20 == len({t.task_id for t in sample})
    assert sample == sample_tasks(tasks, 20, seed=1) == [t for t in tasks if t in sample]
    assert sample != sample_tasks(tasks, 20, seed=2)
    assert sample_tasks(tasks, 0, seed=1) == sample_tasks(tasks, 10**6, seed=1) == list(tasks)
