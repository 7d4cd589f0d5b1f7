"""The local web: pages, filters, state, faults, sessions by cookie and by host name, malformed requests."""

import asyncio
import socket
import subprocess
import sys
from functools import partial
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.site import web as module
from pwagents.persona2web.site.pages import PAGE_SIZE, slug
from pwagents.persona2web.site.serve import MAX_BODY, make_app, serving, split_host
from pwagents.persona2web.site.web import LocalWeb, succeeded
from pwagents.persona2web.world.domains import domains, item_fits, make_sites
from pwagents.persona2web.world.types import Goal, value_text

SITES = make_sites(0)
SHOP = SITES["marlow-goods.test"]
WEB = LocalWeb(SITES.values())
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
CLOTHES = [item for item in SHOP.items if item.domain == "clothing"]
SIZE = CLOTHES[0].values["size"]
RIGHT = [item.item_id for item in CLOTHES if item.values["size"] == SIZE]
WRONG = next(item.item_id for item in CLOTHES if item.values["size"] != SIZE)


@pytest.fixture
def session(web):
    return web.begin()


@pytest.fixture
def visit(web, session):
    """``visit("/cart", item="x")`` opens a page of the shop; with ``method="POST"`` it sends a form."""

    def visit(path, method="GET", host=SHOP.host, **params):
        params = {name.rstrip("_"): value for name, value in params.items()}
        return web.handle(session.session_id, method, host, path, params)

    return visit


def goal_of(operation="cart", site=SHOP, domain="clothing", **wanted):
    return Goal(domain=domain, host=site.host, operation=operation, stated=wanted, masked={})


@pytest.mark.parametrize("host", SITES)
def test_filters_show_what_fits_and_nothing_else(visit, session, host):
    site = SITES[host]
    facets = [(name, facet) for name in site.domains for facet in domains()[name].facets]
    for name, facet, value in [(*each, value) for each in facets for value in each[1].values]:
        params = {"in_": slug(name), slug(site.labels[facet.name]): value_text(value)}
        assert visit("/search", host=host, **params).status == 200
        request = session.log[-1]
        assert request.applied == {facet.name: value} and request.domain == name
        fits = [i.item_id for i in site.items if i.domain == name and item_fits(i, request.applied)]
        assert list(request.shown) == fits[:PAGE_SIZE]


