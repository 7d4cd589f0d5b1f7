"""What web agents are given, the budgets they keep, and the agent that asks a language model.

The agent has the paper's four parts (planner, retriever, reader, generator) and three schemes of access to
the history: none; on demand, where before each step one call says whether the history is needed and for what;
and before execution, where up to five questions are asked, the task is rewritten, and the history is closed.
A reply that cannot be read costs a step, and the model is told what was wrong with it.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, StrictBool

from pwagents.llm.chat import ChatModel, Reply
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.parts import part
from pwagents.llm.replies import read_reply
from pwagents.persona2web import prompts
from pwagents.persona2web.actions import split_action
from pwagents.persona2web.plans import Plans
from pwagents.persona2web.types import (
    Architecture,
    AskStep,
    BrowsingEvent,
    MemoryStep,
    Scheme,
    Step,
    WebStep,
)
from pwagents.schema import Usage

MOST_QUERIES = 5  # before execution
ACTIONS_A_STEP: dict[Architecture, int] = {"occam": 1, "indexed": 3}
PAGES_TOLD: dict[Architecture, int] = {"occam": 2, "indexed": 1}  # the latest; of older steps only the action

Recall = Callable[[str], Sequence[BrowsingEvent]]  # what a user's history holds on a question


class Driver(Protocol):
    """A visit to the local web with one page open, seen and used in the form of one architecture."""

    def observe(self) -> str:
        """The open page as text."""

    def act(self, action: str) -> str:
        """Do one action such as ``click [12]``; why it could not be done, or an empty text."""


@dataclass(frozen=True)
class Brief:
    """What an agent is given with a task.

    Args:
        text: the query at one level.
        recall: the user's history; agents without access do not call it.
        ask: a user who answers questions, in the variant that allows them.
    """

    text: str
    recall: Recall
    ask: Callable[[str], str] | None = None


@dataclass
class Played:
    """What an agent did: the parts of a :class:`WebTrajectory` that are its own."""

    steps: list[Step] = field(default_factory=list)
    answer: str = ""
    rewritten: str = ""

    def left(self, architecture: Architecture, scheme: Scheme) -> int:
        """How many steps the budget still holds (see :func:`most_steps`); a question to the user is one."""
        queries = 0
        if scheme == "pre_execution":  # looks before the first page, as many as are allowed, are no steps
            before = itertools.takewhile(lambda step: step.kind != "web", self.steps)
            queries = min(sum(step.kind == "memory" for step in before), MOST_QUERIES)
        return most_steps(architecture, scheme, queries) - (len(self.steps) - queries)


def most_steps(architecture: Architecture, scheme: Scheme, queries: int = 0) -> int:
    """The steps an agent may take, as the code published with the paper has them.

    On demand, a look into the history is a step; before execution it is none, but Browser-Use (indexed) has
    one step less for each.
    """
    if architecture == "occam":
        return 25 if scheme == "on_demand" else 20
    return 25 - (queries if scheme == "pre_execution" else 0)


def tell_records(records: Sequence[BrowsingEvent]) -> str:
    """Browsing records as a reader sees them, a line each; their ids are left out."""
    days = [datetime.fromtimestamp(record.timestamp / 1000, UTC).date() for record in records]
    return "\n".join(
        f"{day} | {r.type} | {r.object} | {r.website}" for day, r in zip(days, records, strict=True)
    )


@dataclass(frozen=True)
class ChatWebAgent:
    """A language model on the web. Safe to use from several threads: it keeps nothing between episodes.

    Args:
        sampling: of all its calls.
        sample: which of a model's replies to the same request; raise it for a repeated run.
    """

    model: ChatModel
    architecture: Architecture
    scheme: Scheme
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    sample: int = 0

    def __call__(self, brief: Brief, driver: Driver) -> Played:
        """Play one episode.

        Raises:
            InfrastructureError: the model cannot be reached.
            NotEvaluableError: the model refuses a prompt (too long, or filtered).
        """
        return _Episode(self, brief, driver).play()


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


class _Episode:
    """One episode of a :class:`ChatWebAgent`."""

    def __init__(self, agent: ChatWebAgent, brief: Brief, driver: Driver):
        self.agent, self.brief, self.driver = agent, brief, driver
        self.played, self.task, self.usage = Played(), brief.text, Usage()
        self.plans, self.ended = Plans(brief.text), False

    def play(self) -> Played:
        agent = self.agent
        if agent.scheme == "pre_execution":
            self._look_before()
        while not self.ended and self.played.left(agent.architecture, agent.scheme) > 0:
            if agent.scheme != "on_demand" or not self._look():
                self._step()
        return self.played

    def _look_before(self) -> None:
        """Ask the history up to five questions and rewrite the task."""
        rules = prompts.PLAN_QUERIES.format(most=MOST_QUERIES)
        reply = self._ask_object(rules, f"Task: {self.task}", PlanReply)
        if reply is None:
            return
        for query in [query for query in reply.queries if query.strip()][:MOST_QUERIES]:
            self._remember(query, reply.reason or "")
        if self.played.steps:
            found = fence(self._answers())
            reply = self._ask(prompts.REWRITE, f"Task: {self.task}\n\nThe history says:\n{found}")
            written = "" if reply.is_cut else reply.text.strip()
            self.task = self.played.rewritten = written or self.task
            self.plans = Plans(self.task)

    def _look(self) -> bool:
        """Whether this step went into the history (or into a reply about it that cannot be read)."""
        reply = self._ask_object(self._rules(prompts.NEED_MEMORY), self._state(), NeedReply)
        if reply is None:
            return True
        query = (reply.query or "").strip()
        if not (reply.need_memory and query):
            return False
        self._remember(query, reply.reason or "")
        return True

    def _remember(self, query: str, reason: str) -> None:
        records = self.brief.recall(query)
        answer = "There is no record of that."
        if records:
            question = f"Question: {query}\nTask behind it: {self.task}"
            answer = self._ask(prompts.READ, f"{question}\n\nRecords:\n{fence(tell_records(records))}").text
        ids = tuple(record.event_id for record in records)
        self._note(MemoryStep(query=query, retrieved=ids, answer=answer.strip(), reason=reason))

    def _step(self) -> None:
        page, architecture = self.driver.observe(), self.agent.architecture
        rules = self._rules(f"{prompts.ACTIONS[architecture]}{self._ask_help()}\n\n{prompts.REPLY}")
        reply = self._ask(rules, f"{self._state()}\n\nThe page now:\n{fence(page)}")
        raw = reply.text
        # Of a reply that was cut, the last action may be half of one.
        reason, actions = ("", []) if reply.is_cut else read_step(raw)
        most = ACTIONS_A_STEP[architecture]
        questions = [texts for name, texts in map(split_action, actions) if name == "ask" and self.brief.ask]
        if not actions:
            self._refuse(page, reason, raw.splitlines(), prompts.NO_ACTION)
        elif len(actions) > most:
            self._refuse(page, reason, actions, prompts.TOO_MANY.format(found=len(actions), most=most))
        elif questions and len(actions) > 1:
            self._refuse(page, reason, actions, prompts.ASK_ALONE)
        elif questions:
            question = " ".join(questions[0])
            self._note(AskStep(question=question, answer=self.brief.ask(question), reason=reason))
        else:
            done, error = self._do(actions)
            self._note(WebStep(observation=page, reason=reason, action="\n".join(done), error=error))

    def _refuse(self, page: str, reason: str, reply: Sequence[str], error: str) -> None:
        """Keep a step of which nothing was done: all on one line, for lines before the last were done."""
        self._note(WebStep(observation=page, reason=reason, action="; ".join(reply), error=error))

    def _do(self, actions: Sequence[str]) -> tuple[list[str], str]:
        """Do actions until one fails or ends the task: those tried, and what went wrong."""
        tried: list[str] = []
        for action in actions:
            tried.append(" ".join(action.split("\n")))  # a line each
            name, arguments = split_action(action)
            if name == "stop":
                self.played.answer, self.ended = " ".join(arguments), True
                return tried, ""
            error = self._do_own(name, arguments)
            if error is None:
                error = self.driver.act(action)
            if error:
                return tried, error
        return tried, ""

    def _do_own(self, name: str, arguments: Sequence[str]) -> str | None:
        """Do an action that does not touch the page; None where it is one that does."""
        if self.agent.architecture == "occam" and name in ("note", "branch", "prune"):
            return self.plans.do(name, arguments)
        return None

    def _rules(self, how: str) -> str:
        asked = prompts.MAY_ASK if self.brief.ask else ""
        return f"{prompts.SYSTEM.format(but_asked=asked)}\n\n{how}"

    def _ask_help(self) -> str:
        return prompts.ASK if self.brief.ask else ""

    def _state(self) -> str:
        """Task, plan and notes, answers of the history, and the steps so far."""
        parts = [f"Task: {self.task}"]
        if self.agent.architecture == "occam":
            parts.append(f"Plan and notes:\n{fence(self.plans.text())}")
        if answers := self._answers():
            parts.append(f"What the history said:\n{fence(answers)}")
        if said := [f"{s.question} -> {s.answer}" for s in self.played.steps if s.kind == "ask"]:
            parts.append(f"What the person said:\n{fence(chr(10).join(said))}")
        web = [(i, step) for i, step in enumerate(self.played.steps) if step.kind == "web"]
        told = [(i, step) for i, step in web if self.plans.tells(i)]
        pages = {i for i, _ in told[len(told) - (PAGES_TOLD[self.agent.architecture] - 1) :]}
        past = [_tell_step(number, step, i in pages) for number, (i, step) in enumerate(told, 1)]
        parts.append(f"Steps so far:\n{fence(chr(10).join(past))}" if past else "No steps so far.")
        left = self.played.left(self.agent.architecture, self.agent.scheme)
        return "\n\n".join([*parts, f"Steps left: {left}"])

    def _answers(self) -> str:
        looks = [step for step in self.played.steps if step.kind == "memory"]
        return "\n".join(f"{look.query} -> {look.answer}" for look in looks)

    def _ask_object(self, rules: str, said: str, form: type[Form]) -> Form | None:
        """A reply about the history; one that cannot be read is a step, and None."""
        reply = self._ask(rules, said)
        try:
            return read_reply(reply, form)
        except ValueError as mistake:
            error = prompts.NO_JSON.format(mistake=mistake)
            self._note(WebStep(observation="", action=reply.text, error=error))
            return None

    def _ask(self, rules: str, said: str) -> Reply:
        rules = f"{rules}\n\n{FENCE_NOTE}"
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": said}]
        reply = self.agent.model.complete(messages, sample=self.agent.sample, **self.agent.sampling)
        self.usage += reply.usage
        return reply

    def _note(self, step: Step) -> None:
        """Keep a step, with the tokens spent since the one before it."""
        self.plans.note_step(len(self.played.steps))
        self.played.steps.append(step.model_copy(update={"usage": self.usage}))
        self.usage = Usage()


# A line that begins a field, whatever marks a model puts around it.
_FIELD = re.compile(r"^[\s>#*_`\"']*(Reason|Action)[*_`]*:[*_]*[ \t]*", re.MULTILINE)


def read_step(text: str) -> tuple[str, list[str]]:
    """The reason and the actions of a reply; no actions where no line begins with "Action:".

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


def _tell_step(number: int, step: WebStep, with_page: bool) -> str:
    lines = [f"{number}. {step.reason}", f"   did: {step.action[:500]}"]
    lines += [f"   went wrong: {step.error}"] if step.error else []
    lines += [f"   the page then:\n{step.observation}"] if with_page else []
    return "\n".join(lines)
