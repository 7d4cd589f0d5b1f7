"""What notebook 04 shows of labels, pairs, losses and results."""

from dataclasses import replace

import pandas as pd
import pytest

from pwagents.puma.labels import Example, PumaTask
from pwagents.puma.pairs import Candidate, Pair
from pwagents.puma.views import (
    circumstances,
    label_counts,
    label_examples,
    one_of_each_type,
    pair_counts,
    pair_examples,
    plot_losses,
)
from pwagents.web.environment import BeliefState


@pytest.fixture(scope="module")
def items(benchmark):
    tasks = benchmark.tasks["train"][:30]
    return [
        PumaTask(task, BeliefState(task.user_id, task.instruction, task.instruction, None, ()), ())
        for task in tasks
    ]


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


def test_inputs_and_labels_are_shown_for_one_task_of_each_type(items):
    shown = one_of_each_type(items)
    types = {item.task.type: item for item in reversed(items)}
    assert all(item.task.instruction in shown for item in types.values())
    labels = [Example(item, {"query": "a mug"}) for item in items]
    table = label_examples(labels)
    assert set(table["task"]) == set(types)
    assert set(table["label"]) == {"a mug"}


def test_pairs_are_counted_in_the_order_of_tasks_and_outcomes():
    outcomes = {
        "PUMA": {("review", "equal"): 2, ("search", "no call"): 1, ("search", "pair"): 4},
        "w/o SFT": {("search", "equal"): 3},
    }
    table = pair_counts(outcomes)
    assert [*zip(table["task"], table["outcome"], strict=True)] == [
        ("search", "pair"),
        ("search", "equal"),
        ("search", "no call"),
        ("review", "equal"),
    ]
    assert list(table["w/o SFT"]) == [0, 3, 0, 0]


def test_a_pair_is_shown_with_its_results(items):
    pair = Pair(items[0], Candidate({"query": "red mug"}, 0.9), Candidate({"query": "blue"}, 0.0))
    told = pair_examples([pair]).splitlines()
    assert items[0].task.instruction in told[0]
    assert told[1:] == ["  best, 0.90: red mug", "  worst, 0.00: blue"]


def test_notes_say_whether_the_tested_users_were_trained_on(smoke):
    assert (
        "60 test tasks of users that no training saw. Backbone: small model, 0.7M parameters;"
        in circumstances(smoke, 60)
    )
    own = replace(smoke, study=replace(smoke.study, training_users=0))
    assert "60 test tasks. Backbone" in circumstances(own, 60)
