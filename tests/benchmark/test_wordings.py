"""The same tasks in three wordings."""

from pwagents.benchmark.wordings import three_wordings, wording_table


def test_wordings_change_the_instruction_and_nothing_else(world):
    benchmark = world.benchmark

    def says(word):
        return lambda briefs: [f"{word} {brief.task.task_id}" for brief in briefs]

    wordings = three_wordings(benchmark, says("plainly"), says("vaguely"), {})
    for other in wordings.values():
        targets = [(task.task_id, task.target) for task in other.tasks["test"]]
        assert targets == [(task.task_id, task.target) for task in benchmark.tasks["test"]]
    first = benchmark.tasks["test"][0]
    table = wording_table(wordings, n=2)
    assert table["written"].tolist() == ["its own", "from profiles", "ambiguous"] * 2
    expected = [first.instruction, f"plainly {first.task_id}", f"vaguely {first.task_id}"]
    assert table["instruction"].tolist()[:3] == expected
