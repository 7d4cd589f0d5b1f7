"""The local web with its catalogue, and Chromium for the tests that need it."""

import os

import pytest

from pwagents.persona2web.agents.recall import train_readers
from pwagents.persona2web.browser.chromium import ChromiumDriver, find_chromium
from pwagents.persona2web.site.serve import serving
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites

from .worlds import make_world

# One process draws the pages of all sites, not one for each visit to a site: a quarter less work. Of several
# --disable-features the last counts, so those of ChromiumDriver come again.
ONE_PROCESS = (
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    "--disable-features=DnsOverHttps,AsyncDns,IsolateOrigins,site-per-process,ProactivelySwapBrowsingInstance",
)


@pytest.fixture(scope="session")
def web():
    return LocalWeb(make_sites(0).values())


@pytest.fixture(scope="session")
def port(web):
    with serving(web) as port:
        yield port


@pytest.fixture(scope="session")
def chromium(port):
    """A driver with a browser; in CI its absence is a failure."""
    if find_chromium() is None and os.environ.get("CI") != "true":
        pytest.skip("no Chromium is installed")
    with ChromiumDriver(port, arguments=ONE_PROCESS) as driver:
        yield driver


@pytest.fixture(scope="session")
def world():
    return make_world()


@pytest.fixture(scope="session")
def readers(world):
    return train_readers(world.histories, world.embedder)
