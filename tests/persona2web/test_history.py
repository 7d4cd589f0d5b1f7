"""Browsing histories: as many, as noisy and as implicit as the settings say; the truth fits the records."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pydantic import ValidationError

from pwagents.persona2web.world.domains import domains, facet_of
from pwagents.persona2web.world.history import NOW, make_histories, make_people, shares
from pwagents.persona2web.world.types import WEBSITE, value_text
from pwagents.settings import HistorySettings

DAY = 24 * 60 * 60 * 1000


@cache
def histories():
    return make_histories(HistorySettings(n_users=8), seed=3)


def test_size_noise_and_exact_strings_are_as_set():
    found = shares(histories())
    assert found["users"] == 8
    assert found["records"] == pytest.approx(8 * 2051, rel=0.1)
    assert found["noise"] == pytest.approx(0.1, abs=0.01)
    assert found["literal"] == pytest.approx(0.0356, abs=0.0005)


def test_records_are_in_order_within_the_year_and_on_sites_of_their_sub_domain():
    for history in histories().values():
        times = [event.timestamp for event in history.events]
        assert times == sorted(times)
        assert NOW - 365 * DAY <= times[0] < times[-1] < NOW
        assert len({event.event_id for event in history.events}) == len(history.events)
        for event in history.events:
            assert event.website in domains()[history.shown[event.event_id].domain].hosts


def test_what_supports_a_preference_shows_it():
    for history in histories().values():
        events = {event.event_id: event for event in history.events}
        for preference in history.preferences:
            for event_id in preference.support:
                shown = history.shown[event_id]
                assert not shown.noise
                if preference.facet == WEBSITE:
                    assert events[event_id].website == preference.value
                else:
                    facet = facet_of(preference.domain, preference.facet)
                    text = value_text(preference.value)
                    stated = facet.stated.format(text)
                    told = events[event_id].object
                    assert shown.value == preference.value
                    assert told.endswith(stated) or any(told.endswith(p) for p in facet.evidence[text])


def test_most_records_of_a_facet_show_what_is_preferred():
    right = total = 0
    for history in histories().values():
        for domain, facet in history.person.wants:
            if facet != WEBSITE and domain in history.person.often:
                shown = [s for s in history.shown.values() if (s.domain, s.facet) == (domain, facet)]
                counts = Counter(s.value for s in shown if not s.noise)
                right += max(counts, key=counts.get) == history.person.wants[domain, facet]
                total += 1
    assert right / total > 0.95


def test_the_last_weeks_speak_against_some_preferences():
    histories = make_histories(HistorySettings(n_users=6, drift=1.0), seed=3)
    counts = Counter()
    for history in histories.values():
        for event in history.events:
            shown = history.shown[event.event_id]
            if shown.facet and not shown.noise and event.timestamp > NOW - 20 * DAY:
                counts[shown.value == history.person.wants[shown.domain, shown.facet]] += 1
    assert counts[False] > 2 * counts[True]


def test_users_of_one_group_have_phrases_that_the_other_never_uses():
    said = {0: set(), 1: set()}
    for history in histories().values():
        texts = {e.object for e in history.events if history.shown[e.event_id].facet}
        said[history.person.group] |= {text for text in texts if ", " in text}
    phrases = {
        group: {
            (domain.name, facet.name, phrase)
            for domain in domains().values()
            for facet in domain.facets
            for values in facet.evidence.values()
            for phrase in values
            if any(text.endswith(f"{domain.item}, {phrase}") for text in texts)
        }
        for group, texts in said.items()
    }
    own = phrases[1] - phrases[0]
    assert own
    assert phrases[0] - phrases[1]
    assert phrases[0] & phrases[1]


def test_few_texts_differ_so_that_embedding_them_is_cheap():
    texts = {f"{event.type}: {event.object}" for h in histories().values() for event in h.events}
    assert len(texts) < 6000


def test_the_same_seed_gives_the_same_histories():
    settings = HistorySettings(n_users=2, records=100)
    first, again, other = (make_histories(settings, seed) for seed in (1, 1, 2))
    assert {u: h.events for u, h in first.items()} == {u: h.events for u, h in again.items()}
    assert {u: h.events for u, h in first.items()} != {u: h.events for u, h in other.items()}


def test_a_user_stays_the_same_whoever_else_there_is():
    few = {person.user_id: person for person in make_people(3, 6, 0.35, seed=1)}
    many = {person.user_id: person for person in make_people(9, 6, 0.35, seed=1)}
    assert few.items() <= many.items()


@examples(max_examples=10)
@given(share=st.floats(0, 0.2), records=st.integers(100, 400), seed=st.integers(0, 99))
def test_the_share_of_exact_strings_is_met_whatever_it_is(share, records, seed):
    settings = HistorySettings(n_users=1, records=records, literal=share)
    (history,) = make_histories(settings, seed).values()
    assert len(history.literal) == round(share * len(history.events))


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValidationError, match="consistency"):
        HistorySettings(consistency=1.5)
    with pytest.raises(ValueError, match="n_users is 999; expected at most 180"):
        make_histories(HistorySettings(n_users=999), seed=0)
