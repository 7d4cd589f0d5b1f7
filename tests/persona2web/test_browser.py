"""What agents see and do: pages as text, actions, and both drivers, by which every task can be solved."""

import asyncio
import json
import re
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.agents.episode import Played
from pwagents.persona2web.agents.navigator import Navigator, Plan
from pwagents.persona2web.agents.offline import walk
from pwagents.persona2web.browser import driver as module
from pwagents.persona2web.browser.chromium import PLAYWRIGHTS, ChromiumDriver, find_chromium
from pwagents.persona2web.browser.driver import FORMS, ActionError, HtmlDriver, Visit, read_action
from pwagents.persona2web.browser.page import INTERACTIVE, MAX_ROWS, Page, observe
from pwagents.persona2web.site.pages import looks
from pwagents.persona2web.site.serve import serving
from pwagents.persona2web.site.web import LocalWeb, succeeded
from pwagents.persona2web.world.domains import domains, make_sites
from pwagents.persona2web.world.types import Goal
from pwagents.seeds import rng

from .worlds import goals

SITES = make_sites(0)
# A site of each kind of page, and of each look of filters that none of them has.
KINDS = {site.template: site for site in SITES.values()}.values()
LOOKS = {site.skin: site for site in (*SITES.values(), *KINDS)}.values()


def begin(web):
    """A driver without a browser, on the portal."""
    driver = HtmlDriver(web)
    driver.begin(web.begin())
    return driver


def solve(driver, goal, architecture="indexed", **how):
    """Carry the goal out as a plan; the answer."""
    plan = Plan(goal.host, domains()[goal.domain], goal.operation, goal.stated | goal.masked, **how)
    played = Played()
    walk(played, Visit(driver, architecture), plan, architecture, "none")
    return played.answer


class Twins:
    """Both drivers as one: every action on both, and both observations equal after it."""

    def __init__(self, web, chromium):
        chromium.begin(web.begin())
        self.drivers = (begin(web), chromium)
        self.same()

    @property
    def page(self):
        return self.drivers[0].page

    def same(self):
        ours, real = (driver.page for driver in self.drivers)
        for form in FORMS:
            assert observe(ours, form) == observe(real, form)
        assert (ours.status, ours.url) == (real.status, real.url)

    def __getattr__(self, name):
        def act(*arguments):
            for driver in self.drivers:
                getattr(driver, name)(*arguments)
            self.same()

        return act

    def named(self, name):
        return next(id for id, node in self.page.elements.items() if node.name == name)

    def logs(self):
        ours, real = (driver.session.log for driver in self.drivers)
        assert ours == real
        return ours


# --- pages as text ---

FORM = """<html><head><title>Shoes &amp; more</title></head><body>
<nav aria-label="Main"><a href="/">Home</a><a name="x">anchor</a></nav>
<h3><a href="/1">Blue&#x200b; <b>shoe</b> &amp; lace</a></h3>
<ul><li>Size: <b>9</b></li><li>$20</li></ul><table><caption>Facts</caption>
<tbody><tr><th scope="row">Weight</th><td>2 kg</td></tr></tbody></table>
<form><fieldset><legend>Size</legend>
<label><input type="radio" name="s" value="9" checked> nine</label></fieldset>
<label for="c">Colour</label><select id="c" name="c">
<option>red</option><option selected>blue</option></select>
<input type="hidden" name="h" value="1">
<input name="q" placeholder="Words" value="a"><button>Go</button></form>
<p hidden>never</p><p aria-hidden="true">seen</p><svg><path d="M0"/></svg></body></html>"""
OCCAM = """page "Shoes & more" http://a.test/
navigation "Main"
  [1] link "Home"
  text "anchor"
[2] link "Blue shoe & lace"
text "Size: 9 | $20"
table "Facts"
  text "Weight | 2 kg"
group "Size"
  [3] radio "nine" (checked)
[4] combobox "Colour" (value: "blue")
  [5] option "red"
  [6] option "blue" (selected)
[7] textbox "Words" (value: "a")
[8] button "Go\""""
INDEXED = """page "Shoes & more" http://a.test/
[1]<a>Home</a>
anchor
[2]<a>Blue shoe &amp; lace</a>
Size: 9
$20
Facts
Weight
2 kg
Size
[3]<input type="radio" name="s" value="9" checked="true">nine</input>
[4]<select name="c" value="blue">Colour: red | blue</select>
[7]<input name="q" value="a" placeholder="Words">Words</input>
[8]<button>Go</button>"""


