"""Judges that read an episode as text: without ids, logs or states, and no more of it than their view allows.

- reasoning_aware: all that the agent asked its history, found, thought, did and saw at the end.
- action_wise: the actions alone, beside those of a reference route.
- outcome: the last page and the answer.

One judge reads by rules that hold for any site: a wish counts as applied where the text of what was acted on
names it, a site as used where the agent says so or its address is on the page. The other is a language model
with a rubric, as the paper's is; rubric and wording are ours.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import create_model

from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import read_reply
from pwagents.persona2web.agents.chat import tell_records
from pwagents.persona2web.agents.navigator import read_page
from pwagents.persona2web.browser.driver import split_action
from pwagents.persona2web.judge.scores import ENOUGH, Score, Scores, View, overall
from pwagents.persona2web.world.domains import facet_of, names_value
from pwagents.persona2web.world.types import WEBSITE, BrowsingEvent, Value, WebStep, WebTask, WebTrajectory
from pwagents.words import read_yaml

LAST_PAGE = 6000  # characters
_ITEM = re.compile(r"(?<=\.test/item/|\.test/book/)[\w-]+")  # addresses are shown without items' ids


# --- what judges are shown ---------------------------------------------------------------------------------


class Look(NamedTuple):
    """One question to the history; the records it found are a line each."""

    query: str
    records: str
    answer: str


class Did(NamedTuple):
    """One action: what was acted on, as the page called it, why, and what went wrong."""

    action: str
    reason: str = ""
    error: str = ""


class Wish(NamedTuple):
    """A value that is wanted, and how a query words it: "under $60"."""

    value: Value
    wording: str


@dataclass(frozen=True)
class Transcript:
    """What a judge is given. The wishes (the right site, values by facet) are the rubric's, and so known.

    ``to_find`` is what the text leaves out ("website", "preferences"), ``reference`` the actions of a valid
    route, in the action-wise view alone.
    """

    view: View
    text: str
    host: str
    operation: str
    stated: dict[str, Wish]
    masked: dict[str, Wish]
    to_find: tuple[str, ...]
    looks: tuple[Look, ...] = ()
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
    """Return what ``view`` shows of an episode, with records by id and, action-wise, a valid route."""
    goal, left_out = task.goal, task.left_out(trajectory.level)

    def wishes(values: Mapping[str, Value]) -> dict[str, Wish]:
        return {name: Wish(v, facet_of(goal.domain, name).state(v)) for name, v in values.items()}

    to_find = ("website",) * (WEBSITE in left_out) + ("preferences",) * bool(left_out & {*goal.masked})
    rubric = {"view": view, "text": task.texts[trajectory.level], "host": goal.host, "to_find": to_find}
    rubric |= {"operation": goal.operation, "stated": wishes(goal.stated), "masked": wishes(goal.masked)}
    did = _did(trajectory)
    if view == "action_wise":
        bare = tuple(Did(each.action, error=each.error) for each in did)
        route = tuple(each.action for each in _did(reference)) if reference else ()
        return Transcript(**rubric, did=bare, reference=route)
    pages = [step.observation for step in trajectory.steps if step.kind == "web"]
    end = {"last_page": _ITEM.sub("", pages[-1])[:LAST_PAGE] if pages else "", "answer": trajectory.answer}
    if view == "outcome":
        return Transcript(**rubric, **end)
    looks = []
    for step in trajectory.steps:
        if step.kind == "memory":
            shown = [records[event] for event in step.retrieved if event in records]
            looks.append(Look(step.query, tell_records(shown), step.answer))
    return Transcript(**rubric, looks=tuple(looks), did=did, **end)


def _did(trajectory: WebTrajectory) -> tuple[Did, ...]:
    """Return the actions, with the page's line on what was acted on in place of its number."""
    done = []
    for step in trajectory.steps:
        actions = (step.action.splitlines() or [""]) if step.kind == "web" else []
        for i, action in enumerate(actions):
            error = step.error if i == len(actions) - 1 else ""  # an error ends a step
            done.append(Did(_by_name(action, step), "" if i else step.reason, error))
    return tuple(done)


