"""The driver that is a real browser: Chromium, by Playwright.

Playwright's synchronous interface refuses to run beside an asyncio loop, which a notebook's kernel has: each
driver has a thread of its own, with one browser in it. A visit has a context of its own, in which scripts are
off. No clock needs freezing: pages hold no script, and the time they show is the server's.

Every host name leads to the local web and proxies are off: nothing leaves this machine.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from lxml.html import HtmlElement

from pwagents.errors import InfrastructureError, StaysHere
from pwagents.persona2web.browser import driver
from pwagents.persona2web.browser.driver import START, Driver
from pwagents.persona2web.browser.page import LIVE, Node, Page
from pwagents.persona2web.site.serve import VISIT_HEADER
from pwagents.persona2web.site.web import WebSession

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
PLAYWRIGHTS = "the one that playwright install brought"
_ELEMENT = "ref => document.body.querySelectorAll('*')[ref]"


def find_chromium() -> str | None:
    """Return the system's Chromium; else :data:`PLAYWRIGHTS`, if that starts; else None."""
    if found := next(filter(None, map(shutil.which, BROWSERS)), None):
        return found

    def start() -> str | None:
        from playwright.sync_api import Error, sync_playwright

        with sync_playwright() as playwright, suppress(Error):
            playwright.chromium.launch().close()
            return PLAYWRIGHTS

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(start).result()


def _in_thread(name: str) -> Callable:
    """Return a method of :class:`Driver` that runs in the driver's thread."""

    def method(self, *arguments: Any) -> None:
        self._run(partial(getattr(Driver, name), self), *arguments)

    return method


class ChromiumDriver(Driver, AbstractContextManager):
    """Visits pages of the local web behind a port. Close it, or use it in a ``with`` block.

    Raises RuntimeError if no Chromium starts, InfrastructureError (any method) if it fails.

    Args:
        record: a folder that gets one for each visit (``000`` ...), made anew, with a screenshot of each page
            looked at (``000.png`` ...) and, when the visit ends, Playwright's ``trace.zip``.
        arguments: more of the browser's command line.
    """

    kind = "chromium"

    def __init__(self, port: int, record: Path | None = None, arguments: Sequence[str] = ()):
        self.record, self._context, self._visits, self._pictures = record, None, 0, 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chromium")
        try:
            self._run(self._start, port, arguments)
        except BaseException:
            self._thread.shutdown()
            raise

    def __reduce__(self) -> Any:
        raise StaysHere("a browser runs on one machine")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._run(self._close)
        self._thread.shutdown()

    def begin(self, session: WebSession, url: str = START) -> None:
        """Open a visit's first page, in a context of its own."""
        self._run(self._renew, session)
        self._run(super().begin, session, url)

    go_to, go_back = _in_thread("go_to"), _in_thread("go_back")
    click, type, select = map(_in_thread, ("click", "type", "select"))

    # --- in the thread ---

    def _run(self, work: Callable, *args: Any) -> Any:
        from playwright.sync_api import Error

        try:
            return self._thread.submit(work, *args).result()
        except Error as error:
            raise InfrastructureError(f"Chromium: {str(error).splitlines()[0]}") from error

    def _start(self, port: int, more: Sequence[str]) -> None:
        from playwright.sync_api import Error, sync_playwright

        executable = find_chromium()
        if executable is None:
            raise RuntimeError(
                "No Chromium was found: install it (apt-get install chromium, or playwright install "
                "chromium), or set driver: html"
            )
        arguments = [f"--host-resolver-rules=MAP * 127.0.0.1:{port}", "--no-proxy-server", "--disable-quic"]
        arguments += ["--disable-features=DnsOverHttps,AsyncDns", *more]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []  # the sandbox refuses to run as root
        self._playwright = sync_playwright().start()
        path = None if executable == PLAYWRIGHTS else executable
        try:
            self._browser = self._playwright.chromium.launch(executable_path=path, args=arguments)
        except Error as error:
            self._playwright.stop()
            raise RuntimeError(f"{executable} does not start: {str(error).splitlines()[0]}") from None

    def _renew(self, session: WebSession) -> None:
        self._end()
        options = {"locale": "en-US", "timezone_id": "UTC", "viewport": {"width": 1280, "height": 900}}
        options |= {"java_script_enabled": False, "service_workers": "block", "accept_downloads": False}
        headers = {VISIT_HEADER: session.session_id}
        self._context = self._browser.new_context(extra_http_headers=headers, **options)
        self._context.set_default_timeout(driver.WAIT_S * 1000)
        self._tab, self._pictures = self._context.new_page(), 0
        if self.record:
            self._folder = self.record / f"{self._visits:03d}"
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            self._context.tracing.start(snapshots=True)
        self._visits += 1

    def _end(self) -> None:
        if self._context is not None:
            if self.record:
                self._context.tracing.stop(path=self._folder / "trace.zip")
            self._context.close()
            self._context = None

    def _close(self) -> None:
        self._end()
        self._browser.close()
        self._playwright.stop()

    def _arrive(self, action: Callable[[], Any]) -> None:
        """Do what opens another page, and wait for that page."""
        from playwright.sync_api import Error, TimeoutError

        try:
            with self._tab.expect_navigation(wait_until="domcontentloaded"):
                action()
        except TimeoutError:
            with suppress(Error):  # it came just now, after all
                self._context.new_cdp_session(self._tab).send("Page.stopLoading")
            self._look()
            self._late()
        self._look()

    def _load(self, url: str) -> None:
        self._arrive(lambda: self._tab.goto(url, wait_until="commit"))

    def _element(self, element: HtmlElement):
        """Return the live element: its place among the body's elements is the same."""
        place = [*self.page.body.iterdescendants("*")].index(element)
        return self._tab.evaluate_handle(_ELEMENT, place).as_element()

    def _click(self, node: Node) -> None:
        element = self._element(node.element)
        if node.role in ("link", "button"):
            self._arrive(element.click)
        else:
            element.click()
            self._look()

    def _fill(self, node: Node, text: str) -> None:
        self._element(node.element).fill(text)
        self._look()

    def _enter(self, node: Node) -> None:
        self._arrive(lambda: self._element(node.element).press("Enter"))

    def _choose(self, option: Node) -> None:
        select = option.element.getparent()
        self._element(select).select_option(index=[*select.iter("option")].index(option.element))
        self._look()

    def _look(self) -> None:
        found = self._tab.evaluate(LIVE)
        self.page = Page(found["url"], found["status"], self._tab.content(), found["is_html"])
        self.site_fault |= self.page.status >= 500
        if self.record:
            self._tab.screenshot(path=self._folder / f"{self._pictures:03d}.png", full_page=True)
            self._pictures += 1
