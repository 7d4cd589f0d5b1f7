"""Profiles made and updated by a language model.

:class:`LlmProfiler` writes global and micro-profiles (PersonalWAB, Figures 10 and 11; Orion, 4.1).
:class:`LlmUpdater` keeps a contextual profile up to date in a conversation (Orion, 4.2). What they tell the
model, and what they read in its replies, is in :mod:`pwagents.profiles.prompts`.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from pwagents.embedding import count_tokens
from pwagents.llm.chat import ChatModel, Message, Reply, Request
from pwagents.llm.fence import fence
from pwagents.llm.replies import Reader, Result, ask_twice, read_reply, reader
from pwagents.profiles.prompts import (
    MICRO,
    UPDATE,
    MicroReply,
    UpdateReply,
    WholeReply,
    blank_profile,
    tell_behavior,
    tell_history,
    whole_prompt,
)
from pwagents.profiles.types import ContextualProfile, GlobalProfile, MicroProfile, ProfileLine, Provenance
from pwagents.profiles.update import Update, last_shown, settle
from pwagents.schema import Behavior, Product, Step

# Neither paper prints its sampling. Temperature 0, because a profile is to be found, not invented.
_PROFILE_SAMPLING = {"temperature": 0.0, "max_tokens": 1000}
_UPDATE_SAMPLING = {"temperature": 0.0, "max_tokens": 800}
_RESULTS = 10  # products of a result that an updater is told about
_OBSERVATION = 2000  # characters of an observation without products


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
    """

    def __init__(self, model: ChatModel, products: Mapping[str, Product], max_history: int = 8000):
        self.model, self.products, self.max_history = model, products, max_history
        self.failures: Counter[str] = Counter()

    def whole(self, histories: Sequence[tuple[Behavior, ...]]) -> list[GlobalProfile]:
        """The global profile of each history (oldest first); one pass over each.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        prompt = whole_prompt()
        asked = [_messages(prompt, text) for text in self._tell(histories)]
        replies = self._ask(asked, _read_whole, "global profiles")
        self.failures["strayed"] += sum(len(reply.strayed()) for reply in replies if reply)
        return [reply.profile() if reply else blank_profile() for reply in replies]

    def micro(self, parts: Sequence[tuple[str, tuple[Behavior, ...]]]) -> list[MicroProfile]:
        """The micro-profile of each part: the name of a cluster, and behaviours of it, oldest first.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        told = self._tell([behaviors for _, behaviors in parts])
        asked = [
            _messages(MICRO, f"The interest: {fence(name)}\n{text}")
            for (name, _), text in zip(parts, told, strict=True)
        ]
        replies = self._ask(asked, reader(lambda reply: read_reply(reply, MicroReply)), "micro-profiles")
        return [reply.profile() if reply else MicroProfile() for reply in replies]

    def _tell(self, histories: Sequence[Sequence[Behavior]]) -> list[str]:
        """Each history as text, its oldest behaviours left out where it is too long."""
        told = [[tell_behavior(b, self.products) for b in history] for history in histories]
        lengths = iter(count_tokens([text for texts in told for text in texts]))  # all at once: it is faster
        return [self._cut(texts, [next(lengths) for _ in texts]) for texts in told]

    def _cut(self, texts: list[str], lengths: list[int]) -> str:
        """The newest of ``texts`` that fit; the very newest even where it alone is too long."""
        first = len(texts)
        room = self.max_history
        while first > 0 and (first == len(texts) or lengths[first - 1] <= room):
            first -= 1
            room -= lengths[first]
        return tell_history(texts[first:], left_out=first)

    def _ask(self, asked: list[list[Message]], read: Reader[Result], what: str) -> list[Result | None]:
        requests = [Request(messages=tuple(messages), sampling=_PROFILE_SAMPLING) for messages in asked]
        return ask_twice(self.model, requests, [read] * len(requests), what, self.failures)


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
        self._lock = threading.Lock()  # episodes in several threads share an updater

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """P_ctx,t from P_ctx,t-1 and the session so far, whose last step is the new one.

        Raises:
            InfrastructureError: the model cannot be reached.
            NotEvaluableError: the model or its provider refuses the request.
        """
        if not session or session[-1].error:
            return Update(profile)
        reply = self.model.complete(self.messages(profile, instruction, session), **_UPDATE_SAMPLING)
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
        return _messages(UPDATE, "\n\n".join(parts))

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


def _messages(system: str, user: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _read_whole(reply: Reply) -> tuple[WholeReply | None, str]:
    try:
        result = read_reply(reply, WholeReply)
    except ValueError as problem:
        return None, str(problem)
    strayed = result.strayed()
    return result, f"none of the options is chosen for {', '.join(strayed)}" if strayed else ""


def _merge(before: ContextualProfile, lines: Sequence[ProfileLine]) -> ContextualProfile:
    """The edited lines with ``about`` read off their texts, and the overriding rules applied."""
    known = {(line.text, line.positive): line.provenance for line in before.lines}
    checked = [
        ProfileLine.of(line.text, line.positive, _provenance(line, known.get((line.text, line.positive))))
        for line in lines
    ]
    stated = [line for line in checked if line.provenance == "stated"]
    others = [line for line in checked if line.provenance != "stated"]
    return settle(before.model_copy(update={"lines": tuple(others)}), stated)


def _provenance(line: ProfileLine, before: Provenance | None) -> Provenance:
    """The provenance that the model gives a line; the past cannot be added to."""
    return "inferred" if line.provenance == "history" and before != "history" else line.provenance