def _by_name(action: str, step: WebStep) -> str:
    """Return ``click [12]`` as "click link 'Flights'"; as it is if the page has no such number."""
    name, arguments = split_action(action)
    if name not in ("click", "type", "select") or not arguments:
        return action
    lines = read_page(step.observation).lines
    line = next((line for line in lines if line.number == arguments[0]), None)
    if line is None:
        return action
    return " ".join([name, line.role, f"'{line.name}'", *(f"[{argument}]" for argument in arguments[1:])])


def tell(transcript: Transcript) -> str:
    """Return a transcript as text; what agents, sites and records said is not fenced yet."""
    looks = [f"Asked the history: {x.query}\nFound:\n{x.records}\nRead: {x.answer}" for x in transcript.looks]
    did = []
    for number, each in enumerate(transcript.did, 1):
        why = f" because: {each.reason}" if each.reason else ""
        did.append(f"{number}. {each.action}{why}" + (f"\n   went wrong: {each.error}" if each.error else ""))
    route = ["A valid route did:", *transcript.reference] if transcript.reference else []
    end = [f"Last page:\n{transcript.last_page}", f"Answer: {transcript.answer or '(none)'}"]
    parts = [looks, did, route, [] if transcript.view == "action_wise" else end]
    return "\n\n".join("\n".join(part) for part in parts if part)


# --- the judge that reads by rules -------------------------------------------------------------------------

_DONE = {  # words of what is acted on, and of the last page's address, once an operation was done
    "cart": (r"^click .*\b(add|put|buy)\b", r"\.test/cart\b"),
    "booking": (r"^click .*\b(hold|save|make)\b", r"\.test/bookings\b"),
    "compare": (r"^click .*\bcompare: ", r"\.test/(compare|search)\b"),
    "search": (r"^stop\b", r"\.test/search\b"),
    "lookup": (r"^stop\b.*\d", r"\.test/item/"),
}
_FAULT = "Please try again"


def judge_by_rules(seen: Transcript) -> Scores:
    """Return the scores of one transcript, from what its view shows."""
    head = seen.last_page.split("\n")[0]
    ended_there = f"//{seen.host}/" in head
    words, place = _DONE[seen.operation]
    ended_right = re.search(place, head) is not None
    if seen.view == "action_wise":
        return _by_route(seen)
    if seen.view == "outcome":  # what is shown at the end fits, however it came to that
        lines = read_page(seen.last_page).lines
        said = [x.value or x.name for x in lines if x.on or x.role in ("text", "heading", "combobox")]
        said.append(seen.answer)
        return Scores(
            website_utilization=float(ended_there),
            preference_utilization=_named(said, seen.masked.values()),
            intent=_named(said, seen.stated.values()) if ended_right else 0.0,
        )
    worked = [each.action for each in seen.did if not each.error]
    hosts = [host for each in seen.did for host in re.findall(r"[\w-]+\.test\b", each.reason)]
    there = 1.0 if ended_there and all(host == seen.host for host in hosts) else 0.5
    done = any(re.search(words, each.action, re.IGNORECASE) for each in seen.did)
    intent = 0.5 if _FAULT in seen.last_page else float(done and ended_right)
    site = max((_site_read(look, seen.host) for look in seen.looks), default=0.0)
    read = overall([_value_read(seen.looks, wish) for wish in seen.masked.values()])
    return Scores(
        website_retrieval=site if "website" in seen.to_find else None,
        website_utilization=there if ended_there or seen.host in hosts else 0.0,
        preference_retrieval=read if "preferences" in seen.to_find else None,
        preference_utilization=_named(worked, seen.masked.values()),
        intent=intent if _named(worked, seen.stated.values()) == 1 else 0.0,
    )


