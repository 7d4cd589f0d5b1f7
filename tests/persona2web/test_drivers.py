"""Both drivers see the same pages and do the same; through either every kind of task can be solved."""

import asyncio
import json
import re
import time
from itertools import cycle

import pytest

from pwagents.persona2web.agents.episode import Played
from pwagents.persona2web.agents.navigator import Plan
from pwagents.persona2web.agents.offline import walk
from pwagents.persona2web.browser.chromium import PLAYWRIGHTS, ChromiumDriver, find_chromium
from pwagents.persona2web.browser.driver import ActionError, HtmlDriver, Visit
from pwagents.persona2web.browser.page import INTERACTIVE, observe
from pwagents.persona2web.site.pages import looks
from pwagents.persona2web.site.web import LocalWeb, WebSession, succeeded
from pwagents.persona2web.world.domains import domains, make_sites
from pwagents.persona2web.world.types import Goal
from pwagents.seeds import rng

SITES = make_sites(0)
BY_TEMPLATE = {site.template: site for site in SITES.values()}
# A site of each kind of page, not that of BY_TEMPLATE where there are more, and of each look of filters that
# none of them has.
KINDS = {site.template: site for site in reversed(SITES.values())}.values()
LOOKS = {site.skin: site for site in (*SITES.values(), *KINDS)}.values()
SHOWN = sorted({site.host for site in (*KINDS, *LOOKS)})


def goals(site):
    """A goal of each operation in each department: two wanted values, of which some item has both, or one
    where two items are to be compared."""
    for name in site.domains:
        domain = domains()[name]
        for operation in domain.operations:
            draw = rng(0, site.host, name, operation)
            two = [domain.facets[i] for i in sorted(draw.permutation(len(domain.facets))[:2])]
            wanted = {facet.name: facet.values[draw.integers(len(facet.values))] for facet in two}
            (first, value), *rest = wanted.items()
            masked = {} if operation == "compare" else dict(rest)
            yield Goal(domain=name, host=site.host, operation=operation, stated={first: value}, masked=masked)


def solve(driver, goal, architecture="indexed"):
    """Carry the goal out as a plan; the answer."""
    plan = Plan(goal.host, domains()[goal.domain], goal.operation, goal.stated | goal.masked)
    played = Played()
    walk(played, Visit(driver, architecture), plan, architecture, "none")
    return played.answer


class Twins:
    """Both drivers as one: every action on both, and both observations equal after it."""

    def __init__(self, web, chromium):
        self.drivers = (HtmlDriver(web), chromium)
        for driver in self.drivers:
            driver.begin(web.begin())
        self.same()

    @property
    def page(self):
        return self.drivers[0].page

    def same(self):
        for architecture in ("occam", "indexed"):
            ours, real = (observe(driver.page, architecture) for driver in self.drivers)
            assert ours == real
        assert len({driver.page.status for driver in self.drivers}) == 1

    def __getattr__(self, name):
        def act(*arguments):
            for driver in self.drivers:
                getattr(driver, name)(*arguments)
            self.same()

        return act

    def named(self, name):
        return next(id for id, node in self.page.elements.items() if node.name == name)


@pytest.mark.parametrize("host", SITES)
def test_every_kind_of_task_is_solved_without_a_browser(web, host):
    site = SITES[host]
    for goal, architecture in zip(goals(site), cycle(("indexed", "occam"))):
        driver = HtmlDriver(web)
        driver.begin(web.begin())
        assert not succeeded(driver.session, goal, site)
        answer = solve(driver, goal, architecture)
        assert succeeded(driver.session, goal, site, answer), goal
        assert len(driver.session.log) <= 20


@pytest.mark.parametrize("host", SHOWN)
def test_both_drivers_show_the_same_on_the_way_to_a_goal(web, chromium, host):
    site = SITES[host]
    every = list(goals(site))
    goal = every[rng(1, host).integers(len(every))]
    twins = Twins(web, chromium)
    answer = solve(twins, goal)
    for driver in twins.drivers:
        assert succeeded(driver.session, goal, site, answer)
        assert not driver.site_fault
    ours, real = (driver.session.log for driver in twins.drivers)
    assert ours == real


@pytest.mark.parametrize("template", BY_TEMPLATE)
def test_both_drivers_show_the_same_in_every_state(web, chromium, template):
    site, twins = BY_TEMPLATE[template], Twins(web, chromium)
    item = site.items[0]
    twins.go_to(f"{site.host}/item/{item.item_id}")
    for offer in (looks()["skins"][site.skin]["add"], "Compare"):
        if any(node.name == f"{offer}: {item.title}" for node in twins.page.elements.values()):
            twins.click(twins.named(f"{offer}: {item.title}"))
            twins.go_back()
    if "booking" in domains()[item.domain].operations:
        twins.go_to(f"{site.host}/book/{item.item_id}")
        twins.type(twins.named("Name"), "Ada “Q” <b>&amp; Söhne~*")
        twins.select(twins.named("People"), "4")
        twins.click(twins.named("Remind me the day before"))
        twins.type(twins.named("Note (if any)"), "window, please", True)
        twins.click(twins.named("Go to payment"))
        twins.click(twins.named("Not now"))
    twins.type(twins.named(f"Search {site.name}"), f"{item.title.split()[0]} ~*-_.'() é+&=", True)
    twins.go_to(f"{site.host}/account")
    twins.type(twins.named("Your name"), "Zoë\u2028[1] <i>")
    twins.click(twins.named("Save"))
    twins.go_to(f"{site.host}/item/nothing")
    twins.go_back()
    twins.go_to("nowhere.test/a b?c=[1]")
    twins.go_to("start.test/?q=hotel")


