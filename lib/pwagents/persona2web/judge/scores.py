"""Scores of an episode, and the judge that reads them off the truth and the server's log.

The paper's scale and rubric texts are not known; ours are 0, 1/2 and 1. Personalization (P) of the website
and of the preferences each is the mean of retrieval (was it found in the history?) and utilization (was it
used?). What a level's text states itself need not be found, and counts by utilization alone. A success has P
and intent at 1, and the session's state at the goal.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, get_args

import pandas as pd

from pwagents.persona2web.agents.episode import WebEpisode, World
from pwagents.persona2web.world import types
from pwagents.persona2web.world.domains import names_value
from pwagents.persona2web.world.types import PORTAL, WEBSITE, Goal, Request, Truth, WebTask, WebTrajectory
from pwagents.schema import Record, Usage

Score = Literal[0.0, 0.5, 1.0]
View = Literal["reasoning_aware", "action_wise", "outcome"]
VIEWS: tuple[View, ...] = get_args(View)
ENOUGH = 3  # supporting records that show a preference; fewer, where it has no more


class Scores(Record):
    """The scores of an episode. Retrieval is None where the judge's view or the level has none."""

    website_retrieval: Score | None = None
    website_utilization: Score
    preference_retrieval: Score | None = None
    preference_utilization: Score
    intent: Score
    reached: bool = True  # judges that see no state take it as given

    @property
    def p_web(self) -> float:
        known = [s for s in (self.website_retrieval, self.website_utilization) if s is not None]
        return sum(known) / len(known)

    @property
    def p_pref(self) -> float:
        known = [s for s in (self.preference_retrieval, self.preference_utilization) if s is not None]
        return sum(known) / len(known)

    @property
    def p_avg(self) -> float:
        return (self.p_web + self.p_pref) / 2

    @property
    def success(self) -> float:
        return float(self.p_avg == 1 and self.intent == 1 and self.reached)


def judge(task: WebTask, trajectory: WebTrajectory, truth: Truth) -> Scores:
    """Score by the truth: retrieval by ids, utilization by the log, intent by the session's state."""
    goal, requests, left_out = task.goal, trajectory.requests, task.left_out(trajectory.level)
    found = {
        facet: retrieval_score(trajectory.steps, truth.support.get((task.user_id, goal.domain, facet), ()))
        for facet in left_out
    }
    masked = [found[facet] for facet in goal.masked if facet in found]
    # The website: 1 if constraints and operations began and ended there, 1/2 where it was merely seen.
    hosts = [request.host for request, _ in uses(requests, goal)]
    is_seen = any(request.host == goal.host and request.status < 400 for request in requests)
    is_used = bool(hosts) and hosts[0] == hosts[-1] == goal.host
    return Scores(
        website_retrieval=found.get(WEBSITE),
        website_utilization=1.0 if is_used else 0.5 if is_seen else 0.0,
        preference_retrieval=overall(masked) if masked else None,
        preference_utilization=preference_score(requests, goal, goal.masked),
        intent=intent_score(task, trajectory),
        reached=trajectory.reached,
    )


_WHY_WEBSITE = {
    0.0: "The right website was not opened.",
    0.5: "The right website was opened; what was done did not begin and end there.",
    1.0: "Constraints and operations began and ended on the right website.",
}
_WHY_INTENT = {
    0.0: "The operation was not done, or not with all stated constraints, or more was done.",
    0.5: "A failing page stopped a right plan.",
    1.0: "The operation was done with all stated constraints.",
}


def explain(scores: Scores, task: WebTask, trajectory: WebTrajectory, truth: Truth) -> dict[str, str]:
    """Return why :func:`judge` gave each score, without a word of the right website or the right values."""
    goal, requests = task.goal, trajectory.requests
    recalled = {event for step in trajectory.steps if step.kind == "memory" for event in step.retrieved}

    def found(name: str) -> str:
        support = truth.support.get((task.user_id, goal.domain, name), frozenset())
        return f"{name}: {len(recalled & support)} of {len(support)} supporting records were recalled"

    applied = {name: preference_score(requests, goal, {name: value}) for name, value in goal.masked.items()}
    used = [f"{name}: the right value was{'' if hit else ' not'} applied" for name, hit in applied.items()]
    why = {
        "website_retrieval": found(WEBSITE),
        "website_utilization": _WHY_WEBSITE[scores.website_utilization],
        "preference_retrieval": "; ".join(map(found, goal.masked)),
        "preference_utilization": "; ".join(used),
        "intent": _WHY_INTENT[scores.intent],
        "reached": f"The session's state at the end is {'' if scores.reached else 'not '}the goal.",
    }
    return {name: text for name, text in why.items() if getattr(scores, name) is not None}


