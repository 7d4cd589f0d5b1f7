"""Profiles written and updated by a language model.

:class:`LlmProfiler` writes them (PersonalWAB, Figures 10 and 11; Orion, 4.1), :class:`LlmUpdater` updates a
contextual profile in a conversation (Orion, 4.2). The prompts are in ``llm.yaml``.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pwagents.embedding import count_tokens
from pwagents.llm.chat import ChatModel, Message, Reply, Request
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import Reader, Result, Stray, ask_twice, read_reply
from pwagents.profiles.contextual import ContextualProfile, ProfileLine, Update
from pwagents.profiles.types import OTHER, GlobalProfile, MicroProfile
from pwagents.profiles.update import last_results, merge_lines
from pwagents.schema import Behavior, Product, Step, Text, UserProfile
from pwagents.words import read_yaml

PROMPTS = read_yaml(__package__, "llm.yaml")  # with the fields of a profile and their options
MAX_HISTORY = 8000  # tokens (MiniLM's) of purchases in a prompt
_MOST_LINES = 10  # of a list of preferences, as prompts say
# Neither paper prints its sampling. Temperature 0, because a profile should be found, not invented.
_PROFILE_SAMPLING = {"temperature": 0.0, "max_tokens": 1000}
_UPDATE_SAMPLING = {"temperature": 0.0, "max_tokens": 800}
_REVIEW = 1000  # characters of a review
_RESULTS = 10  # products of a result
_OBSERVATION = 2000  # characters of an observation without products
_FIELDS = {str(info.alias): name for name, info in UserProfile.model_fields.items()}  # "Age" -> "age"

# A few more lines than asked for are accepted; many more mean that the reply has gone wrong.
Lines = Annotated[tuple[Text, ...], Field(max_length=2 * _MOST_LINES)]


class LlmProfiler:
    """Writes profiles with a language model (GPT-4o-mini in both papers), many at once.

    A reply that cannot be read, or that strays from the options, is sent back once with the problem. Fields
    that stray again become "Other"; a reply that cannot be read again becomes an empty profile. The oldest
    purchases beyond :data:`MAX_HISTORY` are left out, and the prompt says how many.

    Attributes:
        failures: "repaired" (replies usable at the second try), "strayed" (fields set to "Other"),
            "unreadable" (empty profiles), "refused" (by the model or its provider).

    Raises:
        InfrastructureError: the model cannot be reached.
    """

    def __init__(self, model: ChatModel, products: Mapping[str, Product]):
        self.model, self.products, self.failures = model, products, Counter[str]()

    def write_global(self, histories: Sequence[tuple[Behavior, ...]]) -> list[GlobalProfile]:
        """Write the global profile of each history (oldest first)."""
        replies = self._ask(global_prompt(), self._list_purchases(histories), _read_global, "global profiles")
        blank = GlobalProfile(facts=UserProfile(**dict.fromkeys(_FIELDS, OTHER)))
        written = [reply or (blank, []) for reply in replies]
        self.failures["strayed"] += sum(len(strays) for _, strays in written)
        return [profile for profile, _ in written]

    def write_micro(self, samples: Sequence[tuple[str, tuple[Behavior, ...]]]) -> list[MicroProfile]:
        """Write the micro-profile of each sample: a cluster's name and behaviors of it, oldest first."""
        names, behaviors = zip(*samples, strict=True) if samples else ((), ())
        purchases = zip(names, self._list_purchases(behaviors), strict=True)
        texts = [f"The interest: {fence(name)}\n{listed}" for name, listed in purchases]

        def read(reply: Reply) -> MicroProfile:
            return MicroProfile(**read_reply(reply, MicroReply).model_dump())

        return [each or MicroProfile() for each in self._ask(_prompt("micro"), texts, read, "micro-profiles")]

    def _list_purchases(self, histories: Sequence[Sequence[Behavior]]) -> list[str]:
        """Return the purchases of each history as text; of a long one the newest."""
        described = [[_describe(b, self.products[b.parent_asin]) for b in history] for history in histories]
        lengths = iter(count_tokens([text for texts in described for text in texts]))  # faster all at once
        prompts = []
        for texts in described:
            tokens = [next(lengths) for _ in texts]
            # The newest that fit; the very newest even if it alone is too long.
            n_fitting = sum(total <= MAX_HISTORY for total in accumulate(reversed(tokens)))
            first = max(0, len(texts) - max(1, n_fitting))
            note = f"(The {first} oldest purchases are left out for length.)\n" if first else ""
            prompts.append(f"{note}Purchases, oldest first:\n{fence(chr(10).join(texts[first:]))}")
        return prompts

    def _ask(self, system: str, texts: list[str], read: Reader[Result], what: str) -> list[Result | None]:
        requests = [Request(messages=messages_of(system, text), sampling=_PROFILE_SAMPLING) for text in texts]
        return ask_twice(self.model, requests, [read] * len(requests), what, self.failures)


