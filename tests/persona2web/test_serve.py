"""The local web over HTTP: hosts, cookies, headers, malformed requests, a busy port."""

import asyncio
import socket
import subprocess
import sys

import pytest
import requests

from pwagents.persona2web.site.serve import MAX_BODY, make_app, serving, split_host


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
    assert "Marlow Goods" in ask().text
    assert "Encore Hall" in ask(host="encorehall.test").text
    portal = ask(host="start.test.localhost:8009").text
    assert 'href="http://encorehall.test.localhost:8009/"' in portal
    assert ask(host="localhost:8009").headers["location"] == "http://start.test.localhost:8009/"
    assert split_host("127.0.0.1:80") == ("127.0.0.1", ":80", None)


def test_a_visitor_is_known_by_a_cookie(ask, web):
    first = ask()
    item = web.sites["marlow-goods.test"].items[0]
    cookies = {"visit": first.cookies["visit"]}
    done = ask("/cart", method="POST", data={"item": item.item_id}, cookies=cookies)
    assert (done.status_code, done.headers["location"]) == (303, "/cart")
    assert item.title in ask("/cart", cookies=cookies).text
    assert item.title not in ask("/cart").text
    expired = ask(cookies={"visit": "unknown"})
    assert expired.status_code == 401 and 'visit=""' in expired.headers["set-cookie"]


def test_pages_may_run_no_script_and_are_not_kept(ask):
    headers = ask("/nothing").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store" and headers["content-type"].startswith("text/html")
    assert ask("/style.css").headers["content-type"].startswith("text/css")


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


def test_a_busy_port_is_one_line(port, web):
    with pytest.raises(OSError, match=f"^Port {port} cannot be used"), serving(web, port):
        pass
    command = [sys.executable, "-m", "pwagents.persona2web.site.serve", "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and f"Port {port}" in done.stderr


def test_only_this_machine_is_served(web):
    with serving(web) as port, socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", port)) == 0
        assert socket.socket().connect_ex((_own_address(), port)) != 0


def _own_address():
    """An address of this machine that is not its loopback; where it has none, one that nobody has."""
    found = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET)]
    return next((address for address in found if not address.startswith("127.")), "127.1.2.3")
