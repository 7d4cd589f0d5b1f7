"""Profiles by a language model: PersonalWAB's Figures 10 and 11 and Orion's decoupling, in our own words.

The dynamic profile update by a language model (Orion, section 4.2).
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pwagents.embedding import count_tokens
from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel, Message, Reply, Request
from pwagents.llm.fence import fence
from pwagents.profiles.prompts import (
    MICRO,
    REPAIR,
    UPDATE,
    MicroReply,
    UpdateReply,
    WholeReply,
    blank_profile,
    read_reply,
    tell_behavior,
    tell_history,
    whole_prompt,
)
from pwagents.profiles.types import ContextualProfile, GlobalProfile, MicroProfile, ProfileLine
from pwagents.profiles.update import Update, last_shown, settle
from pwagents.schema import Behavior, Product, Step, Usage

SAMPLING = {"temperature": 0.0, "max_tokens": 1000}

Result = TypeVar("Result")
# A reply -> what it says, and what is wrong with it in one line; None, or an empty text.
Reader = Callable[[Reply], tuple[Result | None, str]]


class LlmProfiler:
    """Makes profiles with a language model, many at once.

    A reply that cannot be read, or that strays from the options, is sent back once with what is wrong.
    What still strays becomes "Other", what still cannot be read an empty profile; both are counted.

    Args:
        model: the profiler (GPT-4o-mini in both papers).
        products: the catalogue.
        max_history: tokens (MiniLM's) of purchases told at most. The newest are kept; the prompt says how
            many older ones are left out.

    Attributes:
        failures: "repaired" (replies usable at the second try), "strayed" (fields set to "Other"),
            "unreadable" (empty profiles), "refused" (requests that the model or its provider turned down).
        usage: what all calls cost together.
    """

    def __init__(self, model: ChatModel, products: Mapping[str, Product], max_history: int = 8000):
        self.model, self.products, self.max_history = model, products, max_history
        self.failures: Counter = Counter()
        self.usage = Usage()
        self._lock = threading.Lock()

    def whole(self, histories: Sequence[tuple[Behavior, ...]]) -> list[GlobalProfile]:
        """The global profile of each history (oldest first); one pass over each.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        prompt = whole_prompt()
        asked = [_messages(prompt, text) for text in self._tell(histories)]
        replies = self._ask(asked, _read_whole)
        self._count("strayed", sum(len(reply.strayed()) for reply in replies if reply))
        return [reply.profile() if reply else blank_profile() for reply in replies]

    def micro(self, parts: Sequence[tuple[str, tuple[Behavior, ...]]]) -> list[MicroProfile]:
        """The micro-profile of each part: the name of a cluster, and behaviours of it, oldest first."""
        told = self._tell([behaviors for _, behaviors in parts])
        asked = [
            _messages(MICRO, f"The interest: {fence(name)}\n{text}")
            for (name, _), text in zip(parts, told, strict=True)
        ]
        replies = self._ask(asked, _read_micro)
        return [reply.profile() if reply else MicroProfile() for reply in replies]

    def _tell(self, histories: Sequence[Sequence[Behavior]]) -> list[str]:
        """Each history as text, its oldest behaviours left out where it is too long."""
        told = [[tell_behavior(b, self.products) for b in history] for history in histories]
        lengths = iter(count_tokens([text for texts in told for text in texts]))
        return [self._cut(texts, [next(lengths) for _ in texts]) for texts in told]

    def _cut(self, texts: list[str], lengths: list[int]) -> str:
        first = len(texts)
        room = self.max_history
        while first > 0 and (first == len(texts) or lengths[first - 1] <= room):
            first -= 1
            room -= lengths[first]
        return tell_history(texts[first:], left_out=first)

    def _ask(self, asked: list[list[Message]], read: Reader[Result]) -> list[Result | None]:
        """What the replies say, each sent back once where something is wrong with it."""
        replies = self._replies(asked)
        results = [read(reply) for reply in replies]
        wrong = [i for i, (_, problem) in enumerate(results) if problem and replies[i] is not _REFUSED]
        again = [_correction(asked[i], replies[i], results[i][1]) for i in wrong]
        for i, reply in zip(wrong, self._replies(again), strict=True):
            result, problem = read(reply)
            self._count("repaired", not problem)
            results[i] = (result or results[i][0], problem)
        refused = sum(reply is _REFUSED for reply in replies)
        self._count("refused", refused)
        self._count("unreadable", sum(result is None for result, _ in results) - refused)
        return [result for result, _ in results]

    def _replies(self, asked: Sequence[list[Message]]) -> list[Reply]:
        requests = [Request(messages=tuple(messages), sampling=SAMPLING) for messages in asked]
        try:
            replies = self.model.replies(requests)
        except NotEvaluableError:  # one of them: the others are asked by themselves
            replies = [self._reply(request) for request in requests]
        with self._lock:
            self.usage = sum((reply.usage for reply in replies), self.usage)
        return replies

    def _reply(self, request: Request) -> Reply:
        try:
            return self.model.reply(request)
        except NotEvaluableError:
            return _REFUSED

    def _count(self, what: str, times: int) -> None:
        with self._lock:
            self.failures[what] += times


_REFUSED = Reply(finish_reason="content_filter")


def _read_whole(reply: Reply) -> tuple[WholeReply | None, str]:
    try:
        result = read_reply(reply, WholeReply)
    except ValueError as problem:
        return None, str(problem)
    strayed = result.strayed()
    return result, f"none of the options is chosen for {', '.join(strayed)}" if strayed else ""


def _read_micro(reply: Reply) -> tuple[MicroReply | None, str]:
    try:
        return read_reply(reply, MicroReply), ""
    except ValueError as problem:
        return None, str(problem)


def _messages(system: str, user: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _correction(messages: list[Message], reply: Reply, problem: str) -> list[Message]:
    """The conversation that asks for a better reply."""
    wrong = {"role": "assistant", "content": reply.text or "(nothing)"}  # some endpoints refuse empty texts
    return [*messages, wrong, {"role": "user", "content": REPAIR.replace("<PROBLEM>", problem)}]


UPDATE_SAMPLING = {"temperature": 0.0, "max_tokens": 800}
_RESULTS = 10  # products of a result that are told
_OBSERVATION = 2000  # characters of an observation without products


class LlmUpdater:
    """Lets a language model edit the contextual profile after each step.

    A reply that cannot be read leaves the profile as it was, and is counted. Whatever the model does, a
    stated wish overrides other wishes about its attribute (:func:`pwagents.profiles.update.settle`), and a
    line that it calls history without its being so is taken as inferred.

    Args:
        model: the updater.
        products: the catalogue.

    Attributes:
        malformed: how many replies could not be read.
    """

    def __init__(self, model: ChatModel, products: Mapping[str, Product]):
        self.model, self.products, self.malformed = model, products, 0
        self._lock = threading.Lock()

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """P_ctx,t from P_ctx,t-1 and the session so far, whose last step is the new one.

        Raises:
            InfrastructureError: the model cannot be reached.
            NotEvaluableError: the model or its provider refuses the request.
        """
        if not session or session[-1].error:
            return Update(profile)
        reply = self.model.complete(self.messages(profile, instruction, session), **UPDATE_SAMPLING)
        try:
            edited = read_reply(reply, UpdateReply)
        except ValueError:
            with self._lock:
                self.malformed += 1
            return Update(profile, reply.usage)
        return Update(_merge(profile, edited.lines), reply.usage)

    def messages(
        self, profile: ContextualProfile, instruction: str, session: Sequence[Step]
    ) -> list[Message]:
        """The request to the model."""
        lines = [line.model_dump(include={"text", "positive", "provenance"}) for line in profile.lines]
        parts = [
            f"The customer's request:\n{fence(instruction)}",
            f"The profile so far:\n{fence(json.dumps({'lines': lines}, ensure_ascii=False))}",
            *self._tell_step(session),
        ]
        return [{"role": "system", "content": UPDATE}, {"role": "user", "content": "\n\n".join(parts)}]

    def _tell_step(self, session: Sequence[Step]) -> list[str]:
        """The last step; where it is talk, also what the shop showed before."""
        step = session[-1]
        if step.action.name != "respond":
            call = f"{step.action.name}({json.dumps(step.action.arguments, ensure_ascii=False)})"
            seen = step.observation.products
            return [f"The assistant called:\n{fence(call)}", f"What came of it:\n{self._show(step, seen)}"]
        shown = last_shown(session)
        seen_before = [f"What the shop had shown last:\n{self._show(step, shown)}"] if shown else []
        said = str(step.action.arguments.get("content", ""))
        return [
            *seen_before,
            f"The assistant said:\n{fence(said)}",
            f"The customer answered:\n{fence(step.observation.text)}",
        ]

    def _show(self, step: Step, asins: Sequence[str]) -> str:
        """Products in a line each, or the observation's own text where it shows none."""
        known = [self.products[asin] for asin in asins[:_RESULTS] if asin in self.products]
        lines = [
            f"{p.title} (by {p.store or 'unknown'}, {'no price' if p.price is None else f'${p.price:.2f}'})"
            for p in known
        ]
        return fence("\n".join(lines) if lines else step.observation.text[:_OBSERVATION])


def _merge(before: ContextualProfile, lines: Sequence[ProfileLine]) -> ContextualProfile:
    """The edited lines with ``about`` read off their texts, and the overriding rules applied."""
    known = {(line.text, line.positive): line.provenance for line in before.lines}
    checked = [
        ProfileLine.of(line.text, line.positive, _provenance(line, known.get((line.text, line.positive))))
        for line in lines
    ]
    stated = [line for line in checked if line.provenance == "stated"]
    others = [line for line in checked if line.provenance != "stated"]
    return settle(ContextualProfile(lines=tuple(others)), stated)


def _provenance(line: ProfileLine, before: str | None):
    return "inferred" if line.provenance == "history" and before != "history" else line.provenance