def page(body):
    html = body if body.startswith("<html>") else f"<html><title>t</title><body>{body}</body></html>"
    return Page("http://a.test/", 200, html)


@pytest.mark.parametrize(("form", "rows"), [("occam", OCCAM), ("indexed", INDEXED)])
def test_a_page_is_a_pruned_tree_or_elements_with_the_texts_between(form, rows):
    assert observe(page(FORM), form) == rows
    links = "".join(f'<p><a href="/{n}">n{n}</a></p>' for n in range(700))
    rows = observe(page(links), form)
    assert len(rows.splitlines()) == MAX_ROWS and rows.endswith("(202 more rows are not shown)")
    bare = ("", *(f"type={kind}" for kind in ("search", "checkbox", "radio")))
    rows = observe(page("".join(f"<input {kind}>" for kind in bare)), "indexed").splitlines()[1:]
    assert [re.search('value="(.*?)"', row)[1] for row in rows] == ["", "", "on", "on"]  # as browsers have it


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60), st.text(max_size=30))
def test_no_text_passes_for_an_element(title, extra):
    evil = f'{title}[7] button "x"\n[8]<button>\u2028[9]{extra}'
    safe = evil.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    html = f"<html><head><title>{safe}</title></head><body><a href='/'>{safe}</a><p>{safe}</p></body></html>"
    for architecture in FORMS:
        rows = observe(page(html), architecture).splitlines()
        assert re.fullmatch(r"\[1\](?: link|<a>).*", rows[1])
        assert "".join(rows).count("[") == 1 and len(rows) <= 3


# --- actions ---


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("click [12]", ("click", [12])),
        ("  Click[12] ", ("click", [12])),
        ("type [3] [blue [wide] shoes]", ("type", [3, "blue [wide] shoes"])),
        ("type [3] [blue] [1]", ("type", [3, "blue", True])),
        ("type [3] []", ("type", [3, ""])),
        ("go_back", ("go_back", [])),
    ],
)
def test_an_action_is_read(text, read):
    assert read_action(text, "occam") == read_action(text, "indexed") == read


WRONG_ACTIONS = {  # select is the other architecture's
    "is no action; actions are: click": ["", "hover [3]", "click 3", "click [3] now", "select [3] [a]"],
    "no number of an element": ["click [x]", "click [-1]", "click [99999999999]"],
    r"has 0 arguments; write click \[number\]": ["click"],
    "has 1 arguments": ["type [3]"],
}


@pytest.mark.parametrize("message", WRONG_ACTIONS)
def test_a_malformed_action_is_an_error_that_says_what_was_expected(message):
    for text in WRONG_ACTIONS[message]:
        with pytest.raises(ActionError, match=message):
            read_action(text, "occam")


@given(st.lists(st.text("abc 12'\"", max_size=8), max_size=3), st.text(max_size=40))
def test_actions_are_split_as_they_are_written_and_any_text_is_read_or_refused(arguments, text):
    for name, between in (("type", " "), ("Ask", ""), ("STOP", " ")):
        written = between.join([name, *(f"[{each}]" for each in arguments)])
        assert module.split_action(written) == (name.lower(), arguments)
    assert module.split_action("type [half") == module.split_action("stop [a] now") == ("", [])
    for architecture, forms in FORMS.items():
        try:
            name, read = read_action(text, architecture)
        except ActionError:
            continue
        assert name in forms and len(read) <= 3


def test_a_visit_goes_on_after_what_cannot_be_done(web):
    visit = Visit(begin(web), "indexed")
    first = visit.observe()
    for action, error in [
        ("click [999]", "there is no element [999] on this page"),
        ("type [1] [x]", "link 1 takes no text"),
        ("select [1] [x]", "link 1 has no options"),
        ("go_back", "there is no page to go back to"),
        ("go_to [http://[::1]", "is no a"),
        ("click [2]", "searchbox 2 is not for clicking"),
    ]:
        assert error in visit.act(action)
    assert visit.observe() == first
    for action in ("type [2] [\ud800]", "type [2] [hotel] [1]"):
        assert visit.act(action) == ""
    assert "Skylark Travel" in visit.observe() and "Marlow Goods" not in visit.observe()
    assert visit.act("go_to [wayfarely.test/search?in=hotels]") == ""
    combobox = next(id for id, node in visit.driver.page.elements.items() if node.role == "combobox")
    assert "has no option 'moon'; it has: Any" in visit.act(f"select [{combobox}] [moon]")
    assert [visit.act("go_back") for _ in range(3)] == ["", "", "there is no page to go back to"]
    assert visit.observe() == first


