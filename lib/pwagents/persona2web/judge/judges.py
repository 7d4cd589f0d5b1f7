"""Judges that read an episode as text: without ids, logs or states, and no more of it than their view allows.

- reasoning_aware: all that the agent asked its history and the user, found, thought, did and saw at the end.
- action_wise: the actions alone, beside those of a reference route.
- outcome: the last page and the answer.

One judge reads by rules that hold for any site: a wish counts as applied where the text of what was acted on
names it, a site as used where the agent says so or its address is on the page. The other is a language model
with a rubric, as the paper's is; rubric and wording are ours.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import create_model

from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import read_reply
from pwagents.persona2web.agents.chat import tell_records
from pwagents.persona2web.agents.navigator import read_page
from pwagents.persona2web.browser.driver import split_action
from pwagents.persona2web.judge.scores import ENOUGH, Score, Scores, View, overall
from pwagents.persona2web.world.domains import facet_of, names_value, value_text
from pwagents.persona2web.world.types import AskStep, BrowsingEvent, Value, WebStep, WebTask, WebTrajectory

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
    left_out = task.left_out(trajectory.level)
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


_WORDS = {  # of what is acted on, or of the last page's address, once an operation was done
    "cart": r"^click .*\b(add|put|buy)\b",
    "booking": r"^click .*\b(hold|save|make)\b",
    "compare": r"^click .*\bcompare: ",
    "search": r"^stop\b",
    "lookup": r"^stop\b.*\d",
}
_PAGES = {
    "cart": r"\.test/cart\b",
    "booking": r"\.test/bookings\b",
    "compare": r"\.test/(compare|search)\b",
    "search": r"\.test/search\b",
    "lookup": r"\.test/item/",
}
_FAULT = "Please try again"


def judge_by_rules(transcript: Transcript) -> Scores:
    """Scores of one transcript, from what its view shows."""
    return {
        "reasoning_aware": _reasoning_aware,
        "action_wise": _action_wise,
        "outcome": _outcome,
    }[transcript.view](transcript)


def _reasoning_aware(seen: Transcript) -> Scores:
    site = max((_sure(look, seen.host) for look in seen.looks), default=0.0)
    found = overall([_found(seen.looks, wish) for wish in seen.masked.values()])
    return Scores(
        website_retrieval=site if "website" in seen.to_find else None,
        website_utilization=_site_used(seen),
        preference_retrieval=found if "preferences" in seen.to_find else None,
        preference_utilization=_applied(seen.did, seen.masked.values()),
        intent=_intent(seen),
    )


def _sure(look: Look, host: str) -> Score:
    """How many of the records that a look found are of the site: three or more, some, none."""
    count = sum(line.endswith(f"| {host}") for line in look.records.splitlines())
    if host not in look.answer:
        return 0.5 if count else 0.0
    return 1.0 if count >= ENOUGH else 0.5 if count else 0.0


def _found(looks: Sequence[Look], wish: Wish) -> Score:
    """Whether a look into three records or more was read as the wish; records do not say values outright."""
    read = [look for look in looks if names_value(look.answer, wish.value)]
    return max((1.0 if len(look.records.splitlines()) >= ENOUGH else 0.5 for look in read), default=0.0)


def _site_used(seen: Transcript) -> Score:
    """1 where the last page is the site's and no other site was gone to; 1/2 where it was gone to at all."""
    hosts = [host for did in seen.did for host in re.findall(r"[\w-]+\.test\b", did.reason)]
    ended_there = f"//{seen.host}/" in seen.last_page.split("\n")[0]
    if ended_there and all(host == seen.host for host in hosts):
        return 1.0
    return 0.5 if ended_there or seen.host in hosts else 0.0


def _applied(did: Iterable[Did], wishes: Iterable[Wish]) -> Score:
    """Whether each wish is what some action that worked acted on."""
    actions = [each.action for each in did if not each.error]
    return overall(
        [1.0 if any(names_value(action, wish.value) for action in actions) else 0.0 for wish in wishes]
    )


def _intent(seen: Transcript) -> Score:
    """1 where the operation's words were acted on and the last page is one it ends on; 1/2 before a fault."""
    if _applied(seen.did, seen.stated.values()) < 1:
        return 0.0
    if _FAULT in seen.last_page:
        return 0.5
    done = any(re.search(_WORDS[seen.operation], each.action, re.IGNORECASE) for each in seen.did)
    return float(done and re.search(_PAGES[seen.operation], seen.last_page.split("\n")[0]) is not None)


def _action_wise(seen: Transcript) -> Scores:
    """By the reference route alone: what it did and this one did not is missing, whatever else led there."""
    done = {each.action for each in seen.did if not each.error}
    shared = [action in done for action in seen.reference]
    share = sum(shared) / len(shared) if shared else 0.0
    entered = seen.reference[:1] and seen.reference[0] in done
    return Scores(
        website_utilization=1.0 if entered else 0.0,
        preference_utilization=_applied(
            [each for each in seen.did if each.action in seen.reference], seen.masked.values()
        ),
        intent=1.0 if share == 1 else 0.5 if share >= 0.5 else 0.0,
    )


