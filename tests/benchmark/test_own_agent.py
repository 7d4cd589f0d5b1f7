"""Agents of one's own play: what each kind returns, remembers and is known by, and what ends in one line."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest

from pwagents.benchmark.own_agent import play
from pwagents.benchmark.settings import MethodPlayers
from pwagents.errors import NotEvaluableError
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


def stop(state):
    return Action(name="stop")


class Remembers:
    """Knows of which users it has played tasks, and says so."""

    def __init__(self):
        self.memory = {"users": []}

    def __call__(self, state):
        if state.session:
            return Action(name="stop")
        self.memory["users"].append(state.user_id)
        return search(state).model_copy(update={"thought": ",".join(self.memory["users"])})


class Titles:
    """Searches for the title bought last."""

    def __init__(self, products):
        self.products = products

    def __call__(self, state):
        title = self.products[state.history[-1].parent_asin].title
        return Action(name="search_product_by_query", arguments={"query": title})


@pytest.fixture(scope="module")
def benchmark(small):
    return small.benchmark


@pytest.fixture
def study(benchmark, tmp_path):
    """As much of a study as an agent meets; ``study.played`` has the tasks that were played."""
    shop, played = Shop(benchmark, build_search_engine(benchmark.products), None, None), []

    def environment(task, track):
        played.append(task.task_id)
        return WebEnvironment(shop, track)

    return SimpleNamespace(
        benchmark=benchmark,
        sample=[task for task in benchmark.tasks["test"] if task.type != "review"],
        environment=environment,
        history=lambda task: benchmark.history(task, "test"),
        facts={"data": benchmark.content_hash},
        folder=tmp_path,
        settings=SimpleNamespace(players=MethodPlayers()),
        played=played,
    )


def test_stored_episodes_are_not_played_again_and_those_of_a_changed_agent_are(study):
    def asking(state, words=""):
        return (
            Action(name="respond", arguments={"content": words or "?"}) if not state.session else stop(state)
        )

    study.sample = study.sample[:3]
    first = play(study, "multi_turn", asking, "a")
    assert (len(study.played), first.stored) == (3, 0)
    again = play(study, "multi_turn", asking, "a")
    assert (len(study.played), again.stored) == (3, 3) and again.records == first.records
    for other in ((asking, "another name"), (partial(asking, words="red"), "a"), (asking, "a", "2")):
        assert play(study, "multi_turn", *other).stored == 0
    assert len(study.played) == 12


@pytest.mark.parametrize("given", [Remembers, Remembers()], ids=["class", "object"])
def test_memory_goes_from_task_to_task_of_one_user(study, given):
    records = play(study, "multi_turn", given, "a").records
    seen = {}
    for task, record in sorted(zip(study.sample, records, strict=True), key=lambda pair: pair[0].timestamp):
        seen[task.user_id] = seen.get(task.user_id, 0) + 1
        assert record.trajectory.steps[0].action.thought.split(",") == [task.user_id] * seen[task.user_id]
    assert max(seen.values()) > 1
    assert play(study, "multi_turn", given, "a").records == records
    assert len((study.folder / "evaluate.jsonl").read_text().splitlines()) == len(study.sample)


def test_a_class_may_take_the_catalogue(study, benchmark):
    study.sample = study.sample[:1]
    (record,) = play(study, "single_turn", Titles, "a").records
    last = benchmark.history(study.sample[0], "test")[-1].parent_asin
    assert record.trajectory.steps[0].action.arguments["query"] == benchmark.products[last].title


class Clears(Titles):
    def __init__(self, products):
        products.clear()


class Writes(Titles):
    def __call__(self, state):
        self.products["B1"] = None


class NoKey(Titles):
    def __init__(self):
        raise KeyError("API_KEY")


class Forgets(Remembers):
    def __call__(self, state):
        self.memory = [state.user_id]
        return Action(name="stop")


WRONG = {
    "a text": (lambda state: "search", "TypeError: the agent returned the str 'search'; expected an action"),
    "None": (lambda state: None, "the agent returned None; expected an action, such as Action("),
    "no JSON": (
        lambda state: Action(name="stop", arguments={"x": object()}),
        "the agent returned an action that cannot be stored: Object of type object is not JSON",
    ),
    "it raises": (lambda state: {}[state.instruction], "KeyError: "),
    "it ends the process": (lambda state: sys.exit(3), "SystemExit: 3"),
    "memory": (Forgets, "the agent's memory is the list "),
    "it changes the catalogue": (Writes, "TypeError: 'mappingproxy' object does not support item assignment"),
    "it empties the catalogue": (Clears, "cannot be made: AttributeError: 'mappingproxy' object has no"),
    "it cannot be made": (NoKey, "cannot be made: KeyError: 'API_KEY'"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_an_agent_with_a_mistake_is_told_in_one_line_after_three_tasks_with_nothing_stored(
    study, benchmark, given, message
):
    before = dict(benchmark.products)
    with pytest.raises(RuntimeError) as caught:
        play(study, "multi_turn", given, "mine")
    (line,) = str(caught.value).splitlines()
    assert "agent mine" in line and message in line
    assert "cannot be made" in line or "the first 3 tasks" in line
    assert len(study.played) == (0 if "cannot be made" in line else 3)
    assert caught.value.__cause__ is None or caught.value.__cause__.__traceback__
    assert not (study.folder / "evaluate.jsonl").exists() and benchmark.products == before


def test_a_memory_that_cannot_be_stored_costs_its_task_alone(study):
    class Spoils(Remembers):
        def __call__(self, state):
            if not state.session and len(self.memory["users"]) == 1:
                self.memory["set"] = {1}
            return super().__call__(state)

    records = play(study, "multi_turn", Spoils, "a").records
    ends = [record.trajectory.end for record in records]
    assert ends.count("error") > 0 and ends.count("stop") > 0 and len(ends) == len(study.sample)


class ClientError(Exception):
    pass


def test_what_is_down_is_tried_again_and_a_refusal_of_the_model_scores_0(study):
    study.sample = study.sample[:3]

    def down(state):
        try:
            raise ConnectionRefusedError("refused")
        except OSError as error:
            raise ClientError("no connection") from error

    def refusing(state):
        raise NotEvaluableError("content filter")

    run = play(study, "multi_turn", down, "a")
    assert {record.outcome for record in run.records} == {"infrastructure_error"}
    assert "ClientError: no connection" in run.records[0].message
    assert play(study, "multi_turn", down, "a").stored == 0
    refused = play(study, "multi_turn", refusing, "b").records
    assert {(r.outcome, r.trajectory.end, r.grade.result_final) for r in refused} == {
        ("scored", "refused", 0)
    }
    assert refused[0].trajectory.message == "content filter"
