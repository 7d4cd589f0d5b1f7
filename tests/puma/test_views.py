"""What notebook 04 shows of labels, pairs, losses and results."""

import pytest

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.puma.labels import Label
from pwagents.puma.pairs import choose_pair
from pwagents.puma.views import ids_note, label_examples, outcome_counts, pair_examples
from pwagents.schema import Action, Observation, Step, Trajectory

from .purchases import make_benchmark
from .standins import begun_of


@pytest.fixture(scope="module")
def begun():
    return begun_of(make_benchmark(), "train")


def test_outcomes_are_counted_by_task_also_where_there_are_none():
    counts = {("review", "labelled"): 2, ("search", "labelled"): 3, ("search", "nothing to say"): 1}
    table = outcome_counts(counts)
    assert list(table["task"]) == ["search", "review"] and list(table["labelled"]) == [3, 2]
    assert list(table["nothing to say"]) == [1, 0]
    assert outcome_counts({}).empty and list(outcome_counts({})) == ["task"]


def test_a_task_of_each_type_is_shown_with_its_labels(begun):
    published = [Label(each, ("A", "B") if each.task.type == "recommend" else "x") for each in begun]
    table = label_examples({"published": published, "leak_free": published[:1]}).set_index("task")
    assert list(table.index) == ["search", "recommend", "review"]
    assert table.loc["recommend", "published"] == "A, B" == table.loc["recommend", "leak_free"]
    assert table.loc["review", "leak_free"] == ""


def test_of_each_type_a_pair_is_shown_that_differs_where_there_is_any(begun):
    by_type = {each.task.type: each for each in begun}
    pairs = [choose_pair(by_type["search"], {"a": 0.5, "b": 0.5})]
    pairs.append(choose_pair(by_type["search"], {"a": 0.9, "b": 0.0}))
    assert pair_examples(pairs).splitlines()[1:] == ["  chosen,   0.90: a", "  rejected, 0.00: b"]


def record(method, *ids):
    call = Action(name="get_recommendations_by_history", arguments={"product_sequence": list(ids)})
    step = Step(action=call, observation=Observation(text=""))
    who = {"task_id": "t", "user_id": "u", "type": "recommend"}
    trajectory = Trajectory(**who, target="A", steps=(step,), end="call")
    facts = {"key": "k", "method": method, "model": "m", "params": {}, "outcome": "scored", "seconds": 0.0}
    return EpisodeRecord(**facts, **who, trajectory=trajectory)


def test_who_cannot_copy_ids_is_named_by_what_was_written():
    note = ids_note([record("PUMA", "AX", "A", "B1"), record("PUMA+", "A", "B")], {"A", "B"})
    assert "PUMA 0.33, PUMA+ 1.00." in note and note.endswith("cannot copy ids in the rows PUMA.")
    assert "cannot" not in ids_note([record("PUMA+", "A")], {"A"})