def _outcome(seen: Transcript) -> Scores:
    """By the last page and the answer: what is shown there fits, however it came to that."""
    first, text = seen.last_page.split("\n")[0], f"{_told(seen.last_page)}\n{seen.answer}"
    stated = overall([1.0 if names_value(text, wish.value) else 0.0 for wish in seen.stated.values()])
    ended = re.search(_PAGES[seen.operation], first) is not None
    return Scores(
        website_utilization=1.0 if f"//{seen.host}/" in first else 0.0,
        preference_utilization=overall(
            [1.0 if names_value(text, wish.value) else 0.0 for wish in seen.masked.values()]
        ),
        intent=stated if ended else 0.0,
    )


def _told(page: str) -> str:
    """What a page says: its texts and what is chosen on it, without what it merely offers."""
    lines = read_page(page).lines
    said = [x for x in lines if x.on or x.role in ("text", "heading", "combobox")]
    return "\n".join(x.value or x.name for x in said)


RUBRIC = """\
You judge how a web agent carried out a task for one person. The task leaves something out that the person's
browsing history shows: {to_find}. You know what would have been right; the agent did not. You are shown
{shown}.

Give each score as 0, 0.5 or 1:
{criteria}
Judge what was done, not how well it was told. Reply with one JSON object of these scores, such as
{example}, and nothing else."""

SHOWN: dict[View, str] = {
    "reasoning_aware": "what it asked the history and the user, what it was told, its reasons, its actions "
    "and where it ended",
    "action_wise": "its actions alone, and those of a valid route; a right action is one of the route's",
    "outcome": "the last page that it saw and its answer",
}
RETRIEVAL = {
    "website_retrieval": "1 where three or more records found show the right website; 0.5 for one or two",
    "preference_retrieval": "1 where for every preference three or more records found show it (all of them, "
    "where fewer exist); 0.5 where some were found",
}
USE = {
    "website_utilization": "1 where it began and ended its work on the right website; 0.5 where it was there",
    "preference_utilization": "1 where it applied every preference, as a filter or in a search; 0.5 for "
    "some. An item that merely happens to fit counts nothing",
    "intent": "1 where it did the right operation and met all stated constraints, whatever the preferences; "
    "0.5 where a fault of the site stopped a right plan",
}


class LlmJudge:
    """Scores transcripts with a language model.

    Args:
        model: the judge; its replies are asked at temperature 0.
    """

    def __init__(self, model: ChatModel):
        self.model = model

    def __call__(self, transcripts: Sequence[Transcript]) -> list[Scores | None]:
        """Scores of each; None where the model refuses or its reply cannot be read.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        replies = ask_all(self.model, [request_for(each) for each in transcripts], "judge")
        return [
            read_scores(reply, transcript) if reply else None
            for reply, transcript in zip(replies, transcripts, strict=True)
        ]


def request_for(transcript: Transcript) -> Request:
    """The question that the judge is asked."""
    criteria = _criteria(transcript)
    rules = RUBRIC.format(
        to_find=" and ".join(transcript.to_find) or "nothing",
        shown=SHOWN[transcript.view],
        criteria="\n".join(f"- {name}: {text}" for name, text in criteria.items()),
        example="{" + ", ".join(f'"{name}": 0.5' for name in criteria) + "}",
    )
    right = [f"Right website: {transcript.host}", f"Right operation: {transcript.operation}"]
    right += [f"Stated: {wish.wording}" for wish in transcript.stated.values()]
    right += [f"Preference: {wish.wording}" for wish in transcript.masked.values()]
    said = "\n".join([f"Task: {transcript.text}", *right, "", fence(tell(transcript))])
    messages = (
        {"role": "system", "content": f"{rules}\n\n{FENCE_NOTE}"},
        {"role": "user", "content": said},
    )
    return Request(messages=messages, sampling={"temperature": 0.0})


def read_scores(reply: Reply, transcript: Transcript) -> Scores | None:
    """The scores in a reply; None where it cannot be read, or one is missing or off the scale."""
    form = create_model("Judgement", **dict.fromkeys(_criteria(transcript), (Score, ...)))
    try:
        return Scores(**read_reply(reply, form).model_dump())
    except ValueError:
        return None


def _criteria(transcript: Transcript) -> dict[str, str]:
    """What is scored: retrieval only where the view shows it and the text leaves something out."""
    found = {}
    if transcript.view == "reasoning_aware":
        parts = {"website_retrieval": "website", "preference_retrieval": "preferences"}
        found = {name: text for name, text in RETRIEVAL.items() if parts[name] in transcript.to_find}
    return found | USE
