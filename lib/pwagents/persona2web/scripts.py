"""Scripted episodes for the meta-evaluation: two valid routes of a task and eight ways to fail.

Each is walked on the local web, so that its pages and its log are real; what differs is what the script lets
the agent find, believe and do. Scripts know the truth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pwagents.persona2web.actions import Visit
from pwagents.persona2web.agent import Brief, Played
from pwagents.persona2web.domains import facet_of, item_fits
from pwagents.persona2web.history import History
from pwagents.persona2web.judge import Truth
from pwagents.persona2web.navigator import Navigator, Plan
from pwagents.persona2web.offline_agent import true_looks, true_plan, walk
from pwagents.persona2web.people import WEBSITE
from pwagents.persona2web.types import Architecture, MemoryStep, Scheme, Site, WebTask

SCHEME: Scheme = "pre_execution"
LEVEL = 2
SHOWN = 20  # records a look finds
SCRIPTS = (
    "valid route",
    "valid route, another order",
    "no retrieval",
    "wrong records",
    "found and unused",
    "partial constraints",
    "lucky item",
    "wrong site",
    "navigation error",
    "site fault",
)


@dataclass(frozen=True)
class Script:
    """What one scripted agent finds and does.

    Args:
        looks: its steps into the history.
        most: it breaks off after so many steps on the web; None: it walks to the end.
        fails_after: every page fails once this plan's filters are set.
    """

    looks: Sequence[MemoryStep]
    plan: Plan
    most: int | None = None
    fails_after: Plan | None = None


def scripts_of(task: WebTask, history: History, site: Site, truth: Truth) -> dict[str, Script]:
    """Two valid routes and eight failures of a task at level 2, by their names in :data:`SCRIPTS`."""
    looks, plan = true_looks(task, LEVEL, truth), true_plan(task)
    stated_only = replace(plan, values=dict(task.goal.stated))
    guess = replace(_other_values(plan, task), why={})
    scripts = (
        Script(looks, plan),
        Script(looks, _backwards(plan)),
        Script([], replace(stated_only, why={})),
        Script(_wrong(task, history, truth), guess),
        Script(looks, stated_only),
        Script(looks, _without_one(plan, task)),
        Script(looks, replace(stated_only, title=_fitting(task, site))),
        Script(looks, replace(plan, host=_other_site(plan))),
        Script(looks, plan, most=2),
        Script(looks, replace(plan, one_by_one=True), fails_after=stated_only),
    )
    return dict(zip(SCRIPTS, scripts, strict=True))


def agent_of(script: Script, architecture: Architecture) -> Callable[[Brief, Visit], Played]:
    """The scripted agent."""

    def play(brief: Brief, driver: Visit) -> Played:
        played = Played(steps=list(script.looks))
        if script.fails_after:
            before = Navigator(script.fails_after, architecture)
            walk(played, driver, script.plan, architecture, SCHEME, lambda _, page: before.at_results(page))
            driver.driver.session.faults = 1.0
        walk(played, driver, script.plan, architecture, SCHEME, most=script.most)
        return played

    return play


def _backwards(plan: Plan) -> Plan:
    return replace(plan, values=dict(reversed(plan.values.items())), one_by_one=True)


def _wrong(task: WebTask, history: History, truth: Truth) -> list[MemoryStep]:
    """Looks that find records of other sub-domains, which say nothing of what is looked for."""
    looks = true_looks(task, LEVEL, truth)
    keys = [(task.user_id, task.goal.domain, name) for name in (WEBSITE, *task.goal.masked)]
    telling = frozenset().union(*(truth.support.get(key, frozenset()) for key in keys))
    other = [
        event.event_id
        for event in history.events
        if history.shown[event.event_id].domain != task.goal.domain and event.event_id not in telling
    ]
    found = {"retrieved": tuple(other[-SHOWN:]), "answer": "The records do not tell."}
    return [look.model_copy(update=found) for look in looks]


def _other_values(plan: Plan, task: WebTask) -> Plan:
    """The plan with another value for each masked facet."""
    values = dict(plan.values)
    for name, wanted in task.goal.masked.items():
        values[name] = next(value for value in facet_of(task.goal.domain, name).values if value != wanted)
    return replace(plan, values=values)


def _without_one(plan: Plan, task: WebTask) -> Plan:
    """The plan without the last masked facet."""
    left = list(task.goal.masked)[-1]
    return replace(plan, values={name: value for name, value in plan.values.items() if name != left})


def _fitting(task: WebTask, site: Site) -> str:
    """The title of an item that meets the whole goal."""
    wanted = task.goal.stated | task.goal.masked
    fits = [item for item in site.items if item.domain == task.goal.domain and item_fits(item, wanted)]
    return fits[0].title


def _other_site(plan: Plan) -> str:
    return next(host for host in plan.domain.hosts if host != plan.host)
