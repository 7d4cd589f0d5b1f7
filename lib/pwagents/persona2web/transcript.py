"""An episode as a judge reads it: texts alone, without ids, logs or states, and no more than the view allows.

Addresses of items' pages, too, are shown without the item's id.

- reasoning_aware: all that the agent asked its history and the user, found, thought, did and saw at the end.
- action_wise: the actions alone, beside those of a reference route.
- outcome: the last page and the answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pwagents.persona2web.actions import split_action
from pwagents.persona2web.agent import tell_records
from pwagents.persona2web.domains import facet_of, value_text
from pwagents.persona2web.judge import View, wanted_from_history
from pwagents.persona2web.page_text import read_page
from pwagents.persona2web.types import AskStep, BrowsingEvent, Value, WebStep, WebTask, WebTrajectory

LAST_PAGE = 6000  # characters
_ITEM = re.compile(r"(?<=\.test/item/|\.test/book/)[\w-]+")


@dataclass(frozen=True)
class Look:
    """One question to the history: ``records`` as text, a line each."""

    query: str
    records: str
    answer: str


@dataclass(frozen=True)
class Did:
    """One action: what was acted on, as the page called it, and why; ``error`` where it failed."""

    action: str
    reason: str
    error: str


@dataclass(frozen=True)
class Wish:
    """A value that is wanted, and how a query words it: "under $60"."""

    value: Value
    wording: str


@dataclass(frozen=True)
class Transcript:
    """What a judge is given. The wishes (the right site, values by facet) are the rubric's, and so known.

    Attributes:
        to_find: which of "website" and "preferences" the text leaves out.
        reference: the actions of a valid route; of the action-wise view alone.
    """

    view: View
    text: str
    host: str
    operation: str
    stated: dict[str, Wish]
    masked: dict[str, Wish]
    to_find: tuple[str, ...]
    looks: tuple[Look, ...] = ()
    asked: tuple[AskStep, ...] = ()
    did: tuple[Did, ...] = ()
    last_page: str = ""
    answer: str = ""
    reference: tuple[str, ...] = ()


def transcribe(
    task: WebTask,
    trajectory: WebTrajectory,
    view: View,
    records: Mapping[str, BrowsingEvent],
    reference: WebTrajectory | None = None,
) -> Transcript:
    """What ``view`` shows of an episode.

    Args:
        records: of the user's history, by id.
        reference: a valid route of the same task; the action-wise view needs one.
    """
    left_out = wanted_from_history(task, trajectory.level)
    to_find = ["website"] * ("website" in left_out) + ["preferences"] * bool(left_out & set(task.goal.masked))
    rubric = {
        "view": view,
        "text": task.texts[trajectory.level],
        "host": task.goal.host,
        "operation": task.goal.operation,
        "stated": _wishes(task, task.goal.stated),
        "masked": _wishes(task, task.goal.masked),
        "to_find": tuple(to_find),
    }
    web = [step for step in trajectory.steps if step.kind == "web"]
    did = tuple(each for step in web for each in _did(step))
    if view == "action_wise":
        bare = tuple(Did(each.action, "", each.error) for each in did)
        steps = reference.steps if reference else ()
        route = tuple(each.action for step in steps if step.kind == "web" for each in _did(step))
        return Transcript(**rubric, did=bare, reference=route)
    last_page = _ITEM.sub("", web[-1].observation) if web else ""
    end = {"last_page": last_page[:LAST_PAGE], "answer": trajectory.answer}
    if view == "outcome":
        return Transcript(**rubric, **end)
    looks = tuple(
        Look(
            step.query,
            tell_records([records[event] for event in step.retrieved if event in records]),
            step.answer,
        )
        for step in trajectory.steps
        if step.kind == "memory"
    )
    asked = tuple(step for step in trajectory.steps if step.kind == "ask")
    return Transcript(**rubric, looks=looks, asked=asked, did=did, **end)


def _wishes(task: WebTask, values: Mapping[str, Value]) -> dict[str, Wish]:
    wordings = {name: facet_of(task.goal.domain, name).stated for name in values}
    return {name: Wish(value, wordings[name].format(value_text(value))) for name, value in values.items()}


def _did(step: WebStep) -> list[Did]:
    """The actions of a step, with the page's line on what was acted on in place of its number.

    An error ends a step, so that it is the last action's.
    """
    actions = step.action.splitlines() or [""]
    last = len(actions) - 1
    return [
        Did(
            _by_name(action, step.observation),
            step.reason if i == 0 else "",
            step.error if i == last else "",
        )
        for i, action in enumerate(actions)
    ]


def _by_name(action: str, page: str) -> str:
    """``click [12]`` as "click link 'Flights'"; as it is where the page has no such number."""
    name, arguments = split_action(action)
    if name not in ("click", "type", "select") or not arguments:
        return action
    line = next((line for line in read_page(page).lines if line.number == arguments[0]), None)
    if line is None:
        return action
    return " ".join([name, line.role, f"'{line.name}'", *(f"[{argument}]" for argument in arguments[1:])])


def tell(transcript: Transcript) -> str:
    """A transcript as text for a language model; what agents, sites and records said is not fenced yet."""
    parts: list[Sequence[str]] = []
    if transcript.looks:
        parts.append(
            [f"Asked the history: {x.query}\nFound:\n{x.records}\nRead: {x.answer}" for x in transcript.looks]
        )
    if transcript.asked:
        parts.append([f"Asked the user: {x.question}\nTold: {x.answer}" for x in transcript.asked])
    if transcript.did:
        parts.append([_tell_did(i, each) for i, each in enumerate(transcript.did, 1)])
    if transcript.reference:
        parts.append(["A valid route did:", *transcript.reference])
    if transcript.view != "action_wise":
        parts.append([f"Last page:\n{transcript.last_page}", f"Answer: {transcript.answer or '(none)'}"])
    return "\n\n".join("\n".join(part) for part in parts)


def _tell_did(number: int, did: Did) -> str:
    why = f" because: {did.reason}" if did.reason else ""
    return f"{number}. {did.action}{why}" + (f"\n   went wrong: {did.error}" if did.error else "")
