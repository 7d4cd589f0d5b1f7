"""Scores of episodes: what counts as found, as used and as meant, and how they come to a success."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.judge.scores import Scores, judge
from pwagents.persona2web.world.types import (
    Goal,
    MemoryStep,
    Preference,
    Request,
    Truth,
    WebTask,
    WebTrajectory,
)

HOST, OTHER, PORTAL = "skylark.test", "wayfarely.test", "start.test"
GOAL = Goal(
    domain="flights",
    host=HOST,
    operation="booking",
    stated={"city": "Oslo"},
    masked={"seat": "window", "price": 200.0},
)
TASK = WebTask(
    task_id="t", user_id="u", now=1, texts=dict.fromkeys((0, 1, 2), "Book a flight to Oslo"), goal=GOAL
)
SUPPORT = {"website": "abcd", "seat": "efg", "price": "hi"}
TRUTH = Truth.of(
    Preference(user_id="u", domain="flights", facet=facet, value="x", support=tuple(ids))
    for facet, ids in SUPPORT.items()
)
ALL = {"city": "Oslo", "seat": "window", "price": 200.0}
scores = st.sampled_from([0.0, 0.5, 1.0])


def ask(host=HOST, applied=None, operation="", status=200, domain="flights", path="/search", **params):
    fields = {"applied": applied or {}, "operation": operation, "params": params, "domain": domain}
    return Request(host=host, path=path, status=status, **fields)


def judged(requests=(), found="abcdefghi", level=2, **fields):
    looks = (MemoryStep(query="?", retrieved=tuple(found), answer="!"),) if found else ()
    fields = {"scheme": "on_demand", "architecture": "occam"} | fields
    return judge(
        TASK,
        WebTrajectory(task_id="t", level=level, steps=looks, requests=tuple(requests), **fields),
        TRUTH,
    )


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


@pytest.mark.parametrize(
    ("found", "website", "preference"),
    [
        ("", 0, 0),
        ("ab", 0.5, 0),
        ("abc", 1, 0),
        ("efg", 0, 0.5),
        ("efghi", 0, 1),
        ("ei", 0, 0.5),
        ("xyz", 0, 0),
    ],
)
def test_retrieval_counts_supporting_records_whatever_is_done_with_them(found, website, preference):
    for requests in ([], [ask(applied=ALL)]):
        each = judged(requests, found)
        assert (each.website_retrieval, each.preference_retrieval) == (website, preference)


@pytest.mark.parametrize(
    ("hosts", "score"), [([HOST, HOST], 1), ([HOST, OTHER], 0.5), ([OTHER, HOST], 0.5), ([OTHER], 0), ([], 0)]
)
def test_the_right_site_is_used_from_first_to_last(hosts, score):
    for found in ("", "abcd"):
        assert judged([ask(host, applied=ALL) for host in hosts], found).website_utilization == score


def test_seeing_the_right_site_is_half_of_using_it():
    assert judged([ask(HOST), ask(OTHER, ALL)]).website_utilization == 0.5
    assert judged([ask(HOST, status=503), ask(OTHER, ALL)]).website_utilization == 0


@pytest.mark.parametrize(
    ("requests", "score"),
    [
        ([ask(applied=ALL)], 1),
        ([ask(applied={"seat": "window"}), ask(applied={"price": 200.0})], 1),
        ([ask(applied={"seat": "window"})], 0.5),
        ([ask(applied={"seat": "window"}), ask(applied={"seat": "aisle", "price": 100.0})], 0),
        ([ask(q="Window seats under 200")], 1),
        ([ask(q="windowless, 2000")], 0),
        ([ask(PORTAL, q="Window seats under 200", domain="", path="/")], 0),
        ([ask(q="Window seats under 200", status=503)], 0),
        ([ask(q="Window seats under 200", domain="")], 0),
        ([ask(q="Window seats under 200", path="/item/f1")], 0),
        ([ask(OTHER, q="Window seats under 200", domain="hotels")], 0),
        ([ask(OTHER, {"price": 200.0}, domain="hotels"), ask(applied={"seat": "window"})], 0.5),
        ([ask(OTHER, ALL)], 1),  # the site is scored apart
        ([ask(operation="booking")], 0),
    ],
)
def test_preferences_are_used_where_they_are_applied_not_where_an_item_merely_fits(requests, score):
    assert judged(requests, reached=True).preference_utilization == score


def test_words_of_a_search_are_a_use_of_the_site_as_filters_and_operations_are():
    for use in (ask(q="Oslo"), ask(applied=ALL), ask(operation="booking")):
        elsewhere = use.model_copy(update={"host": OTHER})
        assert judged([use]).website_utilization == 1
        assert judged([elsewhere, use]).website_utilization == 0.5
        elsewhere = elsewhere.model_copy(update={"domain": "hotels"})
        assert judged([elsewhere, use]).website_utilization == 1


def test_what_a_level_states_need_not_be_found():
    for level, has in product((0, 1, 2), ("",)):
        each = judged([ask(applied=ALL)], has, level=level, reached=True, intended=True)
        assert (each.website_retrieval is None) == (level == 0)
        assert (each.preference_retrieval is None) == (level < 2)
        assert each.success == (level == 0)


@pytest.mark.parametrize(
    ("requests", "score"),
    [
        ([ask(applied={"city": "Oslo"}), ask(status=503)], 0.5),
        ([ask(applied={"city": "Oslo"}), ask(status=503), ask(PORTAL, domain="")], 0.5),
        ([ask(status=503)], 0),
        ([ask(applied={"city": "Oslo"})], 0),
        ([ask(status=503), ask(applied={"city": "Oslo"})], 0),  # the site came back
        ([ask(applied={"city": "Oslo"}), ask(status=503), ask(OTHER)], 0),
        ([ask(applied={"city": "Rome"}), ask(status=503)], 0),
    ],
)
def test_a_fault_of_the_site_halves_the_intent_where_it_stopped_a_right_plan(requests, score):
    assert judged(requests, site_fault=True).intent == score
    assert judged(requests, site_fault=True, intended=True).intent == 1
