"""Walking by rules from the observation text alone; test_drivers walks on every kind of site."""

import pytest

from pwagents.persona2web.agents.navigator import Navigator, Plan, read_page
from pwagents.persona2web.browser.driver import HtmlDriver, Visit
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import domains, make_sites

SITES = make_sites(1)
WEB = LocalWeb(SITES.values())
# One sub-domain for each host, so that every skin of every template is walked.
PLACES = {host: site.domains[i % len(site.domains)] for i, (host, site) in enumerate(SITES.items())}


def walk(plan, architecture):
    session, driver = WEB.begin(), HtmlDriver(WEB)
    driver.begin(session)
    visit, navigator = Visit(driver, architecture), Navigator(plan, architecture)
    for _ in range(25):
        move = navigator.next(visit.observe())
        if not move.actions:
            return session, move
        for action in move.actions:
            assert visit.act(action) == "" or action == "go_back"
    return session, move


@pytest.mark.parametrize("host", [host for host, site in SITES.items() if site.skin == "steps"])
def test_one_filter_at_a_time_is_set_on_whichever_page_of_a_form_it_stands(host):
    domain = domains()[PLACES[host]]
    values = {facet.name: facet.values[0] for facet in (domain.facets[-1], domain.facets[0])}
    session, _ = walk(Plan(host, domain, "search", values, one_by_one=True), "indexed")
    assert session.log[-1].applied == values


def test_it_gives_up_where_nothing_helps():
    domain = domains()["flights"]
    _, move = walk(Plan("nowhere.test", domain, "booking", {}), "occam")
    assert not move.actions and not move.answer


def test_pages_are_read_alike_in_both_forms():
    driver = HtmlDriver(WEB)
    driver.begin(WEB.begin(), "http://wayfarely.test/search?in=flights")
    occam, indexed = (read_page(Visit(driver, form).observe()) for form in ("occam", "indexed"))
    assert occam.host == indexed.host == "wayfarely.test" and occam.params == indexed.params == {
        "in": "flights"
    }
    for role in ("link", "button", "radio"):
        rows = [[(x.number, x.name, x.on) for x in page.lines if x.role == role] for page in (occam, indexed)]
        assert rows[0] == rows[1] != []
