"""Scores of episodes: what counts as found, as used and as meant, and how they come to a success."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.judge.scores import Scores, judge
from pwagents.persona2web.world.types import Goal, MemoryStep, Request, Truth, WebTask, WebTrajectory

HOST, OTHER, PORTAL = "skylark.test", "wayfarely.test", "start.test"
MASKED = {"seat": "window", "price": 200.0}
GOAL = Goal(domain="flights", host=HOST, operation="booking", stated={"city": "Oslo"}, masked=MASKED)
TEXTS = dict.fromkeys((0, 1, 2), "Book a flight to Oslo")
TASK = WebTask(task_id="t", user_id="u", now=1, texts=TEXTS, goal=GOAL)
SUPPORT = {"website": "abcd", "seat": "efg", "price": "hi"}
TRUTH = Truth({("u", "flights", facet): frozenset(ids) for facet, ids in SUPPORT.items()})
ALL = {"city": "Oslo", "seat": "window", "price": 200.0}
scores = st.sampled_from([0.0, 0.5, 1.0])


def ask(host=HOST, applied=None, operation="", status=200, domain="flights", path="/search", **params):
    fields = {"applied": applied or {}, "operation": operation, "params": params, "domain": domain}
    return Request(host=host, path=path, status=status, **fields)


def judged(requests=(), found="abcdefghi", **fields):
    looks = (MemoryStep(query="?", retrieved=tuple(found), answer="!"),) if found else ()
    fields = {"scheme": "on_demand", "architecture": "occam", "level": 2} | fields
    return judge(TASK, WebTrajectory(task_id="t", steps=looks, requests=tuple(requests), **fields), TRUTH)


@given(st.none() | scores, scores, st.none() | scores, scores, scores, st.booleans())
def test_success_is_never_above_personalization_or_intent(found_site, site, found, used, intent, reached):
    each = Scores(
        website_retrieval=found_site,
        website_utilization=site,
        preference_retrieval=found,
        preference_utilization=used,
        intent=intent,
        reached=reached,
    )
    assert each.success <= min(each.p_web, each.p_pref, each.p_avg, each.intent, each.reached)
    assert 0 <= each.p_avg <= 1


def test_found_used_and_done_is_a_success():
    done = judged([ask(PORTAL), ask(applied=ALL), ask(operation="booking")], reached=True, intended=True)
    assert done.success == done.p_avg == done.intent == 1


def test_retrieval_counts_supporting_records_whatever_is_done_with_them():
    cases = {"": (0, 0), "ab": (0.5, 0), "abc": (1, 0), "efg": (0, 0.5), "efghi": (0, 1), "ei": (0, 0.5)}
    for (found, scores), requests in product(cases.items(), ([], [ask(applied=ALL)])):
        each = judged(requests, found)
        assert (each.website_retrieval, each.preference_retrieval) == scores


WINDOW, WORDS = {"seat": "window"}, "Window seats under 200"


@pytest.mark.parametrize(
    ("requests", "score"),
    [
        ([ask(applied=ALL)], 1),
        ([ask(applied=WINDOW), ask(applied={"price": 200.0})], 1),
        ([ask(applied=WINDOW)], 0.5),
        ([ask(applied=WINDOW), ask(applied={"seat": "aisle", "price": 100.0})], 0),
        ([ask(q=WORDS)], 1),
        ([ask(q="windowless, 2000")], 0),
        ([ask(PORTAL, q=WORDS, domain="", path="/")], 0),
        ([ask(q=WORDS, status=503)], 0),
        ([ask(q=WORDS, domain="")], 0),
        ([ask(q=WORDS, path="/item/f1")], 0),
        ([ask(OTHER, q=WORDS, domain="hotels")], 0),
        ([ask(OTHER, {"price": 200.0}, domain="hotels"), ask(applied=WINDOW)], 0.5),
        ([ask(OTHER, ALL)], 1),  # the site is scored apart
        ([ask(operation="booking")], 0),
    ],
)
def test_preferences_are_used_where_they_are_applied_not_where_an_item_merely_fits(requests, score):
    assert judged(requests, reached=True).preference_utilization == score


def test_the_right_site_is_used_from_first_to_last_by_filters_words_and_operations():
    for use in (ask(q="Oslo"), ask(applied=ALL), ask(operation="booking")):
        elsewhere = use.model_copy(update={"host": OTHER})
        apart = elsewhere.model_copy(update={"domain": "hotels"})
        cases = [([use, use], 1), ([use, elsewhere], 0.5), ([elsewhere, use], 0.5), ([apart, use], 1)]
        for requests, score in [*cases, ([elsewhere], 0), ([], 0), ([ask(HOST), elsewhere], 0.5)]:
            assert judged(requests).website_utilization == score
        assert judged([ask(HOST, status=503), elsewhere]).website_utilization == 0


def test_what_a_level_states_need_not_be_found():
    for level in (0, 1, 2):
        each = judged([ask(applied=ALL)], "", level=level, reached=True, intended=True)
        assert (each.website_retrieval is None) == (level == 0)
        assert (each.preference_retrieval is None) == (level < 2)
        assert each.success == (level == 0)


OSLO, DOWN = ask(applied={"city": "Oslo"}), ask(status=503)


@pytest.mark.parametrize(
    ("requests", "score"),
    [
        ([OSLO, DOWN], 0.5),
        ([OSLO, DOWN, ask(PORTAL, domain="")], 0.5),
        ([DOWN], 0),
        ([OSLO], 0),
        ([DOWN, OSLO], 0),  # the site came back
        ([OSLO, DOWN, ask(OTHER)], 0),
        ([ask(applied={"city": "Rome"}), DOWN], 0),
    ],
)
def test_a_fault_of_the_site_halves_the_intent_where_it_stopped_a_right_plan(requests, score):
    assert judged(requests, site_fault=True).intent == score
    assert judged(requests, site_fault=True, intended=True).intent == 1
