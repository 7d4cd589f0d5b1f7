"""Sub-domains, stock, histories and queries: what is given away, and that the truth fits what is shown."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pydantic import ValidationError

from pwagents.persona2web.world import domains as module
from pwagents.persona2web.world.domains import domains, facet_of, fits, item_fits, make_sites, names_value
from pwagents.persona2web.world.history import NOW, make_histories, make_people, shares
from pwagents.persona2web.world.queries import make_tasks, query, read_task
from pwagents.persona2web.world.types import WEBSITE, Goal, value_text
from pwagents.settings import HistorySettings, QuerySettings

from .worlds import goals

DAY = 24 * 60 * 60 * 1000
SITES = make_sites(seed=2)
FACETS = [pytest.param(d, f, id=f"{d.name}-{f.name}") for d in domains().values() for f in d.facets]


# --- sub-domains and stock ---


def test_21_sub_domains_lie_on_25_sites_of_8_templates_three_each():
    assert len(domains()) == 21
    assert len(module.site_kinds()) == 25
    assert len({template for _, template, _ in module.site_kinds().values()}) == 8
    labels = {}
    for domain in domains().values():
        assert len(set(domain.hosts)) == 3  # so that a site drawn at random is right in a third of the cases
        assert bool(domain.fact) == ("lookup" in domain.operations)
        values = [value for facet in domain.facets for value in facet.values]
        assert not any(names_value(title, value) for title in module.titles(domain.name) for value in values)
        for facet in domain.facets:  # facets of one name have the same labels
            assert labels.setdefault(facet.name, facet.labels) == facet.labels
    assert {host for domain in domains().values() for host in domain.hosts} == module.site_kinds().keys()
    usual = {name: facet_of("electronics", name).usual for name in ("port", "condition", "price")}
    assert list(usual.values()) == ["with my usual port", "in my usual condition", "within my usual budget"]


@pytest.mark.parametrize(("domain", "facet"), FACETS)
def test_each_value_is_stated_by_its_name_and_has_six_phrases_that_name_no_value(domain, facet):
    phrases = [phrase for value in facet.values for phrase in facet.evidence[value_text(value)]]
    values = [value for each in domain.facets for value in each.values]
    assert len(set(phrases)) == len(phrases)  # a phrase points to one value
    assert not any(names_value(said, value) for said in (*phrases, facet.usual) for value in values)
    for value in facet.values:
        assert len(facet.evidence[value_text(value)]) >= 6
        if isinstance(value, str):
            assert not any(value.casefold() in said.casefold() for said in facet.evidence[value])
        assert names_value(facet.state(value), value)
        assert facet.kind == "choice" or fits(facet, value, sum(module.value_range(facet, value)) / 2)
    assert facet.stated.count("{}") == 1 and len(set(facet.labels)) == 3


def test_values_are_named_whole():
    named = {"under $60 in all": 60.0, "total $60.00": 60.0, "Window seats": "window"}
    other = {"total $60.25": 60.0, "total $160": 60.0, "rated 4.5": 4.0, "starts 20:15": 20.0}
    assert all(names_value(text, value) for text, value in named.items())
    assert not any(names_value(text, value) for text, value in (other | {"windowed": "window"}).items())


@pytest.mark.parametrize("domain", domains().values(), ids=domains())
def test_every_pair_of_wanted_values_has_fitting_items_and_near_misses_on_each_site(domain):
    looks = {(SITES[host].template, SITES[host].skin) for host in domain.hosts}
    assert len(looks) == 3
    for host in domain.hosts:
        items = [item for item in SITES[host].items if item.domain == domain.name]
        assert all(item.values.keys() == {facet.name for facet in domain.facets} for item in items)
        for a, b in combinations(domain.facets, 2):
            for x, y in product(a.values, b.values):
                fitting = [item for item in items if item_fits(item, {a.name: x, b.name: y})]
                assert 0 < len(fitting) < len(items)
                assert any(fits(a, x, i.values[a.name]) != fits(b, y, i.values[b.name]) for i in items)


def test_the_same_seed_gives_the_same_sites_and_each_item_can_be_told_apart():
    make_sites.cache_clear()
    assert make_sites(seed=2) == SITES != make_sites(seed=6)
    items = [item for site in SITES.values() for item in site.items]
    assert len({item.item_id for item in items}) == len(items)
    assert len({(item.host, item.domain, item.title) for item in items}) == len(items)
    facts = [(item.host, item.domain, item.fact) for item in items if domains()[item.domain].fact]
    assert len(set(facts)) == len(facts)


# --- histories ---


@pytest.fixture(scope="module")
def histories():
    return make_histories(HistorySettings(n_users=8), seed=3)


def test_histories_are_as_set_in_order_and_cheap_to_embed(histories):
    found = shares(histories)
    assert found["users"] == 8 and found["records"] == pytest.approx(8 * 2051, rel=0.1)
    assert found["noise"] == pytest.approx(0.1, abs=0.01)
    assert found["literal"] == pytest.approx(0.0356, abs=0.0005)
    for history in histories.values():
        times = [event.timestamp for event in history.events]
        assert times == sorted(times) and NOW - 365 * DAY <= times[0] < times[-1] < NOW
        assert len({event.event_id for event in history.events}) == len(history.events)
        for event in history.events:
            assert event.website in domains()[history.shown[event.event_id].domain].hosts
    assert len({f"{event.type}: {event.object}" for h in histories.values() for event in h.events}) < 6000


def test_what_supports_a_preference_shows_it_and_most_records_do(histories):
    most = []
    for history, preference in ((h, each) for h in histories.values() for each in h.preferences):
        shown = [(event, history.shown[event.event_id]) for event in history.events]
        support = [pair for pair in shown if pair[0].event_id in preference.support]
        assert len(support) == len(preference.support) and not any(truth.noise for _, truth in support)
        if preference.facet == WEBSITE:
            assert all(event.website == preference.value for event, _ in support)
            continue
        facet = facet_of(preference.domain, preference.facet)
        said = (facet.state(preference.value), *facet.evidence[value_text(preference.value)])
        assert all(event.object.endswith(said) for event, _ in support)
        assert all(truth.value == preference.value for _, truth in support)
        if preference.domain in history.person.often:
            key = (preference.domain, preference.facet)
            counts = Counter(t.value for _, t in shown if (t.domain, t.facet) == key and not t.noise)
            most.append(max(counts, key=counts.get) == preference.value)
    assert sum(most) / len(most) > 0.95


def test_the_last_weeks_speak_against_some_preferences():
    counts = Counter()
    for history in make_histories(HistorySettings(n_users=6, drift=1.0), seed=3).values():
        for event in history.events:
            shown = history.shown[event.event_id]
            if shown.facet and not shown.noise and event.timestamp > NOW - 20 * DAY:
                counts[shown.value == history.person.wants[shown.domain, shown.facet]] += 1
    assert counts[False] > 2 * counts[True]


def test_users_of_one_group_have_phrases_that_the_other_never_uses(histories):
    said = {0: set(), 1: set()}
    for history in histories.values():
        texts = {e.object for e in history.events if history.shown[e.event_id].facet}
        said[history.person.group] |= {text for text in texts if ", " in text}
    assert said[1] - said[0] and said[0] - said[1] and said[0] & said[1]


def test_the_same_seed_gives_the_same_histories_whoever_else_there_is():
    settings = HistorySettings(n_users=2, records=100)
    first, again, other = (make_histories(settings, seed) for seed in (1, 1, 2))
    assert first == again != other
    few, many = ({p.user_id: p for p in make_people(n, 6, 0.35, seed=1)} for n in (3, 9))
    assert few.items() <= many.items()


@examples(max_examples=10)
@given(share=st.floats(0, 0.2), records=st.integers(100, 400), seed=st.integers(0, 99))
def test_the_share_of_exact_strings_is_met_whatever_it_is(share, records, seed):
    settings = HistorySettings(n_users=1, records=records, literal=share)
    (history,) = make_histories(settings, seed).values()
    assert len(history.literal) == round(share * len(history.events))


def test_settings_out_of_range_are_refused(histories):
    with pytest.raises(ValidationError, match="consistency"):
        HistorySettings(consistency=1.5)
    with pytest.raises(ValueError, match="n_users is 999; expected at most 180"):
        make_histories(HistorySettings(n_users=999), seed=0)
    with pytest.raises(ValueError, match=r"tasks_per_user is 7, but user .* has 6 sub-domains"):
        make_tasks(histories, SITES, QuerySettings(tasks_per_user=7), seed=2)


# --- queries ---


def test_levels_leave_out_the_website_and_then_the_masked_values_and_goals_can_be_met():
    histories = make_histories(HistorySettings(records=150), seed=2)
    tasks, masked = make_tasks(histories, SITES, QuerySettings(), seed=2), Counter()
    assert len({(task.user_id, task.goal.domain) for task in tasks}) == len(tasks) == 150
    for task in tasks:
        goal, wants, texts = task.goal, histories[task.user_id].person.wants, task.texts
        assert histories[task.user_id].events[-1].timestamp < task.now == NOW
        assert len(set(texts.values())) == 3 and goal.host in texts[0]
        for level in (1, 2):
            assert not any(name in texts[level] for site in SITES.values() for name in (site.host, site.name))
            assert "preferred website" in texts[level]
        for name, value in goal.masked.items():
            named = [names_value(texts[level], value) for level in (0, 1, 2)]
            assert named == [True, True, False] and facet_of(goal.domain, name).usual in texts[2]
            assert wants[goal.domain, name] == value
        for name, value in goal.stated.items():
            assert all(facet_of(goal.domain, name).state(value) in text for text in texts.values())
        assert goal.host == wants[goal.domain, "website"]
        assert goal.operation in domains()[goal.domain].operations
        items = [item for item in SITES[goal.host].items if item.domain == goal.domain]
        fitting = [item for item in items if item_fits(item, goal.stated | goal.masked)]
        assert (2 if goal.operation == "compare" else 1) <= len(fitting) < len(items)
        masked[len(goal.masked)] += 1
    assert 0.65 < masked[2] / len(tasks) < 0.9 and set(masked) == {1, 2, 3}


def test_a_query_reads_like_this():
    masked = {"seat": "window", "fare": 400.0}
    flight = {"domain": "flights", "host": "wayfarely.test", "operation": "booking"}
    goal = Goal(**flight, stated={"cabin": "economy"}, masked=masked)
    end = ", but stop before payment."
    named = f"reserve a flight in economy with window seating under $400{end}"
    usual = f"reserve a flight in economy with my usual seating within my usual fare limit{end}"
    assert query(goal, 0) == f"At wayfarely.test, {named}"
    assert query(goal, 1) == f"On my preferred website, {named}"
    assert query(goal, 2) == f"On my preferred website, {usual}"


@pytest.mark.parametrize("host", SITES)
def test_queries_are_read_as_they_were_meant_and_no_further(host):
    for goal in goals(SITES[host]):
        full, short = read_task(query(goal, 0)), read_task(query(goal, 2))
        for asked in (full, short):
            assert (asked.domain.name, asked.operation) == (goal.domain, goal.operation)
        assert (full.host, full.stated, full.left_out) == (host, goal.stated | goal.masked, ())
        assert (short.host, short.stated, {*short.left_out}) == ("", goal.stated, {*goal.masked})
    assert read_task("Hello?").operation in read_task("Hello?").domain.operations