def _by_route(seen: Transcript) -> Scores:
    """Score by the reference route alone: another route is wrong where it leaves this one's order.

    What counts is the longest sequence of actions that both have in the same order.
    """
    shared = common_sequence([each.action for each in seen.did if not each.error], seen.reference)
    share = len(shared) / len(seen.reference) if seen.reference else 0.0
    return Scores(
        website_utilization=float(bool(shared) and shared[0] == seen.reference[0]),
        preference_utilization=_named(shared, seen.masked.values()),
        intent=1.0 if share == 1 else 0.5 if share >= 0.5 else 0.0,
    )


def common_sequence(a: Sequence[str], b: Sequence[str]) -> tuple[str, ...]:
    """Return the longest sequence that stands in both, in order though not side by side."""
    row: list[tuple[str, ...]] = [()] * (len(b) + 1)
    for x in a:
        before, row = row, [()]
        for j, y in enumerate(b):
            row.append((*before[j], x) if x == y else max(before[j + 1], row[j], key=len))
    return row[-1]


def _site_read(look: Look, host: str) -> Score:
    """Return how many of the records that a look found are of the site: three or more, some, none."""
    count = sum(line.endswith(f"| {host}") for line in look.records.splitlines())
    return 1.0 if count >= ENOUGH and host in look.answer else 0.5 if count else 0.0


def _value_read(looks: Sequence[Look], wish: Wish) -> Score:
    """Return whether a look into three records or more was read as the wish."""
    read = [look for look in looks if names_value(look.answer, wish.value)]
    return max((1.0 if len(look.records.splitlines()) >= ENOUGH else 0.5 for look in read), default=0.0)


def _named(texts: Iterable[str], wishes: Iterable[Wish]) -> Score:
    """Return whether each wish is named by some text."""
    return overall([float(any(names_value(text, wish.value) for text in texts)) for wish in wishes])


# --- the judge that is a language model --------------------------------------------------------------------

TOLD = read_yaml(__package__, "judges.yaml")
CRITERIA: dict[str, str] = TOLD["criteria"]
_TO_FIND = {"website_retrieval": "website", "preference_retrieval": "preferences"}


def ask_judge(model: ChatModel, transcripts: Sequence[Transcript]) -> list[Scores | None]:
    """Return a language model's scores of each; None if it refuses or its reply cannot be read."""
    replies = ask_all(model, [request_for(each) for each in transcripts], "judge")
    pairs = zip(replies, transcripts, strict=True)
    return [read_scores(reply, seen) if reply else None for reply, seen in pairs]


def request_for(transcript: Transcript) -> Request:
    """Return the question that the judge is asked."""
    criteria = criteria_of(transcript)
    rules = TOLD["rubric"].format(
        to_find=" and ".join(transcript.to_find) or "nothing",
        shown=TOLD["shown"][transcript.view],
        criteria="\n".join(f"- {name}: {text}" for name, text in criteria.items()),
        example="{" + ", ".join(f'"{name}": 0.5' for name in criteria) + "}",
    )
    right = [f"Right website: {transcript.host}", f"Right operation: {transcript.operation}"]
    right += [f"Stated: {wish.wording}" for wish in transcript.stated.values()]
    right += [f"Preference: {wish.wording}" for wish in transcript.masked.values()]
    said = "\n".join([f"Task: {transcript.text}", *right, "", fence(tell(transcript))])
    system = {"role": "system", "content": f"{rules}\n\n{FENCE_NOTE}"}
    return Request(messages=(system, {"role": "user", "content": said}))


def read_scores(reply: Reply, transcript: Transcript) -> Scores | None:
    """Return the scores in a reply; None if it cannot be read, or one is missing or off the scale."""
    form = create_model("Judgement", **dict.fromkeys(criteria_of(transcript), (Score, ...)))
    try:
        return Scores(**read_reply(reply, form).model_dump())
    except ValueError:
        return None


def criteria_of(transcript: Transcript) -> dict[str, str]:
    """Return what is scored: retrieval only if the view shows it and the text leaves something out."""
    to_find = transcript.to_find if transcript.view == "reasoning_aware" else ()
    hidden = {name for name, what in _TO_FIND.items() if what not in to_find}
    return {name: text for name, text in CRITERIA.items() if name not in hidden}
