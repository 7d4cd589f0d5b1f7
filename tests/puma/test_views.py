"""What notebook 04 shows of labels, pairs, losses and results."""

import pandas as pd
import pytest

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.puma.labels import Label
from pwagents.puma.pairs import choose_pair
from pwagents.puma.views import (
    ids_note,
    label_counts,
    label_examples,
    pair_counts,
    pair_examples,
    plot_losses,
)
from pwagents.schema import Action, Observation, Step, Trajectory

from .purchases import make_benchmark
from .standins import begun_of


@pytest.fixture(scope="module")
def begun():
    return begun_of(make_benchmark(), "train")


def log(name, *losses):
    return pd.DataFrame({"training": name, "step": range(len(losses)), "loss": losses})


def test_losses_are_drawn_a_line_a_training():
    losses = [
        log("Step 1: functions", 2, 1),
        log("SFT: PUMA, 64 tokens", 3.0),
        log("DPO: PUMA, 64 tokens", 0.7),
    ]
    left, right = plot_losses(pd.concat(losses)).axes
    assert [len(ax.get_lines()) for ax in (left, right)] == [2, 2]
    sft, dpo = ({line.get_label(): line for line in ax.get_lines()} for ax in (left, right))
    name = "PUMA, 64 tokens"
    assert sft[name].get_color() == dpo[name].get_color() != sft["functions"].get_color()
    assert dpo["no preference (log 2)"].get_ydata()[0] == pytest.approx(0.693, abs=1e-3)


def test_where_no_preferences_were_learned_there_is_no_panel_of_them():
    (left,) = plot_losses(log("SFT: PUMA", 2, 1)).axes
    assert left.get_yscale() == "log"


def test_labels_are_counted_by_task_and_outcome_also_where_there_are_none():
    counts = {("search", "labelled"): 3, ("review", "labelled"): 2, ("search", "nothing to say"): 1}
    table = label_counts(counts).set_index("task")
    assert dict(table["labelled"]) == {"review": 2, "search": 3}
    assert dict(table["nothing to say"]) == {"review": 0, "search": 1}
    assert label_counts({}).empty and list(label_counts({})) == ["task"]


def test_a_task_of_each_type_is_shown_with_its_labels(begun):
    published = [Label(each, ("A", "B") if each.task.type == "recommend" else "x") for each in begun]
    table = label_examples({"published": published, "leak_free": published[:1]}).set_index("task")
    assert list(table.index) == ["search", "recommend", "review"]
    assert table.loc["recommend", "published"] == "A, B" == table.loc["recommend", "leak_free"]
    assert table.loc["review", "leak_free"] == "(left out)"


def test_pairs_are_counted_in_the_order_of_tasks_and_outcomes(begun):
    by_type = {each.task.type: each for each in begun}
    pairs = [choose_pair(by_type["review"], {"a": 0.5}), choose_pair(by_type["search"], {"a": 0.5, "b": 0.5})]
    pairs.append(choose_pair(by_type["search"], {"a": 0.9, "b": 0.0}))
    table = pair_counts({"PUMA": pairs, "other": pairs[:1]})
    assert [*zip(table["task"], table["outcome"], strict=True)] == [
        ("search", "differs"),
        ("search", "tie"),
        ("review", "one text"),
    ]
    assert list(table["other"]) == [0, 0, 1]
    # Of each type a pair is shown, one that differs where there is any.
    assert "  chosen,   0.90: a\n  rejected, 0.00: b" in pair_examples(pairs)


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
