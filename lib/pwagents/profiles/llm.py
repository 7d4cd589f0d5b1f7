"""Profiles by a language model: PersonalWAB's Figures 10 and 11 and Orion's decoupling, in our own words."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pwagents.embedding import count_tokens
from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel, Message, Reply, Request
from pwagents.llm.fence import fence
from pwagents.profiles.prompts import MICRO, REPAIR, tell_behavior, tell_history, whole_prompt
from pwagents.profiles.replies import MicroReply, WholeReply, blank_profile, read_reply
from pwagents.profiles.types import GlobalProfile, MicroProfile
from pwagents.schema import Behavior, Product, Usage

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
