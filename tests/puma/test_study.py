"""Episodes whose actions are computed at once, and the tables made of them."""

import pandas as pd
import pytest

from pwagents.agents.run import Stage
from pwagents.embedding import Embedder
from pwagents.evaluation.runner import records_frame
from pwagents.puma.study import run_at_once, seconds_per_task
from pwagents.puma.views import beside_paper, differences, label_counts, plot_losses
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


@pytest.fixture
def frame(tasks, stage):
    good = records_frame(run_at_once("PUMA", lambda: Searcher().act, tasks, stage))
    worse = good.assign(method="w/o SFT", result_official=0.0)
    return pd.concat([good, worse], ignore_index=True)


def test_papers_numbers_and_ours_stand_side_by_side(frame):
    table = beside_paper(frame, "Table 5", {name: name for name in ("PUMA", "w/o SFT")})
    cell = table.loc["PUMA", "search, result accuracy"]
    assert cell["paper"] == 0.652
    assert cell["here"] == pytest.approx(frame[frame["method"] == "PUMA"]["result_official"].mean())
    assert table.loc["w/o DPO", "search, result accuracy"].isna()["here"]
    assert list(table.index) == ["PUMA", "w/o Task-specific Memory", "w/o SFT", "w/o DPO"]


def test_a_row_that_the_paper_lacks_stands_alone(frame):
    table = beside_paper(frame, "Table 6", {"PUMA": "96 (small model)"})
    row = table.loc["96 (small model)", "search, function accuracy"]
    assert row["here"] == 1 and pd.isna(row["paper"])


def test_differences_are_paired_by_type_and_overall(frame):
    table = differences(frame, {"SFT": ("PUMA", "w/o SFT")}, "result_official")
    assert list(table["task"]) == ["search", "recommend", "review", "overall"]
    by_task = table.set_index("task")
    mean = frame[frame["method"] == "PUMA"]["result_official"].mean()
    assert by_task.loc["search", "difference"] == pytest.approx(mean)
    assert by_task.loc["review", "n_tasks"] == 0


def test_losses_are_drawn_a_line_a_training():
    curves = pd.DataFrame(
        [("function", 1, 2.0), ("function", 10, 1.0), ("SFT, full", 1, 3.0), ("DPO, full", 1, 0.7)],
        columns=["training", "step", "loss"],
    )
    left, right = plot_losses(curves).axes
    lines = {line.get_label(): line for ax in (left, right) for line in ax.get_lines()}
    assert [len(ax.get_lines()) for ax in (left, right)] == [2, 2]
    assert lines["SFT, full"].get_color() == lines["DPO, full"].get_color() != lines["function"].get_color()
    assert lines["no preference (log 2)"].get_ydata()[0] == pytest.approx(0.693, abs=1e-3)


def test_labels_are_counted_by_task_and_outcome_also_where_there_are_none():
    counts = {("search", "labelled"): 3, ("review", "labelled"): 2, ("search", "nothing to say"): 1}
    table = label_counts(counts).set_index("task")
    assert dict(table["labelled"]) == {"review": 2, "search": 3}
    assert dict(table["nothing to say"]) == {"review": 0, "search": 1}
    assert label_counts({}).empty and list(label_counts({})) == ["task"]
