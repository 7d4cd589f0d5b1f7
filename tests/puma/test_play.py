"""Episodes whose actions are computed at once, and what is shown of the training."""

import pandas as pd
import pytest

from pwagents.agents.run import Stage
from pwagents.embedding import Embedder
from pwagents.puma.study import run_at_once, seconds_per_task
from pwagents.puma.views import label_counts, plot_losses
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment
from pwagents.web.episode import run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


@pytest.fixture(scope="module")
def tasks(benchmark):
    return [task for task in benchmark.tasks["test"] if task.type == "search"][:8]


@pytest.fixture
def stage(benchmark, tmp_path):
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, Embedder())
    return Stage(
        environment=lambda task, _: WebEnvironment(shop),
        history=lambda task: benchmark.history(task, "test"),
        store=tmp_path / "runs.jsonl",
        model="none",
        params={},
    )


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


class Searcher:
    """Searches for the instruction; counts how often it is asked for all actions."""

    def __init__(self):
        self.asked = 0

    def act(self, states):
        self.asked += 1
        return [search(state) for state in states]


def test_episodes_are_those_played_one_by_one(tasks, stage):
    records = run_at_once("search", lambda: Searcher().act, tasks, stage)
    alone = [run_episode(stage.environment(t, False), t, stage.history(t), search) for t in tasks]
    assert [record.trajectory for record in records] == alone


def test_what_is_stored_is_not_computed_again(tasks, stage):
    searcher = Searcher()
    once = run_at_once("search", lambda: searcher.act, tasks[:4], stage)
    assert run_at_once("search", lambda: searcher.act, tasks[:4], stage) == once and searcher.asked == 1
    stored = stage._replace(stored_runs_only=True)
    assert run_at_once("search", lambda: pytest.fail("nothing to compute"), tasks[:4], stored) == once


def test_a_task_that_cannot_be_evaluated_is_counted_and_costs_the_others_nothing(benchmark, stage):
    review = next(task for task in benchmark.tasks["test"] if task.type == "review")
    empty = review.model_copy(update={"review": review.review.model_copy(update={"text": ""})})
    other = next(task for task in benchmark.tasks["test"] if task.type == "search")
    records = run_at_once("search", lambda: Searcher().act, [empty, other], stage)
    assert [record.outcome for record in records] == ["not_evaluable", "scored"]


def test_each_episode_is_timed_by_itself(tasks, stage):
    seconds = seconds_per_task(search, tasks[:3], stage)
    assert len(seconds) == 3 and min(seconds) > 0


def test_losses_are_drawn_a_line_a_training():
    curves = pd.DataFrame(
        [("function", 1, 2.0), ("function", 10, 1.0), ("SFT, full", 1, 3.0), ("DPO, full", 1, 0.7)],
        columns=["training", "step", "loss"],
    )
    left, right = plot_losses(curves).axes
    assert [len(ax.get_lines()) for ax in (left, right)] == [2, 2]
    sft, dpo = ({line.get_label(): line for line in ax.get_lines()} for ax in (left, right))
    assert sft["full"].get_color() == dpo["full"].get_color() != sft["function"].get_color()
    assert dpo["no preference (log 2)"].get_ydata()[0] == pytest.approx(0.693, abs=1e-3)


def test_labels_are_counted_by_task_and_outcome_also_where_there_are_none():
    counts = {("search", "labelled"): 3, ("review", "labelled"): 2, ("search", "nothing to say"): 1}
    table = label_counts(counts).set_index("task")
    assert dict(table["labelled"]) == {"review": 2, "search": 3}
    assert dict(table["nothing to say"]) == {"review": 0, "search": 1}
    assert label_counts({}).empty and list(label_counts({})) == ["task"]
