"""Episodes whose actions are computed at once."""

import pytest

from pwagents.embedding import Embedder
from pwagents.puma.play import Stage, run_at_once, seconds_per_task
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


@pytest.fixture(scope="module")
def tasks(benchmark):
    return [task for task in benchmark.tasks["test"] if task.type == "search"][:8]


@pytest.fixture
def stage(benchmark, tmp_path):
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, Embedder())
    return Stage(
        environment=lambda task: WebEnvironment(shop),
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
    alone = [run_episode(stage.environment(t), t, stage.history(t), search) for t in tasks]
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
