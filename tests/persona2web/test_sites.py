"""What the local web's sites do: pages, filters, state, faults, and pages that say what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.site import web as sites
from pwagents.persona2web.site.pages import PAGE_SIZE, slug
from pwagents.persona2web.site.web import LocalWeb, succeeded
from pwagents.persona2web.world.domains import domains, item_fits, make_sites
from pwagents.persona2web.world.queries import query
from pwagents.persona2web.world.types import Goal, value_text

SITES = make_sites(0)
SHOP = SITES["marlow-goods.test"]
WEB = LocalWeb(SITES.values())
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
CLOTHES = [item for item in SHOP.items if item.domain == "clothing"]


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


def buying(**wanted):
    return Goal(domain="clothing", host=SHOP.host, operation="cart", stated=wanted, masked={})


@pytest.mark.parametrize("host", SITES)
def test_filters_show_what_fits_and_nothing_else(web, session, host):
    site = SITES[host]
    for name in site.domains:
        domain = domains()[name]
        for facet in domain.facets:
            for value in facet.values:
                params = {"in": slug(name), slug(site.labels[facet.name]): value_text(value)}
                assert web.handle(session.session_id, "GET", host, "/search", params).status == 200
                request = session.log[-1]
                assert request.applied == {facet.name: value} and request.domain == name
                fits = [i.item_id for i in site.items if i.domain == name and item_fits(i, request.applied)]
                assert list(request.shown) == fits[:PAGE_SIZE]


def test_pages_of_results_hold_every_item_once(visit, session):
    shown = []
    for page in range(1, 1 + -(-len(CLOTHES) // PAGE_SIZE)):
        visit("/search", in_="clothing", page=str(page))
        shown += session.log[-1].shown
    assert sorted(shown) == sorted(item.item_id for item in CLOTHES)
    assert visit("/search", in_="clothing", page=str(page + 1)).status == 404


def test_words_find_titles_and_values_and_the_order_can_be_chosen(visit, session):
    item = CLOTHES[3]
    visit("/search", in_="clothing", q=item.title)
    assert session.log[-1].shown[0] == item.item_id
    visit("/search", q="zzzz")
    assert session.log[-1].shown == ()
    visit("/search", in_="clothing", sort="price")
    prices = {i.item_id: i.values["price"] for i in CLOTHES}
    assert [prices[i] for i in session.log[-1].shown] == sorted(prices.values())[:PAGE_SIZE]


def test_a_cart_succeeds_with_what_fits_alone_and_unpaid(visit, session):
    right, wrong = CLOTHES[0], next(i for i in CLOTHES if i.values["size"] != CLOTHES[0].values["size"])
    goal = buying(size=right.values["size"])
    assert not succeeded(session, goal, SHOP)
    assert visit("/cart", "POST", item=right.item_id).location == "/cart"
    log = session.log[-1]
    assert (log.operation, log.item_id, log.domain) == ("cart", right.item_id, "clothing")
    assert succeeded(session, goal, SHOP)
    visit("/cart", "POST", item=wrong.item_id)
    assert not succeeded(session, goal, SHOP)
    visit("/uncart", "POST", item=wrong.item_id)
    assert succeeded(session, goal, SHOP)
    visit("/pay")
    assert succeeded(session, goal, SHOP)
    visit("/pay", "POST")
    assert session.paid and not succeeded(session, goal, SHOP)


def test_something_left_on_another_site_is_wrong(visit, session):
    other = SITES["basketlane.test"]
    right = CLOTHES[0]
    visit("/cart", "POST", item=right.item_id)
    stray = next(item for item in other.items if item.domain == "clothing")
    visit("/cart", "POST", host=other.host, item=stray.item_id)
    assert not succeeded(session, buying(size=right.values["size"]), SHOP)


def test_more_than_the_task_asks_for_is_wrong(visit, session):
    size = CLOTHES[0].values["size"]
    right = [item.item_id for item in CLOTHES if item.values["size"] == size]
    goals = {name: buying(size=size).model_copy(update={"operation": name}) for name in ("cart", "search")}
    visit("/search", in_="clothing", size=size)
    assert succeeded(session, goals["search"], SHOP)
    visit("/cart", "POST", item=right[0])
    assert succeeded(session, goals["cart"], SHOP) and not succeeded(session, goals["search"], SHOP)
    visit("/cart", "POST", item=right[1])
    assert not succeeded(session, goals["cart"], SHOP)  # both fit, one was asked for
    for item in right[:2]:
        visit("/uncart", "POST", item=item)
    assert succeeded(session, goals["search"], SHOP)


def test_a_booking_is_one_draft_with_nothing_beside_it(web, session):
    site = SITES["wayfarely.test"]
    items = [item.item_id for item in site.items if item.domain == "flights"]
    goal = Goal(domain="flights", host=site.host, operation="booking", stated={}, masked={})
    done = []
    for item in items[:2]:
        web.handle(session.session_id, "POST", site.host, "/bookings", {"item": item})
        done.append(succeeded(session, goal, site))
    assert done == [True, False]


def test_a_comparison_is_of_two_that_fit(visit, session):
    size = CLOTHES[0].values["size"]
    goal = buying(size=size).model_copy(update={"operation": "compare"})
    right = [item.item_id for item in CLOTHES if item.values["size"] == size][:3]
    wrong = next(item.item_id for item in CLOTHES if item.values["size"] != size)
    done = []
    for path, item in [("/compare", i) for i in right] + [("/uncompare", right[2]), ("/compare", wrong)]:
        visit(path, "POST", item=item)
        done.append(succeeded(session, goal, SHOP))
    assert done == [False, True, False, True, False]
    assert "compare two that fit" in query(goal, 2)


def test_a_search_succeeds_by_its_latest_page(visit, session):
    goal = buying(size="small").model_copy(update={"operation": "search"})
    visit("/search", in_="clothing", size="small")
    assert succeeded(session, goal, SHOP)
    visit("/search", in_="clothing")
    assert not succeeded(session, goal, SHOP)


def test_a_look_up_is_the_fact_of_a_fitting_item_that_was_opened(web, session):
    site = SITES["skygauge.test"]
    items = [item for item in site.items if item.domain == "weather"]
    right = items[0]
    wrong = next(i for i in items if i.values["city"] != right.values["city"] and i.fact != right.fact)
    wanted = {"city": right.values["city"]}
    goal = Goal(domain="weather", host=site.host, operation="lookup", stated=wanted, masked={})
    said = f"It is {right.fact} degrees."
    assert not succeeded(session, goal, site, said)  # guessed: its page was not opened
    for item in (right, wrong):
        web.handle(session.session_id, "GET", site.host, f"/item/{item.item_id}", {})
    assert succeeded(session, goal, site, said)
    assert not succeeded(session, goal, site, f"{right.fact} or {wrong.fact}")
    assert not succeeded(session, goal, site, "")
    assert not succeeded(session, goal, site, f"1{right.fact}")


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


def test_an_expired_session_is_told_so(web, session, visit):
    web.end(session)
    reply = visit("/cart", "POST", item=CLOTHES[0].item_id)
    assert reply.status == 401 and "expired" in reply.body and "Begin again" in reply.body
    assert session.sites == {}


def test_a_visitors_log_ends_somewhere(web, session, visit, monkeypatch):
    monkeypatch.setattr(sites, "MAX_REQUESTS", 3)
    assert [visit("/").status for _ in range(5)] == [200, 200, 200, 429, 429] and len(session.log) == 3


def test_the_clock_is_the_session_s(web):
    page = web.handle(web.begin(now=1_760_000_000_000).session_id, "GET", SHOP.host, "/", {})
    assert "Thu 9 Oct 2025, 08:53" in page.body


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
