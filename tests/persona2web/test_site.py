"""The local web: pages, filters, state, faults, sessions by cookie and by host name, malformed requests."""

import asyncio
import socket
import subprocess
import sys

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
def test_filters_show_what_fits_and_nothing_else(web, session, host):
    site = SITES[host]
    for name in site.domains:
        for facet in domains()[name].facets:
            for value in facet.values:
                params = {"in": slug(name), slug(site.labels[facet.name]): value_text(value)}
                assert web.handle(session.session_id, "GET", host, "/search", params).status == 200
                request = session.log[-1]
                assert request.applied == {facet.name: value} and request.domain == name
                fits = [i.item_id for i in site.items if i.domain == name and item_fits(i, request.applied)]
                assert list(request.shown) == fits[:PAGE_SIZE]


def test_results_hold_every_item_once_words_find_and_the_order_can_be_chosen(visit, session):
    shown = []
    for page in range(1, 1 + -(-len(CLOTHES) // PAGE_SIZE)):
        visit("/search", in_="clothing", page=str(page))
        shown += session.log[-1].shown
    assert sorted(shown) == sorted(item.item_id for item in CLOTHES)
    assert visit("/search", in_="clothing", page=str(page + 1)).status == 404
    visit("/search", in_="clothing", q=CLOTHES[3].title)
    assert session.log[-1].shown[0] == CLOTHES[3].item_id
    visit("/search", q="zzzz")
    assert session.log[-1].shown == ()
    visit("/search", in_="clothing", sort="price")
    prices = {i.item_id: i.values["price"] for i in CLOTHES}
    assert [prices[i] for i in session.log[-1].shown] == sorted(prices.values())[:PAGE_SIZE]


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


def test_other_operations_succeed_by_what_is_left_at_the_end(web, visit, session):
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
    site, other = SITES["wayfarely.test"], web.begin()
    flights = [item.item_id for item in site.items if item.domain == "flights"]
    for item, right in zip(flights[:2], (True, False), strict=True):
        web.handle(other.session_id, "POST", site.host, "/bookings", {"item": item})
        assert succeeded(other, goal_of("booking", site, "flights"), site) is right


def test_a_look_up_is_the_fact_of_a_fitting_item_that_was_opened(web, session):
    site = SITES["skygauge.test"]
    items = [item for item in site.items if item.domain == "weather"]
    right = items[0]
    wrong = next(i for i in items if i.values["city"] != right.values["city"] and i.fact != right.fact)
    goal = goal_of("lookup", site, "weather", city=right.values["city"])
    said = f"It is {right.fact} degrees."
    assert not succeeded(session, goal, site, said)  # guessed: its page was not opened
    for item in (right, wrong):
        web.handle(session.session_id, "GET", site.host, f"/item/{item.item_id}", {})
    answers = [said, f"{right.fact} or {wrong.fact}", "", f"1{right.fact}"]
    assert [succeeded(session, goal, site, each) for each in answers] == [True, False, False, False]


@pytest.mark.parametrize(
    ("method", "host", "path", "params", "status"),
    [
        ("GET", "nowhere.test", "/", {}, 404),
        ("GET", "x" * 5000, "/", {}, 404),
        ("GET", SHOP.host, "/nothing", {}, 404),
        ("GET", SHOP.host, "/item/nothing", {}, 404),
        ("GET", SHOP.host, "/item/" + SITES["basketlane.test"].items[0].item_id, {}, 404),
        ("GET", SHOP.host, "/item/../../etc/passwd", {}, 404),
        ("GET", SHOP.host, "/bookings", {}, 404),  # nothing is booked in a shop
        ("GET", SHOP.host, "/pay", {}, 404),
        ("POST", SHOP.host, "/pay", {}, 404),
        ("POST", SHOP.host, "/cart", {}, 404),
        ("POST", SHOP.host, "/uncart", {"item": CLOTHES[0].item_id}, 404),
        ("POST", SHOP.host, "/search", {}, 405),
        ("DELETE", SHOP.host, "/cart", {}, 405),
        ("POST", "start.test", "/", {}, 405),
        ("GET", "start.test", "/item/x", {}, 404),
        ("GET", SHOP.host, "/search", {"in": "weather"}, 400),
        ("GET", SHOP.host, "/search", {"in": "clothing", "size": "giant"}, 400),
        ("GET", SHOP.host, "/search", {"in": "clothing", "sort": "size"}, 400),
        ("GET", SHOP.host, "/search", {"page": "0"}, 400),
        ("GET", SHOP.host, "/search", {"page": "²"}, 400),
        ("GET", SHOP.host, "/search", {"q": "x" * 201}, 400),
        ("GET", SHOP.host, "/choose", {"in": "clothing", "step": "9"}, 400),
        ("GET", SHOP.host, "/choose", {}, 400),
    ],
)
def test_what_is_wrong_gets_a_page_that_says_so(web, session, method, host, path, params, status):
    reply = web.handle(session.session_id, method, host, path, params)
    assert reply.status == status
    assert f"{status}</p>" in reply.body and "Traceback" not in reply.body
    assert session.log[-1].status == status and not session.log[-1].operation


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
        replies = [
            web.handle(session.session_id, "POST", SHOP.host, "/cart", {"item": CLOTHES[0].item_id})
            for _ in range(200)
        ]
        assert web.handle(session.session_id, "GET", "start.test", "/", {}).status == 200
        return [(reply.status, reply.delay_s) for reply in replies], session

    (first, session), (again, _), (other, _) = play(1), play(1), play(2)
    assert first == again != other
    failed = [status for status, _ in first if status == 503]
    assert 20 < len(failed) < 60 and any(delay for _, delay in first)
    assert sum(request.operation == "cart" for request in session.log) == 200 - len(failed)


# --- over HTTP ---


@pytest.fixture
def ask(port):
    def ask(path="/", host="marlow-goods.test", method="GET", **options):
        headers = {"Host": host} | options.pop("headers", {})
        address = f"http://127.0.0.1:{port}{path}"
        return requests.request(
            method, address, headers=headers, allow_redirects=False, timeout=20, **options
        )

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
    first, item = ask(), web.sites["marlow-goods.test"].items[0]
    cookies = {"visit": first.cookies["visit"]}
    done = ask("/cart", method="POST", data={"item": item.item_id}, cookies=cookies)
    assert (done.status_code, done.headers["location"]) == (303, "/cart")
    assert item.title in ask("/cart", cookies=cookies).text and item.title not in ask("/cart").text
    expired = ask(cookies={"visit": "unknown"})
    assert expired.status_code == 401 and 'visit=""' in expired.headers["set-cookie"]
    session = web.begin()
    ending = f"{session.session_id}.localhost:8009"
    begun = ask(host=ending)
    assert begun.headers["location"] == f"http://start.test.{ending}/" and not begun.cookies
    portal = ask(host=f"start.test.{ending}", cookies=cookies)  # the name counts, not an older cookie
    assert f'href="http://encorehall.test.{ending}/"' in portal.text
    for host in ("marlow-goods.test", "encorehall.test"):
        assert ask(host=f"{host}.{ending}").status_code == 200
    assert [r.host for r in session.log] == ["start.test", "marlow-goods.test", "encorehall.test"]
    assert ask(host=f"start.test.{'0' * 32}.localhost:8009").status_code == 401


def test_a_slow_page_is_given_up_with_whoever_asked_for_it(web):
    visit = web.begin(faults=1.0, seed=1)
    assert web.handle(visit.session_id, "GET", "marlow-goods.test", "/", {}).delay_s > 20
    told = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])
    headers = [(b"host", b"marlow-goods.test"), (b"x-visit", visit.session_id.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    sent = []

    async def receive():
        return next(told)

    async def send(message):
        sent.append(message)

    asyncio.run(asyncio.wait_for(make_app(web)(scope, receive, send), 20))
    assert sent[0]["status"] == 503


def test_malformed_requests_get_a_page(ask, port):
    assert ask(method="PATCH").status_code == 405
    assert ask(method="HEAD").status_code == 200
    assert ask("/cart", method="POST", data=b"\xff\xfe=%zz&&&=;" * 9).status_code == 404
    assert ask("/cart", method="POST", data="x" * (MAX_BODY + 1)).status_code == 413
    assert ask("/item/%ff%00%0d").status_code == 404
    assert ask("/search?page=%ff&page=-1").status_code == 400
    for junk in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
    ):
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