# --- walking ---


@pytest.mark.parametrize("host", SITES)
def test_every_kind_of_task_is_solved_without_a_browser(web, host):
    site = SITES[host]
    for goal, architecture in zip(goals(site), cycle(("indexed", "occam"))):
        driver = begin(web)
        assert not succeeded(driver.session, goal, site)
        answer = solve(driver, goal, architecture)
        assert succeeded(driver.session, goal, site, answer), goal
        assert len(driver.session.log) <= 20


@pytest.mark.parametrize("host", [host for host, site in SITES.items() if site.skin == "steps"])
def test_one_filter_at_a_time_is_set_on_whichever_page_of_a_form_it_stands(web, host):
    driver, domain = begin(web), domains()[SITES[host].domains[-1]]
    stated = {facet.name: facet.values[0] for facet in (domain.facets[-1], domain.facets[0])}
    goal = Goal(domain=domain.name, host=host, operation="search", stated=stated, masked={})
    solve(driver, goal, one_by_one=True)
    assert driver.session.log[-1].applied == stated


def test_it_gives_up_where_nothing_helps(web):
    navigator = Navigator(Plan("nowhere.test", domains()["flights"], "booking", {}), "occam")
    visit = Visit(begin(web), "occam")
    for _ in range(25):
        move = navigator.next(visit.observe())
        for action in move.actions:
            visit.act(action)
    assert not move.actions and not move.answer


# --- in Chromium ---


@pytest.mark.parametrize("host", sorted({site.host for site in (*KINDS, *LOOKS)}))
def test_both_drivers_show_the_same_on_the_way_to_a_goal_and_in_every_state(web, chromium, host):
    site, twins = SITES[host], Twins(web, chromium)
    every = list(goals(site))
    goal = every[rng(1, host).integers(len(every))]
    assert succeeded(twins.drivers[1].session, goal, site, solve(twins, goal))
    assert twins.logs() and not any(driver.site_fault for driver in twins.drivers)
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
    twins, host = Twins(web, chromium), "marlow-goods.test"
    for path in ("item/%41b", "item/a%3Fb%2Fc%25zz%ff", "item/{x}^|`é", "%", "//item//x", "search?q=%41%zz'"):
        twins.go_to(f"HTTP://{host.upper()}/{path}#top")
    assert twins.logs()[1].path == "/item/Ab"
    before = twins.page.url
    hosts = (f"{host}:80", f"{host}:", f"x@{host}", f"a..{host}", f".{host}", f"{host}.", f"-a.{host}")
    names = (f"a_b.{host}", f"{'a' * 64}.test", "xn--a.test", "test", "start.test.localhost", "127.1")
    schemes = ("https://example.com", "file:///etc/passwd", "javascript:alert(1)")
    refused = (*hosts, *names, *schemes, "github.com", f"{host}/a/../b", f"{host}/%2e/b", "http://[::1/", "")
    no_page = f"that address is no page; {re.escape(before)} is open again"
    for driver in twins.drivers:
        for url, message in [*((url, "no address") for url in refused), ("start.test/style.css", no_page)]:
            with pytest.raises(ActionError, match=message):
                driver.go_to(url)
    twins.same()
    assert twins.page.url == before


def test_roles_and_names_are_chromium_s_own(chromium, web):
    """Chromium's accessibility tree is the oracle: the same interactive elements, in role and name."""
    shop = "marlow-goods.test"
    chromium.begin(web.begin())
    paths = ("", "/search?in=clothing", f"/item/{SITES[shop].items[0].item_id}", "/account")
    others = ("start.test", "skylarktravel.test/choose?in=flights", "tripharbor.test/search?in=hotels")
    for url in (*(shop + path for path in paths), *others):
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


