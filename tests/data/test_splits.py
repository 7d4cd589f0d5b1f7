"""Which tasks are drawn."""

from pwagents.data.splits import sample_tasks


def test_sample_tasks_is_seeded_and_keeps_order(benchmark):
    tasks = benchmark.tasks["test"]
    sample = sample_tasks(tasks, 20, seed=1)
    assert len(sample) == 20 == len({t.task_id for t in sample})
    assert sample == sample_tasks(tasks, 20, seed=1) == [t for t in tasks if t in sample]
    assert sample != sample_tasks(tasks, 20, seed=2)
    assert sample_tasks(tasks, 0, seed=1) == sample_tasks(tasks, 10**6, seed=1) == list(tasks)
