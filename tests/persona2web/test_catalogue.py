"""The sites: every pair of wanted values is to be had on each, and not by every item."""

from itertools import combinations, product

import pytest

from pwagents.persona2web.world.domains import domains, fits, item_fits, make_sites

SITES = make_sites(seed=5)


@pytest.mark.parametrize("domain", domains().values(), ids=domains())
def test_every_pair_of_wanted_values_has_fitting_items_and_near_misses_on_each_site(domain):
    for host in domain.hosts:
        items = [item for item in SITES[host].items if item.domain == domain.name]
        for a, b in combinations(domain.facets, 2):
            for x, y in product(a.values, b.values):
                fitting = [item for item in items if item_fits(item, {a.name: x, b.name: y})]
                assert fitting
                assert len(fitting) < len(items)
                assert any(fits(a, x, i.values[a.name]) != fits(b, y, i.values[b.name]) for i in items)


def test_items_are_told_apart_and_complete():
    items = [item for site in SITES.values() for item in site.items]
    assert len({item.item_id for item in items}) == len(items)
    assert len({(item.host, item.domain, item.title) for item in items}) == len(items)
    for item in items:
        domain = domains()[item.domain]
        assert item.host in domain.hosts
        assert item.values.keys() == {facet.name for facet in domain.facets}
    facts = [(item.host, item.domain, item.fact) for item in items if domains()[item.domain].fact]
    assert len(set(facts)) == len(facts)


def test_sites_that_share_a_sub_domain_differ_in_skin_or_template_and_wording():
    for domain in domains().values():
        looks = {(SITES[host].template, SITES[host].skin) for host in domain.hosts}
        assert len(looks) == 3
        for facet in domain.facets:
            assert len({SITES[host].labels[facet.name] for host in domain.hosts}) >= 2


def test_the_same_seed_gives_the_same_sites_and_months_later_they_look_and_sell_otherwise():
    make_sites.cache_clear()
    assert make_sites(seed=5) == SITES
    assert make_sites(seed=6) != SITES
    later = make_sites(seed=5, edition=1)
    for host, site in SITES.items():
        assert later[host].skin != site.skin
        assert later[host].labels != site.labels
        assert later[host].items != site.items