def test_both_drivers_take_an_address_for_the_same(web, chromium):
    twins = Twins(web, chromium)
    host = "marlow-goods.test"
    for path in ("item/%41b", "item/a%3Fb%2Fc%25zz%ff", "item/{x}^|`é", "%", "//item//x", "search?q=%41%zz'"):
        twins.go_to(f"HTTP://{host.upper()}/{path}#top")
        assert twins.page.url == twins.drivers[1].page.url
    ours, real = (driver.session.log for driver in twins.drivers)
    assert ours == real and ours[1].path == "/item/Ab"
    for url in (
        *(f"{host}:80", f"{host}:", f"x@{host}", f"a..{host}", f".{host}", f"{host}.", f"-a.{host}"),
        *(
            f"a_b.{host}",
            f"{'a' * 64}.test",
            "xn--a.test",
            "test",
            "start.test.localhost",
            "127.1",
            "github.com",
        ),
        *(f"{host}/a/../b", f"{host}/%2e/b", "http://[::1/", ""),
    ):
        for driver in twins.drivers:
            with pytest.raises(ActionError, match="no address"):
                driver.go_to(url)
    twins.same()


def test_what_is_no_page_is_told_and_the_page_before_is_opened_again(web, chromium):
    twins = Twins(web, chromium)
    twins.go_to("marlow-goods.test/account")
    before = twins.page.url
    for driver in twins.drivers:
        with pytest.raises(ActionError, match=f"that address is no page; {before} is open again"):
            driver.go_to("start.test/style.css")
    twins.same()
    assert twins.page.url == before
    twins.go_back()
    assert twins.page.url == "http://start.test/"


def test_roles_and_names_are_chromium_s_own(chromium, web):
    """Chromium's accessibility tree is the oracle: the same interactive elements, in role and name."""
    site = SITES["marlow-goods.test"]
    chromium.begin(web.begin())
    for path in ("/", "/search?in=clothing", f"/item/{site.items[0].item_id}", "/account"):
        chromium.go_to(f"{site.host}{path}")
        ours = [(node.role, node.name) for node in chromium.page.elements.values()]
        assert ours == chromium._run(_own_tree, chromium)
    for url in ("start.test", "skylarktravel.test/choose?in=flights", "tripharbor.test/search?in=hotels"):
        chromium.go_to(url)
        ours = [(node.role, node.name) for node in chromium.page.elements.values()]
        assert ours == chromium._run(_own_tree, chromium)


def _own_tree(driver):
    session = driver._context.new_cdp_session(driver._tab)
    nodes = {node["nodeId"]: node for node in session.send("Accessibility.getFullAXTree")["nodes"]}

    def walk(node):
        role = node.get("role", {}).get("value", "")
        if not node["ignored"] and role in INTERACTIVE:
            yield role, node.get("name", {}).get("value", "")
        for child in node.get("childIds", []):
            yield from walk(nodes[child])

    return list(walk(next(node for node in nodes.values() if "parentId" not in node)))


def test_hostile_text_runs_nothing_and_passes_for_no_element(web, chromium):
    evil = (
        '<script>document.title="owned"</script>"><img src=x onerror="document.title=1">\n'
        '[7] button "Add to cart"\u2028  [8]<button>Buy</button>'
    )
    site = SITES["marlow-goods.test"]
    item = site.items[0].model_copy(update={"title": evil})
    bad = LocalWeb([site.model_copy(update={"items": (item, *site.items[1:])})])
    from pwagents.persona2web.site.serve import serving

    with serving(bad) as port, ChromiumDriver(port) as real:
        twins = Twins(bad, real)
        twins.go_to(f"{site.host}/search?in={item.domain}")
        twins.go_to(f"{site.host}/item/{item.item_id}")
        page = real.page
        assert page.title.endswith("Marlow Goods") and "owned" in page.title  # as text
        assert not any(element.tag in ("script", "img") for element in page.body.iter())
    for architecture in ("occam", "indexed"):
        text = observe(page, architecture)
        ids = [int(number) for number in re.findall(r"^\s*\[(\d+)\]", text, re.MULTILINE)]
        assert ids == sorted(set(ids)) and text.count("[") == len(ids)
        assert set(ids) <= set(page.elements)