def retrieval_score(steps: Iterable[types.Step], support: Collection[str]) -> Score:
    """Return 1 if the looks among the steps found three supporting records (all, if fewer), 1/2 for some."""
    ids = {event for step in steps if step.kind == "memory" for event in step.retrieved}
    hits = len(ids.intersection(support))
    return 1.0 if hits and hits >= min(ENOUGH, len(support)) else 0.5 if hits else 0.0


def uses(requests: Iterable[Request], goal: Goal) -> list[tuple[Request, str]]:
    """Return the requests that use what is known, on any site of the sub-domain, each with its search words.

    These are filters, searches and operations that did not fail; what was typed into the portal is none.
    """
    found = []
    for request in requests:
        words = request.params.get("q", "") if request.path.strip("/") == "search" else ""
        uses_any = request.applied or request.operation or words
        if uses_any and request.status < 400 and request.domain == goal.domain:
            found.append((request, words))
    return found


def preference_score(requests: Iterable[Request], goal: Goal, values: Mapping[str, types.Value]) -> Score:
    """Return 1 if all values were applied, as filters or in a search; an item that merely fits counts 0.

    Of several values tried for a facet the last one counts.
    """
    last, searches = {}, []
    for request, words in uses(requests, goal):
        last |= request.applied
        searches.append(words)
    return overall(
        [
            float(last[facet] == value if facet in last else any(names_value(s, value) for s in searches))
            for facet, value in values.items()
        ]
    )


def intent_score(task: WebTask, trajectory: WebTrajectory) -> Score:
    """Return 1 for the operation with all stated constraints; 1/2 if a fault stopped a right plan.

    That is where every stated value was applied before the last fault, and no site answered after it.
    """
    if trajectory.intended:
        return 1.0
    requests = trajectory.requests
    faults = [place for place, request in enumerate(requests) if request.status >= 500]
    if not faults or any(
        request.status < 400 and request.host != PORTAL for request in requests[faults[-1] :]
    ):
        return 0.0
    before, goal = requests[: faults[-1]], task.goal
    return 0.5 if preference_score(before, goal, goal.stated) == 1 else 0.0


def overall(scores: Sequence[Score]) -> Score:
    """Return 1 if all are 1, 0 if all are 0, else 1/2. Nothing to score is 1."""
    return 1.0 if all(s == 1 for s in scores) else 0.0 if all(s == 0 for s in scores) else 0.5


# --- as a table --------------------------------------------------------------------------------------------

SCORES = (*list(Scores.model_fields)[:4], "p_web", "p_pref", "p_avg", "intent", "success")
_TAKEN = ("reached", "steps", "looks", "fault", "tokens", "usd")
_RECORD = ("method", "model", "task_id", "user_id", "outcome")
_CONDITION = ("architecture", "scheme", "level", "memory", "driver", "faults", "sample", "edition")


def scores_frame(records: Sequence[WebEpisode], world: World) -> pd.DataFrame:
    """Tabulate one row an episode: what it was played under, its scores, and what it took.

    Episodes without a trajectory stay, with empty scores. ``looks``: into the history. ``reached``: whether
    the session's state was the goal, however it came to that. ``fault``: whether a page failed, which is
    counted apart. The columns are always the same.
    """
    tasks, truths, rows = {task.task_id: task for task in world.tasks}, {}, []
    for record in records:
        memory, retrieval = record.params["memory"], record.params["retrieval"]
        if memory not in truths:
            truths[memory] = world.truth(memory)
        row = {name: getattr(record, name) for name in _RECORD} | {"retriever": retrieval["retriever"]}
        row |= {name: record.params[name] for name in _CONDITION}
        if played := record.trajectory:
            scores = judge(tasks[record.task_id], played, truths[memory])
            row |= {name: getattr(scores, name) for name in SCORES}
            usage = sum((step.usage for step in played.steps), Usage())
            looks = sum(step.kind == "memory" for step in played.steps)
            row |= {"reached": float(played.reached), "fault": float(played.site_fault), "looks": looks}
            row |= {"steps": len(played.steps), "tokens": usage.tokens, "usd": usage.usd}
        rows.append(row)
    columns = [*_RECORD, *_CONDITION, "retriever", *SCORES, *_TAKEN]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys([*SCORES, *_TAKEN], float))