class LlmUpdater:
    """Lets a language model edit the contextual profile after each step.

    A reply that cannot be read leaves the profile unchanged and is counted (``failures``). Whatever the model
    replies, stated wishes override others (:func:`pwagents.profiles.update.merge_lines`), and a line that it
    wrongly calls history counts as inferred.
    """

    def __init__(self, model: ChatModel, products: Mapping[str, Product]):
        self.model, self.products, self.failures = model, products, Counter[str]()
        self._lock = threading.Lock()  # episodes in several threads share an updater

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """Return P_ctx,t, given P_ctx,t-1 and the session so far, whose last step is the new one.

        Raises:
            InfrastructureError: the model cannot be reached.
            NotEvaluableError: the model or its provider refuses the request.
        """
        if not session or session[-1].error:
            return Update(profile)
        reply = self.model.complete(self.messages(profile, instruction, session), **_UPDATE_SAMPLING)
        try:
            edited = read_reply(reply, UpdateReply).lines
        except ValueError:
            with self._lock:
                self.failures["malformed"] += 1
            return Update(profile, reply.usage)
        # ``about`` is read off the texts, lines of history cannot be added, and stated wishes override.
        past = {(line.text, line.positive) for line in profile.lines if line.provenance == "history"}
        lines = []
        for line in edited:
            invents = line.provenance == "history" and (line.text, line.positive) not in past
            lines.append(ProfileLine.of(line.text, line.positive, "inferred" if invents else line.provenance))
        others = tuple(line for line in lines if line.provenance != "stated")
        stated = [line for line in lines if line.provenance == "stated"]
        return Update(merge_lines(ContextualProfile(lines=others), stated), reply.usage)

    def messages(
        self, profile: ContextualProfile, instruction: str, session: Sequence[Step]
    ) -> tuple[Message, ...]:
        """Write the request: instruction, profile, and the last step with the products shown before it."""
        lines = [line.model_dump(include={"text", "positive", "provenance"}) for line in profile.lines]
        *_, step = session
        parts = {
            "The customer's request": fence(instruction),
            "The profile so far": fence(json.dumps({"lines": lines}, ensure_ascii=False)),
        }
        if step.action.name == "respond":
            if results := last_results(session):
                parts["What the shop had shown last"] = self._list_products(step, results)
            parts["The assistant said"] = fence(str(step.action.arguments.get("content", "")))
            parts["The customer answered"] = fence(step.observation.text)
        else:
            arguments = json.dumps(step.action.arguments, ensure_ascii=False)
            parts["The assistant called"] = fence(f"{step.action.name}({arguments})")
            parts["What came of it"] = self._list_products(step, step.observation.products)
        return messages_of(_prompt("update"), "\n\n".join(f"{head}:\n{text}" for head, text in parts.items()))

    def _list_products(self, step: Step, asins: Sequence[str]) -> str:
        """Return a line for each product, or the observation's own text if there are none."""
        products = [self.products[asin] for asin in asins[:_RESULTS] if asin in self.products]
        lines = [
            f"{p.title} (by {p.store or 'unknown'}, {'no price' if p.price is None else f'${p.price:.2f}'})"
            for p in products
        ]
        return fence("\n".join(lines) if lines else step.observation.text[:_OBSERVATION])


def global_prompt() -> str:
    """Return the profiler's prompt, with fields and options in the order of the published profiles."""
    lines = []
    for name in _FIELDS:
        if name in PROMPTS["levels"]:
            levels = "; ".join(f"{level} ({text})" for level, text in PROMPTS["levels"][name].items())
            lines.append(f'- "{name}": exactly one of: {levels}.')
        elif name in PROMPTS["choices"]:
            lines.append(f'- "{name}": exactly one of: {"; ".join(PROMPTS["choices"][name])}.')
        else:
            lines.append(f'- "{name}": keywords, separated by commas: {PROMPTS["free"][name]}.')
    lines.append(f"The focus aspects are: {', '.join(PROMPTS['focus_aspects'])}.")
    return _prompt("global", fields="\n".join(lines))


class GlobalReply(UserProfile):
    """A global profile as a model writes it; other keys are ignored."""

    model_config = ConfigDict(extra="ignore")

    positive: Lines = Field(alias="Positive Preferences")
    negative: Lines = Field(alias="Negative Preferences")

    @field_validator(*UserProfile.model_fields, mode="before")
    @classmethod
    def _join_keywords(cls, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class MicroReply(BaseModel):
    """A micro-profile as a model writes it; other keys are ignored."""

    recommendations: Lines = Field(alias="Domain Recommendations")
    avoidances: Lines = Field(alias="Domain Avoidances")


class UpdateReply(BaseModel):
    """A contextual profile as a model writes it."""

    lines: Annotated[tuple[ProfileLine, ...], Field(max_length=4 * _MOST_LINES)]


def _read_global(reply: Reply) -> tuple[GlobalProfile, list[str]]:
    """Return a global profile and the names of the fields that stray from the options, now "Other"."""
    written = read_reply(reply, GlobalReply)
    facts = {name: getattr(written, field) for name, field in _FIELDS.items()}
    strays = []
    for name, choices in PROMPTS["choices"].items():
        value = facts[name].strip().casefold()  # capitals do not matter
        option = next((choice for choice in choices if choice.casefold() == value), None)
        strays += [name] if option is None else []
        facts[name] = option or OTHER
    profile = GlobalProfile(facts=UserProfile(**facts), positive=written.positive, negative=written.negative)
    if strays:
        raise Stray(f"none of the options is chosen for {', '.join(strays)}", (profile, strays))
    return profile, strays


def _prompt(name: str, **parts: str) -> str:
    parts |= {"fence_note": FENCE_NOTE, "json_only": PROMPTS["json_only"]}
    return PROMPTS[name].format(lines=PROMPTS["lines"].format(n=_MOST_LINES), **parts)


def _describe(behavior: Behavior, product: Product) -> str:
    """Return one purchase and its review in one paragraph."""
    review = behavior.review
    day = datetime.fromtimestamp(behavior.timestamp / 1000, UTC).date()
    price = "" if product.price is None else f", ${product.price:.2f}"
    store = f", by {product.store}" if product.store else ""
    text = f"{review.title}. {review.text}".strip(". ")[:_REVIEW]
    return f"[{day}] {product.title} ({product.category}{store}{price}). {review.rating:g} of 5 stars. {text}"


def messages_of(system: str, user: str) -> tuple[Message, Message]:
    """Return a system and a user message."""
    return {"role": "system", "content": system}, {"role": "user", "content": user}