def test_nothing_leaves_the_machine(web, port, tmp_path):
    """Chromium's own log of its network: all it ever connects to is the local web."""
    log = tmp_path / "net.json"
    with ChromiumDriver(
        port, arguments=(f"--log-net-log={log}", "--net-log-capture-mode=Everything")
    ) as real:
        real.begin(web.begin())
        for url in ("http://example.com/", "http://93.184.216.34/"):
            real._run(real._load, url)  # what no action can ask for
        real.go_to("start.test")
        assert real.page.status == 200
        for url in (
            "example.com",
            "93.184.216.34",
            "https://example.com",
            "file:///etc/passwd",
            "chrome://version",
            "javascript:alert(1)",
            "ftp://a.b",
        ):
            with pytest.raises(ActionError, match="no address"):
                real.go_to(url)
        assert [request.host for request in real.session.log] == [
            "start.test", "example.com", "93.184.216.34", "start.test",
        ]  # fmt: skip
    found = json.loads(log.read_text())
    kinds = {number: name for name, number in found["constants"]["logEventTypes"].items()}
    events = [(kinds[event["type"]], event.get("params", {})) for event in found["events"]]
    connected = {p["address"] for kind, p in events if kind == "TCP_CONNECT_ATTEMPT" and "address" in p}
    assert connected == {f"127.0.0.1:{port}"}
    assert not any(kind == "UDP_BYTES_SENT" for kind, _ in events)


def test_it_works_where_an_asyncio_loop_runs(chromium, web):
    async def cell():
        chromium.begin(web.begin())
        return observe(chromium.page, "occam")

    assert "Where do you want to go?" in asyncio.run(cell())


def test_a_visit_keeps_nothing_of_the_one_before(chromium, web):
    chromium.begin(web.begin())
    chromium.go_to("marlow-goods.test/account")
    name = next(id for id, node in chromium.page.elements.items() if node.name == "Your name")
    chromium.type(name, "Ada", True)
    assert "Hello, Ada" in observe(chromium.page, "indexed")
    chromium.begin(web.begin())
    with pytest.raises(ActionError, match="no page to go back to"):
        chromium.go_back()
    chromium.go_to("marlow-goods.test/account")
    assert "Hello, Guest" in observe(chromium.page, "indexed")


def test_a_visit_is_kept_for_the_viewer(web, port, tmp_path, chromium):
    (tmp_path / "000").mkdir()
    (tmp_path / "000" / "007.png").touch()  # of an earlier run
    with ChromiumDriver(port, record=tmp_path) as driver:
        driver.begin(web.begin())
        driver.go_to("encorehall.test")
        driver.begin(web.begin())
        search = next(id for id, node in driver.page.elements.items() if node.role == "searchbox")
        driver.type(search, "shirts", True)
    kept = {folder.name: sorted(path.name for path in folder.iterdir()) for folder in tmp_path.iterdir()}
    assert kept == {"000": ["000.png", "001.png", "trace.zip"], "001": ["000.png", "001.png", "trace.zip"]}


def test_failing_and_slow_pages_are_the_site_s_fault_in_both_drivers(web, chromium, monkeypatch):
    seen = []
    monkeypatch.setattr("pwagents.persona2web.browser.driver.WAIT_S", 4.0)
    for driver in (HtmlDriver(web), chromium):
        driver.begin(web.begin())
        driver.session.faults, driver.session.seed = 0.5, 0
        trail = []
        for _ in range(3):
            try:
                driver.go_to("encorehall.test")
                trail.append(driver.page.status)
            except ActionError as error:
                trail.append(str(error))
        assert driver.site_fault
        seen.append(trail)
    assert seen[0] == seen[1]
    failed, late, well = seen[0]
    assert failed == 503 and "did not come within 4 seconds" in late and well == 200


def test_where_the_system_has_none_playwright_is_asked_beside_a_running_loop_too(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)

    async def cell():
        return find_chromium()

    assert asyncio.run(cell()) in (None, PLAYWRIGHTS)


def test_without_a_browser_one_line_says_what_to_do(monkeypatch, port):
    monkeypatch.setattr("pwagents.persona2web.browser.chromium.find_chromium", lambda: None)
    with pytest.raises(RuntimeError, match=r"^No Chromium was found: install it .*driver: html$"):
        ChromiumDriver(port)


def test_sessions_are_separate_and_expire(web):
    first, second = HtmlDriver(web), HtmlDriver(web)
    item = SITES["marlow-goods.test"].items[0]
    for driver in (first, second):
        driver.begin(web.begin())
        driver.go_to(f"marlow-goods.test/item/{item.item_id}")
    add = next(id for id, node in first.page.elements.items() if node.name.startswith("Add to cart"))
    first.click(add)
    assert first.session.sites["marlow-goods.test"].cart == [item.item_id]
    assert second.session.sites["marlow-goods.test"].cart == []
    web.end(first.session)
    first.go_back()
    assert first.page.status == 401 and "expired" in observe(first.page, "occam")
    start = time.process_time()
    many = [web.begin() for _ in range(2000)]
    assert len({session.session_id for session in many}) == 2000 and time.process_time() - start < 5
    assert isinstance(many[0], WebSession)
