"""Baselines of what histories give away: all records tell nearly all, chance and recency little."""

from functools import cache

import pytest

from pwagents.persona2web.agents.clarify import implicitness, perfect_reader
from pwagents.persona2web.agents.recall import question_for
from pwagents.persona2web.world.domains import domains, make_sites
from pwagents.persona2web.world.history import make_histories
from pwagents.persona2web.world.queries import make_tasks
from pwagents.settings import HistorySettings, QuerySettings

from .test_retrieval import Letters


@cache
def histories():
    return make_histories(HistorySettings(n_users=12), seed=4)


@cache
def tasks():
    return make_tasks(histories(), make_sites(seed=4), QuerySettings(), seed=4)


@pytest.fixture(scope="module")
def table():
    return implicitness(tasks(), histories(), Letters(), seed=4).set_index("baseline")


def test_all_records_tell_nearly_all_and_a_few_do_not(table):
    joint = table["joint"]
    assert joint["all records, perfect reader"] > 0.85
    assert joint["random"] < 0.2
    for n in (1, 5):
        assert joint[f"last {n} of the sub-domain, perfect reader"] < 0.5
    assert (table["n"] == len(tasks())).all()
    assert (joint <= table["website"]).all()


def test_intervals_are_of_users_not_of_tasks(table):
    """Each user's tasks counted thrice tell nothing new."""
    assert ((table["low"] <= table["joint"]) & (table["joint"] <= table["high"])).all()
    again = implicitness(tasks() * 3, histories(), Letters(), seed=4).set_index("baseline")
    for name in table.index.drop("random"):
        for column in ("low", "high"):
            assert again.loc[name, column] == pytest.approx(table.loc[name, column])


def test_baselines_ask_what_the_agent_asks():
    heard = set()

    class Heard(Letters):
        def encode(self, texts):
            heard.update(texts)
            return super().encode(texts)

    implicitness(tasks()[:3], histories(), Heard(), seed=4)
    for task in tasks()[:3]:
        domain = domains()[task.goal.domain]
        assert {question_for(domain, facet) for facet in ("website", *task.goal.masked)} <= heard


def test_a_perfect_reader_counts_no_noise():
    history = next(iter(histories().values()))
    domain, facet = next(key for key in history.person.wants if key[1] != "website")
    wrong = [e for e in history.events if history.shown[e.event_id].noise]
    values = {perfect_reader(history, wrong, domain, facet), perfect_reader(history, [], domain, facet)}
    assert len(values) == 1
