"""The sub-domains: evidence does not give values away, values mean the same everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.world.domains import (
    domains,
    facet_of,
    fits,
    names_value,
    site_kinds,
    titles,
    value_range,
)
from pwagents.persona2web.world.types import value_text

FACETS = [pytest.param(d, f, id=f"{d.name}-{f.name}") for d in domains().values() for f in d.facets]


def test_21_sub_domains_lie_on_25_sites_of_8_templates_three_each():
    assert len(domains()) == 21
    assert len(site_kinds()) == 25
    assert len({template for _, template, _ in site_kinds().values()}) == 8
    for domain in domains().values():
        assert len(set(domain.hosts)) == 3  # so that a site drawn at random is right in a third of the cases
        assert set(domain.hosts) <= site_kinds().keys()
        assert bool(domain.fact) == ("lookup" in domain.operations)
    assert {host for domain in domains().values() for host in domain.hosts} == site_kinds().keys()


@pytest.mark.parametrize(("domain", "facet"), FACETS)
def test_each_value_has_six_phrases_that_name_no_value_of_the_domain(domain, facet):
    phrases = [phrase for value in facet.values for phrase in facet.evidence[value_text(value)]]
    assert len(set(phrases)) == len(phrases)  # a phrase points to one value
    for value in facet.values:
        assert len(facet.evidence[value_text(value)]) >= 6
        for phrase in facet.evidence[value_text(value)]:
            assert not (isinstance(value, str) and value.casefold() in phrase.casefold())
            assert not any(names_value(phrase, v) for other in domain.facets for v in other.values)


@pytest.mark.parametrize(("domain", "facet"), FACETS)
def test_wording(domain, facet):
    assert facet.stated.count("{}") == 1
    assert len(set(facet.labels)) == 3
    assert not any(names_value(facet.usual, value) for each in domain.facets for value in each.values)


def test_facets_of_one_name_have_the_same_labels():
    labels = {}
    for domain in domains().values():
        for facet in domain.facets:
            assert labels.setdefault(facet.name, facet.labels) == facet.labels


def test_titles_name_no_value():
    for domain in domains().values():
        for title in titles(domain.name):
            assert not any(names_value(title, value) for facet in domain.facets for value in facet.values)


@pytest.mark.parametrize(
    ("domain", "name", "wanted", "meets", "fails"),
    [
        ("clothing", "size", "small", "small", "medium"),
        ("clothing", "price", 60.0, 60.0, 60.01),
        ("clothing", "rating", 4.0, 4.0, 3.9),
        ("flights", "departure", "afternoon", 12.0, 17.0),
    ],
)
def test_fits(domain, name, wanted, meets, fails):
    assert fits(facet_of(domain, name), wanted, meets)
    assert not fits(facet_of(domain, name), wanted, fails)


@given(st.sampled_from([(f, v) for d in domains().values() for f in d.facets for v in f.values]))
def test_a_text_that_states_a_value_names_it_and_what_is_usual_does_not(pair):
    facet, value = pair
    assert names_value(facet.stated.format(value_text(value)), value)
    assert not names_value(facet.usual, value)
    if facet.kind != "choice":
        start, end = value_range(facet, value)
        assert fits(facet, value, (start + end) / 2)


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("under $60 in all", 60.0, True),
        ("total $60.00", 60.0, True),
        ("total $60.25", 60.0, False),
        ("total $160", 60.0, False),
        ("rated 4.5", 4.0, False),
        ("starts 20:15", 20.0, False),
        ("Window seats", "window", True),
        ("windowed", "window", False),
    ],
)
def test_names_value(text, value, found):
    assert names_value(text, value) is found


def test_a_query_leaves_a_value_out_with_the_preposition_that_names_it_unless_the_file_says_how():
    usual = {name: facet_of("electronics", name).usual for name in ("port", "condition", "price")}
    assert list(usual.values()) == ["with my usual port", "in my usual condition", "within my usual budget"]
