"""What notebook 04 shows of labels, pairs and results."""

from types import SimpleNamespace

from pwagents.puma.labels import Label
from pwagents.puma.pairs import choose_pair
from pwagents.puma.views import ids_note, label_examples, outcome_counts, pair_examples
from pwagents.schema import Action


def test_outcomes_labels_and_pairs_are_shown_by_the_type_of_the_task(begun):
    counts = {("review", "labelled"): 2, ("search", "labelled"): 3, ("search", "nothing to say"): 1}
    expected = [["search", 3, 1], ["review", 2, 0]]
    assert outcome_counts(counts)[["task", "labelled", "nothing to say"]].values.tolist() == expected
    assert outcome_counts({}).empty and list(outcome_counts({})) == ["task"]
    train = [begun[name] for name in ("early", "many", "query", "words")]
    published = [Label(each, ("A", "B") if each.task.type == "recommend" else "x") for each in train]
    table = label_examples({"published": published, "leak_free": published[:1]}).set_index("task")
    assert list(table.index) == ["search", "recommend", "review"]
    assert table.loc["recommend", "published"] == "A, B" == table.loc["recommend", "leak_free"]
    assert table.loc["review", "leak_free"] == ""
    pairs = [choose_pair(begun["query"], {"a": best, "b": worst}) for best, worst in ((0.5, 0.5), (0.9, 0.0))]
    assert pair_examples(pairs).splitlines()[1:] == ["  chosen,   0.90: a", "  rejected, 0.00: b"]


def record(method, *ids):
    step = SimpleNamespace(action=Action(name="", arguments={"product_sequence": list(ids)}))
    return SimpleNamespace(method=method, trajectory=SimpleNamespace(steps=[step]))


def test_who_cannot_copy_ids_is_named_by_what_was_written():
    note = ids_note([record("PUMA", "AX", "A", "B1"), record("PUMA+", "A", "B")], {"A", "B"})
    assert "PUMA 0.33, PUMA+ 1.00." in note and note.endswith("cannot copy ids in the rows PUMA.")
    assert "cannot" not in ids_note([record("PUMA+", "A")], {"A"})
