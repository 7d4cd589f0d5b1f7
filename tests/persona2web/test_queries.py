"""Queries: each level leaves out what it should, and the goal can be reached on the preferred site."""

from collections import Counter
from functools import cache

import pytest

from pwagents.persona2web.world.domains import domains, facet_of, item_fits, make_sites, names_value
from pwagents.persona2web.world.history import NOW, make_histories
from pwagents.persona2web.world.queries import make_tasks, query
from pwagents.persona2web.world.types import Goal, value_text
from pwagents.settings import HistorySettings, QuerySettings

SITES = make_sites(seed=2)


@cache
def histories():
    return make_histories(HistorySettings(records=150), seed=2)


@cache
def tasks():
    return make_tasks(histories(), SITES, QuerySettings(), seed=2)


def test_three_tasks_a_user_in_different_sub_domains_after_the_history():
    assert len(tasks()) == 150
    assert len({(task.user_id, task.goal.domain) for task in tasks()}) == 150
    for task in tasks():
        assert histories()[task.user_id].events[-1].timestamp < task.now == NOW


def test_levels_leave_out_the_website_and_then_the_masked_values():
    for task in tasks():
        texts = {level: query(task.goal, level) for level in (0, 1, 2)}
        assert len(set(texts.values())) == 3
        assert task.goal.host in texts[0]
        for level in (1, 2):
            for site in SITES.values():
                assert site.host not in texts[level]
                assert site.name not in texts[level]
            assert "preferred website" in texts[level]
        for name, value in task.goal.masked.items():
            assert names_value(texts[0], value)
            assert names_value(texts[1], value)
            assert not names_value(texts[2], value)
            assert facet_of(task.goal.domain, name).usual in texts[2]
        for name, value in task.goal.stated.items():
            stated = facet_of(task.goal.domain, name).stated.format(value_text(value))
            assert all(stated in text for text in texts.values())


def test_goals_are_what_the_user_wants_and_some_item_of_the_site_meets_them_and_some_does_not():
    for task in tasks():
        goal, wants = task.goal, histories()[task.user_id].person.wants
        assert goal.host == wants[goal.domain, "website"]
        assert all(wants[goal.domain, name] == value for name, value in goal.masked.items())
        assert goal.operation in domains()[goal.domain].operations
        items = [item for item in SITES[goal.host].items if item.domain == goal.domain]
        fitting = [item for item in items if item_fits(item, goal.stated | goal.masked)]
        needed = 2 if goal.operation == "compare" else 1
        assert needed <= len(fitting) < len(items)


def test_most_tasks_mask_two_values():
    counts = Counter(len(task.goal.masked) for task in tasks())
    assert 0.65 < counts[2] / len(tasks()) < 0.9
    assert set(counts) == {1, 2, 3}


def test_a_query_reads_like_this():
    goal = Goal(
        domain="flights",
        host="wayfarely.test",
        operation="booking",
        stated={"cabin": "economy"},
        masked={"seat": "window", "fare": 400.0},
    )
    end = ", but stop before payment."
    named = f"reserve a flight in economy with window seating under $400{end}"
    usual = f"reserve a flight in economy with my usual seating within my usual fare limit{end}"
    assert query(goal, 0) == f"At wayfarely.test, {named}"
    assert query(goal, 1) == f"On my preferred website, {named}"
    assert query(goal, 2) == f"On my preferred website, {usual}"


def test_more_tasks_than_sub_domains_are_refused():
    with pytest.raises(ValueError, match=r"tasks_per_user is 7, but user .* has 6 sub-domains"):
        make_tasks(histories(), SITES, QuerySettings(tasks_per_user=7), seed=2)
