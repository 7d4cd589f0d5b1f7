"""The local web behind a port of this machine: for a browser, driven by an agent or by a person.

    python -m pwagents.persona2web.site.serve --port 8009

Hosts are told apart by the Host header. A person's browser finds ``start.test.localhost:8009`` by itself
(names under ``localhost`` are this machine's), so hosts may carry that ending, and links then keep it. A
session's id may stand before that ending (``start.test.ID.localhost:8009``): whatever browser comes by such a
name is in that session, on all sites, without a cookie or a header. An agent's browser of ours is told to
take every host for this server (:mod:`pwagents.persona2web.browser.chromium`) and names its session in a
header.
"""

import argparse
import asyncio
import re
import sys
from contextlib import AbstractContextManager, suppress
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pwagents import local_server
from pwagents.persona2web.site.pages import Reply
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.types import PORTAL

COOKIE = "visit"
VISIT_HEADER = "x-visit"  # names the session of a driven browser, at every host at once
MAX_BODY = 64 * 1024  # bytes of a form
HEADERS = {  # pages hold no script; were one smuggled in, the browser would not run it
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_HOST = re.compile(r"(?P<host>.*?)(?P<ending>(\.(?P<session>[0-9a-f]{32}))?\.localhost)?")


def split_host(header: str) -> tuple[str, str, str | None]:
    """Return a Host header as the site's host, what links carry behind a host, and the session it names.

    >>> split_host("start.test.localhost:8009")
    ('start.test', '.localhost:8009', None)
    """
    name, _, port = header.partition(":")
    found = _HOST.fullmatch(f".{name}") or _HOST.fullmatch("")
    suffix = (found["ending"] or "") + (f":{port}" if port else "")
    return found["host"].removeprefix("."), suffix, found["session"]


def make_app(web: LocalWeb) -> Starlette:
    """Return the local web as an ASGI application."""

    async def answer(request: Request) -> Response:
        host, suffix, session = split_host(request.headers.get("host", ""))
        if host == "127.0.0.1" or (suffix and not host):  # where a person begins
            ending = suffix if ".localhost" in suffix else f".localhost{suffix}"
            return RedirectResponse(f"http://{PORTAL}{ending}/", 303)
        params = dict(request.query_params)
        if request.method == "POST":
            body = b""  # as far as a byte beyond what is allowed
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    return _response(web.refuse(413, "That form holds too much.", host, suffix))
            params = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        method = "GET" if request.method == "HEAD" else request.method
        session = session or request.headers.get(VISIT_HEADER) or request.cookies.get(COOKIE)
        path = request.scope["path"]  # with its escapes undone; request.url puts some of them back
        reply = web.handle(session, method, host, path, params, suffix)
        if reply.delay_s:
            with suppress(TimeoutError):  # as long as anybody waits for it
                await asyncio.wait_for(_left(request), reply.delay_s)
        return _response(reply)

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", answer, methods=methods)])


async def _left(request: Request) -> None:
    """Return when whoever asked no longer waits for the answer."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(reply: Reply) -> Response:
    if reply.location:
        response: Response = RedirectResponse(reply.location, reply.status)
    else:
        response = Response(reply.body, reply.status, media_type=f"{reply.media_type}; charset=utf-8")
    response.headers.update(HEADERS)
    if reply.session_id:
        response.set_cookie(COOKIE, reply.session_id, httponly=True, samesite="lax")
    elif reply.status == 401:
        response.delete_cookie(COOKIE)  # so that the next page begins a new visit
    return response


def serving(web: LocalWeb, port: int = 0) -> AbstractContextManager[int]:
    """Serve ``web`` in a thread as long as the block runs, which gets the port; OSError if it is taken."""
    return local_server.serving(make_app(web), port)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the local web")
    parser.add_argument("--port", type=int, default=8009)
    parser.add_argument("--seed", type=int, default=0, help="of the sites' stock")
    options = parser.parse_args()
    try:
        listener = local_server.listen(options.port)
    except OSError as error:
        sys.exit(str(error))
    print(f"The local web is at http://localhost:{options.port} (Ctrl+C ends it)", flush=True)
    local_server.serve(make_app(LocalWeb(make_sites(options.seed).values())), listener)


if __name__ == "__main__":
    main()
