"""The agent without a language model, and those it is measured against.

These are an oracle, blind guesses, and scripted agents for the meta-evaluation: valid routes of a task and
ways to fail, of which the script decides what the agent finds, believes and does. All of them walk by the
rules of :mod:`pwagents.persona2web.agents.navigator`, on the observation text of their architecture alone;
they differ in what they know before they walk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pwagents.persona2web.agents.episode import MOST_QUERIES, Agent, Brief, Played
from pwagents.persona2web.agents.navigator import Navigator, Plan
from pwagents.persona2web.agents.recall import Reader, question_for
from pwagents.persona2web.browser.driver import Visit
from pwagents.persona2web.world.domains import domains, facet_of, item_fits, value_text
from pwagents.persona2web.world.history import History
from pwagents.persona2web.world.queries import Asked, read_task
from pwagents.persona2web.world.types import (
    WEBSITE,
    Architecture,
    AskStep,
    Level,
    MemoryStep,
    Scheme,
    Site,
    Truth,
    Value,
    WebStep,
    WebTask,
)
from pwagents.seeds import rng


@dataclass
class Known:
    """What an agent holds for true: the site, values by facet, and by facet (or "website") why."""

    host: str = ""
    values: dict[str, Value] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OfflineAgent:
    """Reads the query by rules, the history by a trained reader, and walks by rules.

    Without access to the history (or where it says nothing) it takes the first site that comes to mind and
    leaves the preference out.

    Args:
        reader: one that was not trained on the users of the tasks.
    """

    reader: Reader
    architecture: Architecture
    scheme: Scheme

    def __call__(self, brief: Brief, driver: Visit) -> Played:
        """Play one episode."""
        asked = read_task(brief.text)
        played, known = Played(), Known(asked.host, dict(asked.stated))
        questions = ([] if asked.host else [WEBSITE]) + list(asked.left_out)
        if self.scheme == "none":
            for name in questions if brief.ask else []:
                self._ask(name, asked, brief, known, played)
            questions = []
        if self.scheme == "pre_execution":
            for name in questions[:MOST_QUERIES]:
                self._look(name, asked, brief, known, played)
            played.rewritten = _rewrite(brief.text, asked, known)
            questions = []
        if WEBSITE in questions:  # on demand: a site is needed at once, a preference when there is a choice
            self._look(questions.pop(0), asked, brief, known, played)
        until = Navigator.at_choice if questions else None
        walk(played, driver, self._plan(asked, known), self.architecture, self.scheme, until)
        for name in questions:
            self._look(name, asked, brief, known, played)
        if questions:
            walk(played, driver, self._plan(asked, known), self.architecture, self.scheme)
        return played

    def _plan(self, asked: Asked, known: Known) -> Plan:
        host = known.host or asked.domain.hosts[0]
        return Plan(host, asked.domain, asked.operation, known.values, known.why)

    def _look(self, name: str, asked: Asked, brief: Brief, known: Known, played: Played) -> None:
        """Ask the history for one thing and keep what the reader makes of it."""
        query = question_for(asked.domain, name)
        records = brief.recall(query)
        if name == WEBSITE:
            found = self.reader.website(records, asked.domain.name)
            known.host = found or known.host
        else:
            found = self.reader.value(records, asked.domain.name, name)
            known.values |= {} if found is None else {name: found}
        said = "The records do not tell." if found is None else f"{name}: {value_text(found)}"
        if found is not None:
            known.why[name] = f"the history shows it ({len(records)} records found)"
        ids = tuple(record.event_id for record in records)
        played.steps.append(
            MemoryStep(query=query, retrieved=ids, answer=said, reason=f"The task leaves out the {name}.")
        )
        if found is None and brief.ask:
            self._ask(name, asked, brief, known, played)

    def _ask(self, name: str, asked: Asked, brief: Brief, known: Known, played: Played) -> None:
        """Ask the user for one thing, where that is allowed; it costs a step."""
        question = f"Which {name} would you like?"
        answer = brief.ask(question)
        played.steps.append(AskStep(question=question, answer=answer))
        if name == WEBSITE:
            known.host = next((host for host in asked.domain.hosts if host in answer), known.host)
            return
        facet = facet_of(asked.domain.name, name)
        for value in facet.values:
            if facet.stated.format(value_text(value)) == answer:
                known.values[name], known.why[name] = value, "the user said so"


def walk(
    played: Played,
    driver: Visit,
    plan: Plan,
    architecture: Architecture,
    scheme: Scheme,
    until: Callable[[Navigator, str], bool] | None = None,
    most: int | None = None,
) -> None:
    """Carry a plan out from the open page, within the budget; the steps and the answer go into ``played``.

    Args:
        until: stop at a page of which this holds.
        most: break off after so many steps.
    """
    navigator, taken = Navigator(plan, architecture), 0
    while played.left(architecture, scheme) > 0 and (most is None or taken < most):
        page = driver.observe()
        if until and until(navigator, page):
            return
        move = navigator.next(page)
        if not move.actions:
            played.answer = move.answer
            stop = f"stop [{move.answer}]"
            played.steps.append(WebStep(observation=page, reason=move.reason, action=stop))
            return
        done, error = [], ""
        for action in move.actions:
            done.append(action)
            if error := driver.act(action):
                break
        step = WebStep(observation=page, reason=move.reason, action="\n".join(done), error=error)
        played.steps.append(step)
        taken += 1


def _rewrite(text: str, asked: Asked, known: Known) -> str:
    """The query with what was found put in for what it left out."""
    for name in asked.left_out:
        facet = facet_of(asked.domain.name, name)
        if name in known.values:
            text = text.replace(facet.usual, facet.stated.format(value_text(known.values[name])))
    return f"{text} (website: {known.host})" if known.host else text


# --- references: they know the goal, or nothing ----------------------------------------------------------


@dataclass(frozen=True)
class Oracle:
    """Knows the goal, and which records show it; walks as the offline agent does."""

    truth: Truth
    architecture: Architecture
    scheme: Scheme

    def for_task(self, task: WebTask, level: Level) -> Agent:
        """The agent for one task at one level."""

        def play(brief: Brief, driver: Visit) -> Played:
            played = Played(steps=list(true_looks(task, level, self.truth)))
            walk(played, driver, true_plan(task), self.architecture, self.scheme)
            return played

        return play


def true_plan(task: WebTask) -> Plan:
    """The goal as a plan."""
    goal = task.goal
    why = dict.fromkeys([WEBSITE, *goal.masked], "the history shows it")
    return Plan(goal.host, domains()[goal.domain], goal.operation, goal.stated | goal.masked, why)


def true_looks(task: WebTask, level: Level, truth: Truth) -> list[MemoryStep]:
    """A look into the history for each thing that the level leaves out; each finds all that supports it."""
    goal: Mapping[str, Value] = {WEBSITE: task.goal.host} | task.goal.masked
    left_out = task.left_out(level)
    return [
        MemoryStep(
            query=question_for(domains()[task.goal.domain], name),
            retrieved=tuple(sorted(truth.support.get((task.user_id, task.goal.domain, name), ()))[:20]),
            answer=f"{name}: {value_text(value)}",
            reason=f"The task leaves out the {name}.",
        )
        for name, value in goal.items()
        if name in left_out
    ]


@dataclass(frozen=True)
class Guesser:
    """Reads the query, draws the site and each value that it leaves out, and looks nothing up: chance."""

    architecture: Architecture
    seed: int

    def __call__(self, brief: Brief, driver: Visit) -> Played:
        """Play one episode."""
        asked, generator = read_task(brief.text), rng(self.seed, "guess", brief.text)
        hosts = asked.domain.hosts
        host = asked.host or hosts[generator.integers(len(hosts))]
        values = dict(asked.stated)
        for name in asked.left_out:
            offered = facet_of(asked.domain.name, name).values
            values[name] = offered[generator.integers(len(offered))]
        played, plan = Played(), Plan(host, asked.domain, asked.operation, values)
        walk(played, driver, plan, self.architecture, "none")
        return played


# --- scripted agents, for the meta-evaluation ------------------------------------------------------------

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
