"""The agent without a language model, an oracle, and scripted agents for the meta-evaluation.

Scripts are valid routes of a task and ways to fail: they decide what the agent finds, believes and does. All
walk by the rules of :mod:`pwagents.persona2web.agents.navigator`, on the observation text alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pwagents.persona2web.agents.episode import MOST_QUERIES, Agent, Brief, Condition, Played
from pwagents.persona2web.agents.navigator import Navigator, Plan
from pwagents.persona2web.agents.recall import Reader, question_for
from pwagents.persona2web.browser.driver import Visit
from pwagents.persona2web.world import types
from pwagents.persona2web.world.domains import domains, facet_of, item_fits
from pwagents.persona2web.world.history import History
from pwagents.persona2web.world.queries import read_task
from pwagents.persona2web.world.types import WEBSITE, MemoryStep, Site, Step, Truth, WebStep, WebTask


@dataclass(frozen=True)
class OfflineAgent:
    """Reads the query by rules, the history by a reader trained on other users, and walks by rules.

    Without access to the history (or where it says nothing) it takes the first site that comes to mind and
    leaves the preference out.
    """

    reader: Reader
    architecture: types.Architecture
    scheme: types.Scheme

    def __call__(self, brief: Brief, visit: Visit) -> Played:
        """Play one episode."""
        played, plan, questions = _begin(brief)
        if self.scheme == "pre_execution":
            played, plan = self.clarify(brief)
        questions = questions if self.scheme == "on_demand" else []
        if WEBSITE in questions:  # a site is needed at once, a preference when there is a choice
            plan = self._look(questions.pop(0), plan, brief, played)
        if questions:
            walk(played, visit, plan, self.architecture, self.scheme, Navigator.at_choice)
        for name in questions:
            plan = self._look(name, plan, brief, played)
        walk(played, visit, plan, self.architecture, self.scheme)
        return played

    def clarify(self, brief: Brief) -> tuple[Played, Plan]:
        """Ask the history for all that the query leaves out; return the looks with the query, rewritten."""
        played, plan, questions = _begin(brief)
        for name in questions[:MOST_QUERIES]:
            plan = self._look(name, plan, brief, played)
        # What was found is put in for what the query left out.
        text = brief.text
        for name in questions:
            if name in plan.values:
                facet = facet_of(plan.domain.name, name)
                text = text.replace(facet.usual, facet.state(plan.values[name]))
        is_known = WEBSITE not in questions or WEBSITE in plan.why
        played.rewritten = f"{text} (website: {plan.host})" if is_known else text
        return played, plan

    def _look(self, name: str, plan: Plan, brief: Brief, played: Played) -> Plan:
        """Ask the history for one thing, and return the plan with what the reader makes of it."""
        domain, query = plan.domain.name, question_for(plan.domain, name)
        records = brief.recall(query)
        is_site, reader = name == WEBSITE, self.reader
        read = reader.website(records, domain) if is_site else reader.value(records, domain, name)
        answer = "The records do not tell." if read is None else f"{name}: {types.value_text(read)}"
        ids = tuple(record.event_id for record in records)
        reason = f"The task leaves out the {name}."
        played.steps.append(MemoryStep(query=query, retrieved=ids, answer=answer, reason=reason))
        if read is None:
            return plan
        why = {**plan.why, name: f"the history shows it ({len(records)} records found)"}
        new = {"host": read} if is_site else {"values": {**plan.values, name: read}}
        return replace(plan, why=why, **new)


def _begin(brief: Brief) -> tuple[Played, Plan, list[str]]:
    """Return what a query states as a plan, and what it leaves out, the website first.

    If it names no website, the plan's is the first that comes to mind.
    """
    asked = read_task(brief.text)
    plan = Plan(asked.host or asked.domain.hosts[0], asked.domain, asked.operation, dict(asked.stated))
    return Played(), plan, ([] if asked.host else [WEBSITE]) + list(asked.left_out)


def walk(
    played: Played,
    visit: Visit,
    plan: Plan,
    architecture: types.Architecture,
    scheme: types.Scheme,
    until: Callable[[Navigator, str], bool] | None = None,
    most: int | None = None,
) -> None:
    """Carry a plan out from the open page, within the budget; the steps and the answer go into ``played``.

    It stops at a page of which ``until`` holds, and breaks off after ``most`` steps.
    """
    navigator, taken = Navigator(plan, architecture), 0
    while played.left(architecture, scheme) > 0 and (most is None or taken < most):
        page = visit.observe()
        if until and until(navigator, page):
            return
        move, tried, error = navigator.next(page), [], ""
        for action in move.actions:
            tried.append(action)
            if error := visit.act(action):
                break
        action = "\n".join(tried) if move.actions else f"stop [{move.answer}]"
        played.steps.append(WebStep(observation=page, reason=move.reason, action=action, error=error))
        if not move.actions:
            played.answer = move.answer
            return
        taken += 1


# --- the oracle ------------------------------------------------------------------------------------------


def oracle(task: WebTask, condition: Condition, truth: Truth) -> Agent:
    """Return who knows the goal, and which records show it, and walks as the offline agent does."""

    def play(brief: Brief, visit: Visit) -> Played:
        played = Played(steps=true_looks(task, condition.level, truth))
        walk(played, visit, true_plan(task), condition.architecture, condition.scheme)
        return played

    return play


def true_plan(task: WebTask) -> Plan:
    """Return the goal as a plan."""
    goal = task.goal
    why = dict.fromkeys([WEBSITE, *goal.masked], "the history shows it")
    return Plan(goal.host, domains()[goal.domain], goal.operation, goal.stated | goal.masked, why)


def true_looks(task: WebTask, level: types.Level, truth: Truth) -> list[Step]:
    """Return a look for each thing that the level leaves out; each finds records that support it."""
    domain, left_out = task.goal.domain, task.left_out(level)
    return [
        MemoryStep(
            query=question_for(domains()[domain], name),
            retrieved=tuple(sorted(truth.support.get((task.user_id, domain, name), ()))[:SHOWN]),
            answer=f"{name}: {types.value_text(value)}",
            reason=f"The task leaves out the {name}.",
        )
        for name, value in ({WEBSITE: task.goal.host} | task.goal.masked).items()
        if name in left_out
    ]


# --- scripted agents, for the meta-evaluation ------------------------------------------------------------

SCRIPTED = Condition("indexed", "pre_execution")  # what they play under
SHOWN = 20  # records a look finds
VALID = "valid route"


def scripts_of(task: WebTask, history: History, site: Site, truth: Truth) -> dict[str, Agent]:
    """Return two valid routes and eight failures of a task at level 2, by name."""
    goal, plan, looks = task.goal, true_plan(task), true_looks(task, SCRIPTED.level, truth)
    # Records of other sub-domains, which say nothing of what is looked for.
    keys = [(task.user_id, goal.domain, name) for name in (WEBSITE, *goal.masked)]
    telling = frozenset().union(*(truth.support.get(key, frozenset()) for key in keys))
    ids = [event.event_id for event in history.events if event.event_id not in telling]
    other = [each for each in ids if history.shown[each].domain != goal.domain]
    wrong = {"retrieved": tuple(other[-SHOWN:]), "answer": "The records do not tell."}
    misled = [look.model_copy(update=wrong) for look in looks]
    wanted, last = goal.stated | goal.masked, list(goal.masked)[-1]
    guessed = {
        name: next(each for each in facet_of(goal.domain, name).values if each != value)
        for name, value in goal.masked.items()
    }
    fitting = [item for item in site.items if item.domain == goal.domain and item_fits(item, wanted)]
    stated = replace(plan, values=dict(goal.stated))
    backwards = replace(plan, values=dict(reversed(plan.values.items())), one_by_one=True)
    partial = replace(plan, values={name: value for name, value in wanted.items() if name != last})
    elsewhere = replace(plan, host=next(host for host in plan.domain.hosts if host != plan.host))
    return {
        VALID: _scripted(looks, plan),
        "valid route, another order": _scripted(looks, backwards),
        "no retrieval": _scripted([], replace(stated, why={})),
        "wrong records": _scripted(misled, replace(plan, values=goal.stated | guessed, why={})),
        "found and unused": _scripted(looks, stated),
        "partial constraints": _scripted(looks, partial),
        "lucky item": _scripted(looks, replace(stated, title=fitting[0].title)),
        "wrong site": _scripted(looks, elsewhere),
        "navigation error": _scripted(looks, plan, most=2),
        "site fault": _scripted(looks, replace(plan, one_by_one=True), fails_after=stated),
    }


def _scripted(
    looks: Sequence[Step], plan: Plan, most: int | None = None, fails_after: Plan | None = None
) -> Agent:
    """Return an agent that does this; every page fails once the filters of ``fails_after`` are set."""

    def play(brief: Brief, visit: Visit) -> Played:
        played, how = Played(steps=list(looks)), (SCRIPTED.architecture, SCRIPTED.scheme)
        if fails_after:
            before = Navigator(fails_after, SCRIPTED.architecture)
            walk(played, visit, plan, *how, lambda _, page: before.at_results(page))
            visit.driver.session.faults = 1.0
        walk(played, visit, plan, *how, most=most)
        return played

    return play
