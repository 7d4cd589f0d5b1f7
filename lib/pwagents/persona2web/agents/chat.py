"""The agent that asks a language model, with AgentOccam's plans, and what the model is told.

The agent has the paper's four parts (planner, retriever, reader, generator) and three schemes of access to
the history: none; on demand, where before each step one call sees the page and says whether the history is
needed and for what; and before execution, where up to five questions are asked, the task is rewritten, and
the history is closed. A reply that cannot be read costs a step, and the model is told what was wrong with it.

All wording is ours. Page texts, browsing records and what was read from them come from outside and are fenced
wherever they are told. Calls set no temperature, which some of the paper's models refuse: what to send is for
``players.sampling``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, StrictBool

from pwagents.llm.chat import ChatModel, Reply
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.parts import part
from pwagents.llm.replies import read_reply
from pwagents.persona2web.agents.episode import MOST_QUERIES, Brief, Played
from pwagents.persona2web.browser.driver import Visit, split_action
from pwagents.persona2web.world.types import Architecture, BrowsingEvent, MemoryStep, Scheme, Step, WebStep
from pwagents.schema import Usage
from pwagents.words import read_yaml

ACTIONS_A_STEP: dict[Architecture, int] = {"occam": 1, "indexed": 3}
PAGES_KEPT: dict[Architecture, int] = {"occam": 2, "indexed": 1}  # the latest; of older steps only the action

TOLD = read_yaml(__package__, "chat.yaml")  # the prompts
NO_ACTION = "your reply held no line that begins with 'Action:'"
TOO_MANY = "your reply held {found} actions; at most {most} a step"
NO_JSON = "your reply about the browsing history was no JSON object of the form asked for: {mistake}"


class NeedReply(BaseModel):
    """Whether the history is needed, and for what."""

    need_memory: StrictBool
    query: str | None = None
    reason: str | None = None


class PlanReply(BaseModel):
    """What to ask the history before execution."""

    queries: tuple[str, ...]
    reason: str | None = None


Form = TypeVar("Form", bound=BaseModel)


class Asking:
    """A language model that is asked about a user's history: questions, answers, a rewritten task.

    ``steps`` is what was done so far, ``usage`` that of the calls since the last step.
    """

    def __init__(self, model: ChatModel, brief: Brief, sample: int = 0):
        self.model, self.brief, self.sample = model, brief, sample
        self.steps: list[Step] = []
        self.task, self.usage = brief.text, Usage()

    def look_before(self) -> str:
        """Ask the history up to five questions; return the task rewritten, or "" if nothing was asked."""
        rules = TOLD["plan_queries"].format(most=MOST_QUERIES)
        reply = self.ask_object(rules, f"Task: {self.task}", PlanReply)
        queries = [query for query in (reply.queries if reply else ()) if query.strip()]
        for query in queries[:MOST_QUERIES]:
            self.remember(query, reply.reason or "")
        if queries:
            found = fence(self.answers())
            reply = self.ask(TOLD["rewrite"], f"Task: {self.task}\n\nThe history says:\n{found}")
            self.task = ("" if reply.is_cut else reply.text.strip()) or self.task
        return self.task if queries else ""

    def remember(self, query: str, reason: str) -> None:
        """Look into the history, and let the model read what was found."""
        records, answer = self.brief.recall(query), "There is no record of that."
        if records:
            question = f"Question: {query}\nTask behind it: {self.task}"
            answer = self.ask(TOLD["read"], f"{question}\n\nRecords:\n{fence(tell_records(records))}").text
        ids = tuple(record.event_id for record in records)
        self.note(MemoryStep(query=query, retrieved=ids, answer=answer.strip(), reason=reason))

    def answers(self) -> str:
        """Return what the history said so far."""
        looks = [step for step in self.steps if step.kind == "memory"]
        return "\n".join(f"{look.query} -> {look.answer}" for look in looks)

    def ask_object(self, rules: str, said: str, form: type[Form]) -> Form | None:
        """Return a reply about the history; one that cannot be read is a step, and None."""
        reply = self.ask(rules, said)
        try:
            return read_reply(reply, form)
        except ValueError as mistake:
            self.note(WebStep(observation="", action=reply.text, error=NO_JSON.format(mistake=mistake)))
            return None

    def ask(self, rules: str, said: str) -> Reply:
        """Return the model's reply."""
        rules = f"{rules}\n\n{FENCE_NOTE}"
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": said}]
        reply = self.model.complete(messages, sample=self.sample)
        self.usage += reply.usage
        return reply

    def note(self, step: Step) -> None:
        """Keep a step, with the tokens spent since the one before it."""
        self.steps.append(step.model_copy(update={"usage": self.usage}))
        self.usage = Usage()