def test_results_hold_every_item_once_words_find_and_the_order_can_be_chosen(visit, session):
    def shown(**params):
        assert visit("/search", in_="clothing", **params).status == 200
        return list(session.log[-1].shown)

    pages = -(-len(CLOTHES) // PAGE_SIZE)
    listed = [item for page in range(1, 1 + pages) for item in shown(page=str(page))]
    assert sorted(listed) == sorted(item.item_id for item in CLOTHES)
    assert visit("/search", in_="clothing", page=str(pages + 1)).status == 404
    assert shown(q=CLOTHES[3].title)[0] == CLOTHES[3].item_id and shown(q="zzzz") == []
    prices = {item.item_id: item.values["price"] for item in CLOTHES}
    assert [prices[i] for i in shown(sort="price")] == sorted(prices.values())[:PAGE_SIZE]


def test_a_cart_succeeds_with_what_fits_alone_and_unpaid(visit, session):
    stray = next(item for item in SITES["basketlane.test"].items if item.domain == "clothing")
    done = [succeeded(session, goal_of(size=SIZE), SHOP)]
    for path, item, host in [
        ("/cart", RIGHT[0], SHOP.host),
        ("/cart", WRONG, SHOP.host),
        ("/uncart", WRONG, SHOP.host),
        ("/cart", RIGHT[1], SHOP.host),  # both fit, one was asked for
        ("/uncart", RIGHT[1], SHOP.host),
        ("/cart", stray.item_id, stray.host),  # left on another site
        ("/uncart", stray.item_id, stray.host),
    ]:
        assert visit(path, "POST", host=host, item=item).location == "/cart"
        done.append(succeeded(session, goal_of(size=SIZE), SHOP))
    assert done == [False, True, False, True, False, True, False, True]
    assert next(r.operation for r in session.log) == "cart" and session.log[0].domain == "clothing"
    assert visit("/pay").status == 200 and succeeded(session, goal_of(size=SIZE), SHOP)
    visit("/pay", "POST")
    assert session.paid and not succeeded(session, goal_of(size=SIZE), SHOP)


def test_other_operations_succeed_by_what_is_left_at_the_end(visit, session):
    search, compare = goal_of("search", size=SIZE), goal_of("compare", size=SIZE)
    visit("/search", in_="clothing", size=SIZE)
    assert succeeded(session, search, SHOP)
    visit("/cart", "POST", item=RIGHT[0])
    assert not succeeded(session, search, SHOP)  # more than was asked for
    visit("/uncart", "POST", item=RIGHT[0])
    visit("/search", in_="clothing")
    assert not succeeded(session, search, SHOP)
    steps, done = [("/compare", i) for i in RIGHT[:3]], []
    for path, item in [*steps, ("/uncompare", RIGHT[2]), ("/compare", WRONG)]:
        visit(path, "POST", item=item)
        done.append(succeeded(session, compare, SHOP))
    assert done == [False, True, False, True, False]
    site = SITES["wayfarely.test"]
    flights = [item.item_id for item in site.items if item.domain == "flights"]
    for item, right in zip(flights[:2], (True, False), strict=True):
        visit("/bookings", "POST", host=site.host, item=item)
        assert succeeded(session, goal_of("booking", site, "flights"), site) is right


def test_a_look_up_is_the_fact_of_a_fitting_item_that_was_opened(visit, session):
    site = SITES["skygauge.test"]
    items = [item for item in site.items if item.domain == "weather"]
    right = items[0]
    wrong = next(i for i in items if i.values["city"] != right.values["city"] and i.fact != right.fact)
    goal = goal_of("lookup", site, "weather", city=right.values["city"])
    said = f"It is {right.fact} degrees."
    assert not succeeded(session, goal, site, said)  # guessed: its page was not opened
    for item in (right, wrong):
        visit(f"/item/{item.item_id}", host=site.host)
    answers = [said, f"{right.fact} or {wrong.fact}", "", f"1{right.fact}"]
    assert [succeeded(session, goal, site, each) for each in answers] == [True, False, False, False]


WRONG_REQUESTS = {  # nothing is booked in a shop
    404: "GET nowhere.test/, GET start.test/item/x, GET /nothing, GET /item/nothing, GET /bookings, "
    f"GET /item/{SITES['basketlane.test'].items[0].item_id}, GET /item/../../etc/passwd, GET {'x' * 5000}/, "
    f"GET /pay, POST /pay, POST /cart, POST /uncart?item={CLOTHES[0].item_id}",
    405: "POST /search, DELETE /cart, POST start.test/",
    400: "GET /search?in=weather, GET /search?in=clothing&size=giant, GET /search?in=clothing&sort=size, "
    f"GET /search?page=0, GET /search?page=², GET /search?q={'x' * 201}, GET /choose, "
    "GET /choose?in=clothing&step=9",
}


@pytest.mark.parametrize("status", WRONG_REQUESTS)
def test_what_is_wrong_gets_a_page_that_says_so(visit, session, status):
    for request in WRONG_REQUESTS[status].split(", "):
        method, _, url = request.partition(" ")
        parts = urlsplit(f"//{url}" if not url.startswith("/") else url)
        reply = visit(parts.path, method, parts.netloc or SHOP.host, **dict(parse_qsl(parts.query)))
        assert reply.status == session.log[-1].status == status, request
        assert f"{status}</p>" in reply.body and "Traceback" not in reply.body
        assert not session.log[-1].operation


@given(
    st.sampled_from(["GET", "POST", "HEAD", ""]),
    st.sampled_from([*SITES, "start.test", ""]),
    TEXTS | st.sampled_from(["search", "choose", "cart", "item/x", "account", "pay"]),
    st.dictionaries(st.sampled_from(["in", "q", "sort", "page", "step", "item", "name", "size"]), TEXTS),
)  # fmt: skip
def test_no_request_brings_the_sites_down(method, host, path, params):
    session = WEB.begin()
    reply = WEB.handle(session.session_id, method, host, f"/{path}", params)
    assert reply.status in (200, 303, 400, 404, 405)
    reply.body.encode()
    WEB.end(session)


def test_a_session_has_its_clock_and_ends(web, session, visit, monkeypatch):
    page = web.handle(web.begin(now=1_760_000_000_000).session_id, "GET", SHOP.host, "/", {})
    assert "Thu 9 Oct 2025, 08:53" in page.body
    monkeypatch.setattr(module, "MAX_REQUESTS", 3)
    assert [visit("/").status for _ in range(5)] == [200, 200, 200, 429, 429] and len(session.log) == 3
    web.end(session)
    reply = visit("/cart", "POST", item=CLOTHES[0].item_id)
    assert reply.status == 401 and "expired" in reply.body and "Begin again" in reply.body


def test_faults_are_by_seed_leave_no_trace_and_spare_the_portal(web):
    def play(seed):
        session = web.begin(faults=0.2, seed=seed)
        ask = partial(web.handle, session.session_id)
        replies = [ask("POST", SHOP.host, "/cart", {"item": CLOTHES[0].item_id}) for _ in range(200)]
        assert ask("GET", "start.test", "/", {}).status == 200
        return [(reply.status, reply.delay_s) for reply in replies], session

    (first, session), (again, _), (other, _) = play(1), play(1), play(2)
    assert first == again != other
    failed = [status for status, _ in first if status == 503]
    assert 20 < len(failed) < 60 and any(delay for _, delay in first)
    assert sum(request.operation == "cart" for request in session.log) == 200 - len(failed)


# --- over HTTP ---


@pytest.fixture
def ask(port):
    def ask(path="/", host=SHOP.host, method="GET", **options):
        options |= {"headers": {"Host": host}, "allow_redirects": False, "timeout": 20}
        return requests.request(method, f"http://127.0.0.1:{port}{path}", **options)

    return ask


def test_hosts_are_told_apart_and_links_keep_a_person_s_ending(ask):
    assert "Encore Hall" in ask(host="encorehall.test").text
    assert 'href="http://encorehall.test.localhost:8009/"' in ask(host="start.test.localhost:8009").text
    assert ask(host="localhost:8009").headers["location"] == "http://start.test.localhost:8009/"
    assert split_host("127.0.0.1:80") == ("127.0.0.1", ":80", None)
    headers = ask("/nothing").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store" and headers["content-type"].startswith("text/html")
    assert ask("/style.css").headers["content-type"].startswith("text/css")


def test_a_session_is_a_cookie_or_stands_in_the_host_name_on_all_sites(ask, web):
    item, cookies = CLOTHES[0], {"visit": ask().cookies["visit"]}
    done = ask("/cart", method="POST", data={"item": item.item_id}, cookies=cookies)
    assert (done.status_code, done.headers["location"]) == (303, "/cart")
    assert item.title in ask("/cart", cookies=cookies).text and item.title not in ask("/cart").text
    expired = ask(cookies={"visit": "unknown"})
    assert expired.status_code == 401 and 'visit=""' in expired.headers["set-cookie"]
    ending = f"{web.begin().session_id}.localhost:8009"  # the bench's tests have more
    assert ask(host=ending).headers["location"] == f"http://start.test.{ending}/"


def test_a_slow_page_is_given_up_with_whoever_asked_for_it(web):
    visit, sent = web.begin(faults=1.0, seed=1), []
    assert web.handle(visit.session_id, "GET", SHOP.host, "/", {}).delay_s > 20
    told = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])
    headers = [(b"host", SHOP.host.encode()), (b"x-visit", visit.session_id.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}

    async def receive():
        return next(told)

    async def send(message):
        sent.append(message)

    asyncio.run(asyncio.wait_for(make_app(web)(scope, receive, send), 20))
    assert sent[0]["status"] == 503


def test_malformed_requests_get_a_page(ask, port):
    forms = {b"\xff\xfe=%zz&&&=;" * 9: 404, b"x" * (MAX_BODY + 1): 413}
    assert {data: ask("/cart", method="POST", data=data).status_code for data in forms} == forms
    paths = {"/item/%ff%00%0d": 404, "/search?page=%ff&page=-1": 400}
    assert {path: ask(path).status_code for path in paths} == paths
    assert [ask(method=method).status_code for method in ("PATCH", "HEAD")] == [405, 200]
    begun = b"GET / HTTP/1.1\r\n"
    for junk in (begun + b"\r\n", b"\x16\x03\x01 hello\r\n\r\n", begun + b"Host: \xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
            line.sendall(junk)
            answer = line.recv(4096)
            assert answer.startswith(b"HTTP/1.1 4") and b"Traceback" not in answer


def test_a_busy_port_is_one_line_and_only_this_machine_is_served(port, web):
    with pytest.raises(OSError, match=f"^Port {port} cannot be used"), serving(web, port):
        pass
    command = [sys.executable, "-m", "pwagents.persona2web.site.serve", "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and f"Port {port}" in done.stderr
    assert socket.socket().connect_ex((_own_address(), port)) != 0


def _own_address():
    """An address of this machine that is not its loopback; where it has none, one that nobody has."""
    found = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET)]
    return next((address for address in found if not address.startswith("127.")), "127.1.2.3")