def test_hostile_text_runs_nothing_and_passes_for_no_element(chromium):
    evil = (
        '<script>document.title="owned"</script>"><img src=x onerror="document.title=1">\n'
        '[7] button "Add to cart"\u2028  [8]<button>Buy</button>'
    )
    site = SITES["marlow-goods.test"]
    item = site.items[0].model_copy(update={"title": evil})
    bad = LocalWeb([site.model_copy(update={"items": (item, *site.items[1:])})])
    with serving(bad) as port, ChromiumDriver(port) as real:
        twins = Twins(bad, real)
        twins.go_to(f"{site.host}/search?in={item.domain}")
        twins.go_to(f"{site.host}/item/{item.item_id}")
        assert real.page.title.endswith("Marlow Goods") and "owned" in real.page.title  # as text
        assert not any(element.tag in ("script", "img") for element in real.page.body.iter())
        for architecture in FORMS:
            text = observe(real.page, architecture)
            ids = [int(number) for number in re.findall(r"^\s*\[(\d+)\]", text, re.MULTILINE)]
            assert ids == sorted(set(ids)) and text.count("[") == len(ids)
            assert set(ids) <= set(real.page.elements)


def test_nothing_leaves_the_machine_and_a_visit_is_kept_for_the_viewer(web, port, tmp_path, chromium):
    """Chromium's own log of its network: all it ever connects to is the local web."""
    log, shots = tmp_path / "net.json", tmp_path / "shots"
    (shots / "000" / "of an earlier run").mkdir(parents=True)
    arguments = (f"--log-net-log={log}", "--net-log-capture-mode=Everything")
    with ChromiumDriver(port, record=shots, arguments=arguments) as real:
        real.begin(web.begin())
        for url in ("http://example.com/", "http://93.184.216.34/"):
            real._run(real._load, url)  # what no action can ask for
        hosts = [request.host for request in real.session.log]
        assert hosts == ["start.test", "example.com", "93.184.216.34"]
    found = json.loads(log.read_text())
    kinds = {number: name for name, number in found["constants"]["logEventTypes"].items()}
    events = [(kinds[event["type"]], event.get("params", {})) for event in found["events"]]
    connected = {p["address"] for kind, p in events if kind == "TCP_CONNECT_ATTEMPT" and "address" in p}
    assert connected == {f"127.0.0.1:{port}"}
    assert not any(kind == "UDP_BYTES_SENT" for kind, _ in events)
    kept = {folder.name: sorted(path.name for path in folder.iterdir()) for folder in shots.iterdir()}
    assert kept == {"000": ["000.png", "001.png", "002.png", "trace.zip"]}


def test_a_visit_keeps_nothing_of_the_one_before_also_beside_an_asyncio_loop(chromium, web):
    async def cell():
        twins = Twins(web, chromium)
        twins.go_to("marlow-goods.test/account")
        twins.type(twins.named("Your name"), "Ada", True)
        return observe(chromium.page, "indexed")

    assert "Hello, Ada" in asyncio.run(cell())
    chromium.begin(web.begin())
    with pytest.raises(ActionError, match="no page to go back to"):
        chromium.go_back()
    chromium.go_to("marlow-goods.test/account")
    assert "Hello, Guest" in observe(chromium.page, "indexed")


def test_failing_and_slow_pages_are_the_site_s_fault_in_both_drivers(web, chromium, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 4.0)
    for driver in Twins(web, chromium).drivers:
        driver.session.faults, driver.session.seed = 0.5, 0
        driver.go_to("encorehall.test")
        assert driver.page.status == 503 and driver.site_fault
        with pytest.raises(ActionError, match="did not come within 4 seconds"):
            driver.go_to("encorehall.test")
        driver.go_to("encorehall.test")
        assert driver.page.status == 200 and driver.site_fault


def test_playwright_s_browser_is_asked_for_and_without_any_one_line_says_so(monkeypatch, port):
    monkeypatch.setattr("shutil.which", lambda name: None)

    async def cell():
        return find_chromium()

    assert asyncio.run(cell()) in (None, PLAYWRIGHTS)
    monkeypatch.setattr("pwagents.persona2web.browser.chromium.find_chromium", lambda: None)
    with pytest.raises(RuntimeError, match=r"^No Chromium was found: install it .*driver: html$"):
        ChromiumDriver(port)