@dataclass(frozen=True)
class ChatWebAgent:
    """A language model on the web, which keeps nothing between episodes.

    ``sample`` says which of its replies to the same request; raise it for a repeated run.
    """

    model: ChatModel
    architecture: Architecture
    scheme: Scheme
    sample: int = 0

    def __call__(self, brief: Brief, visit: Visit) -> Played:
        """Play one episode; InfrastructureError or NotEvaluableError if the model does not answer."""
        episode = _Episode(self, brief, visit)
        if self.scheme == "pre_execution":
            episode.played.rewritten = episode.look_before()
            episode.plans.plans[0] = (episode.task, -1)
        while not episode.ended and episode.played.left(self.architecture, self.scheme) > 0:
            page = visit.observe()
            if self.scheme != "on_demand" or not episode.look(page):
                episode.act(page)
        return episode.played


class _Episode(Asking):
    """One episode of a :class:`ChatWebAgent`."""

    def __init__(self, agent: ChatWebAgent, brief: Brief, visit: Visit):
        super().__init__(agent.model, brief, agent.sample)
        self.agent, self.visit = agent, visit
        self.played, self.plans, self.ended = Played(self.steps), Plans(brief.text), False

    def look(self, page: str) -> bool:
        """Return whether this step went into the history (or into a reply about it that cannot be read)."""
        rules = "\n\n".join([TOLD["system"], TOLD["need_memory"]])
        reply = self.ask_object(rules, self._state(page), NeedReply)
        if reply is None:
            return True
        query = (reply.query or "").strip()
        if not (reply.need_memory and query):
            return False
        self.remember(query, reply.reason or "")
        return True

    def act(self, page: str) -> None:
        """Take one step on the web."""
        architecture = self.agent.architecture
        rules = "\n\n".join([TOLD["system"], TOLD["actions"][architecture], TOLD["reply"]])
        reply = self.ask(rules, self._state(page))
        # Of a reply that was cut, the last action may be half of one.
        reason, actions = ("", []) if reply.is_cut else read_step(reply.text)
        most, wrong = ACTIONS_A_STEP[architecture], ""
        if not actions:
            wrong, actions = NO_ACTION, reply.text.splitlines()
        elif len(actions) > most:
            wrong = TOO_MANY.format(found=len(actions), most=most)
        if wrong:  # nothing was done: all on one line, for lines before the last were done
            self.note(WebStep(observation=page, reason=reason, action="; ".join(actions), error=wrong))
        else:
            done, error = self._do(actions)
            self.note(WebStep(observation=page, reason=reason, action="\n".join(done), error=error))

    def note(self, step: Step) -> None:
        """Keep a step, and under which plan it was taken."""
        self.plans.note_step()
        super().note(step)

    def _do(self, actions: Sequence[str]) -> tuple[list[str], str]:
        """Do actions until one fails or ends the task: return those tried, and what went wrong."""
        tried: list[str] = []
        for action in actions:
            tried.append(" ".join(action.split("\n")))  # a line each
            name, arguments = split_action(action)
            if name == "stop":
                self.played.answer, self.ended = " ".join(arguments), True
                return tried, ""
            if self.agent.architecture == "occam" and name in ("note", "branch", "prune"):
                error = self.plans.do(name, arguments)
            else:
                error = self.visit.act(action)
            if error:
                return tried, error
        return tried, ""

    def _state(self, page: str) -> str:
        """Return task, plan and notes, the history's answers, the steps so far, and the open page."""
        parts = [f"Task: {self.task}"]
        if self.agent.architecture == "occam":
            parts.append(f"Plan and notes:\n{fence(self.plans.text())}")
        if answers := self.answers():
            parts.append(f"What the history said:\n{fence(answers)}")
        told = [(i, s) for i, s in enumerate(self.steps) if s.kind == "web" and self.plans.is_told(i)]
        pages = {i for i, _ in told[len(told) - (PAGES_KEPT[self.agent.architecture] - 1) :]}
        past = []
        for number, (i, step) in enumerate(told, 1):
            past += [f"{number}. {step.reason}", f"   did: {step.action[:500]}"]
            past += [f"   went wrong: {step.error}"] if step.error else []
            past += [f"   the page then:\n{step.observation}"] if i in pages else []
        parts.append(f"Steps so far:\n{fence(chr(10).join(past))}" if past else "No steps so far.")
        left = self.played.left(self.agent.architecture, self.agent.scheme)
        return "\n\n".join([*parts, f"Steps left: {left}", f"The page now:\n{fence(page)}"])


