"""Milliseconds of a step on the local web, in Chromium and from the HTML alone, beside each other.

    .venv/bin/python benchmarks/web_drivers.py [--sites 8]

Under a minute on two cores. A visitor who knows the goal solves one task on each of some sites, through both
drivers in turn, and reads the page after every action in the form of one architecture. Pages and observations
are the same (the run stops where they are not). Expect the HTML alone to be at least ten times as fast.
Seconds are those of the clock: run it on a machine that does nothing else.
"""

import argparse
import time

import pandas as pd

from pwagents.persona2web.agents.episode import Played
from pwagents.persona2web.agents.navigator import Plan
from pwagents.persona2web.agents.offline import walk
from pwagents.persona2web.browser.chromium import ChromiumDriver
from pwagents.persona2web.browser.driver import Driver, HtmlDriver, Visit
from pwagents.persona2web.browser.page import observe
from pwagents.persona2web.site.serve import serving
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import domains, make_sites
from pwagents.persona2web.world.types import Site

DEMAND = 10.0  # times as fast as Chromium


class Watch:
    """A driver whose actions are timed; what each page looks like is kept."""

    def __init__(self, driver: Driver):
        self.driver, self.steps_ms, self.pages = driver, [], []

    def __getattr__(self, name):
        if name == "page":
            return self.driver.page

        def act(*arguments):
            start = time.perf_counter()
            getattr(self.driver, name)(*arguments)
            self.pages.append(observe(self.driver.page, "occam"))
            self.steps_ms.append(1000 * (time.perf_counter() - start))

        return act


def plan_on(site: Site) -> Plan:
    """To do the last operation of the site's first department on its first item there."""
    domain = domains()[site.domains[0]]
    item = next(item for item in site.items if item.domain == domain.name)
    facet = next(facet for facet in domain.facets if facet.kind == "choice")
    return Plan(site.host, domain, domain.operations[-1], {facet.name: item.values[facet.name]})


def measure(n_sites: int) -> pd.DataFrame:
    """Milliseconds of a step by driver: median, 95th percentile, and how many times Chromium's median."""
    web = LocalWeb(make_sites(0).values())
    sites = list(web.sites.values())[:: max(1, len(web.sites) // n_sites)][:n_sites]
    with serving(web) as port, ChromiumDriver(port) as chromium:
        watches = {"Chromium": Watch(chromium), "HTML alone": Watch(HtmlDriver(web))}
        for site in sites:
            plan = plan_on(site)
            for watch in watches.values():
                watch.begin(web.begin())
                walk(Played(), Visit(watch, "indexed"), plan, "indexed", "none")
    one, other = (watch.pages for watch in watches.values())
    if one != other:
        raise SystemExit("The drivers do not show the same pages")
    frame = pd.DataFrame(
        {
            name: {
                "steps": len(watch.steps_ms),
                "median_ms": pd.Series(watch.steps_ms).median(),
                "p95_ms": pd.Series(watch.steps_ms).quantile(0.95),
            }
            for name, watch in watches.items()
        }
    ).T
    frame["times_as_fast"] = frame["median_ms"].iloc[0] / frame["median_ms"]
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, default=8)
    frame = measure(parser.parse_args().sites)
    print(frame.round(1).to_string())
    ratio = frame["times_as_fast"].iloc[-1]
    print(f"{'OK' if ratio >= DEMAND else 'FAIL'}: {ratio:.1f} times as fast, expected at least {DEMAND:g}")


if __name__ == "__main__":
    main()