class Plans:
    """AgentOccam's tree of plans; the first is the task. Steps of a plan that was given up are left out."""

    def __init__(self, task: str):
        self.plans, self.active = [(task, -1)], 0  # each with the number of the plan above it
        self.notes: list[str] = []
        self._plan_of: list[int] = []  # the plan that each step was taken under

    def do(self, name: str, arguments: Sequence[str]) -> str:
        """Carry out ``note``, ``branch`` or ``prune``; return what is wrong, or an empty text."""
        text = " ".join(arguments).strip()
        if not text:
            return f"{name} needs a text in brackets"
        if name == "note":
            self.notes.append(text)
        elif name == "branch":
            self.plans.append((text, self.active))
            self.active = len(self.plans) - 1
        elif not (arguments[0].isdecimal() and int(arguments[0][:4]) in self._line()[1:]):
            return f"prune needs the number of a plan above the present one, not {arguments[0][:20]!r}"
        else:
            self.active = int(arguments[0])
        return ""

    def note_step(self) -> None:
        """Remember under which plan the next step is taken."""
        self._plan_of.append(self.active)

    def is_told(self, step: int) -> bool:
        """Return whether the step belongs to the present plan or one above it."""
        return self._plan_of[step] in self._line()

    def text(self) -> str:
        """Return the present plan, those above it, and all notes."""
        plans = [f"[{i}] {self.plans[i][0]}" for i in reversed(self._line())]
        return "\n".join(plans + [f"note: {note}" for note in self.notes])

    def _line(self) -> list[int]:
        """Return the present plan and those above it, upwards."""
        line = [self.active]
        while self.plans[line[-1]][1] >= 0:
            line.append(self.plans[line[-1]][1])
        return line


# A line that begins a field, whatever marks a model puts around it.
_FIELD = re.compile(r"^[\s>#*_`\"']*(Reason|Action)[*_`]*:[*_]*[ \t]*", re.MULTILINE)


def read_step(text: str) -> tuple[str, list[str]]:
    """Return the reason and the actions of a reply; no actions if no line begins with "Action:".

    An action may stand on the next line, in a fence, in marks, or go on over lines within its brackets.
    """
    _, *fields = _FIELD.split(part(text).text)
    reason, actions = "", []
    for name, body in zip(fields[::2], fields[1::2], strict=True):
        if name == "Reason":
            reason = reason or body.strip().strip("*_")
            continue
        lines = [line.strip() for line in body.splitlines() if line.strip(" \t`")]
        lines = lines[1:] if lines and lines[0].startswith("```") else lines  # the fence's language
        action = lines.pop(0) if lines else ""
        while lines and action.count("[") > action.count("]"):
            action += f"\n{lines.pop(0)}"
        if action := action.strip("`\"'* "):
            actions.append(action)
    return reason, actions


def tell_records(records: Sequence[BrowsingEvent]) -> str:
    """Return browsing records as a reader sees them, a line each; their ids are left out."""
    days = [datetime.fromtimestamp(record.timestamp / 1000, UTC).date() for record in records]
    told = [f"{record.type} | {record.object} | {record.website}" for record in records]
    return "\n".join(f"{day} | {text}" for day, text in zip(days, told, strict=True))
