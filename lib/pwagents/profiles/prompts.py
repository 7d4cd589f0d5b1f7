"""What the language models of this room are told, and how their replies are read.

The prompts follow PersonalWAB's Figures 10 and 11 and Orion's sections 4.1 and 4.2 in our own words. Replies
are JSON (:mod:`pwagents.llm.replies`); each kind has a class that says what it may hold.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.types import OTHER, GlobalProfile, MicroProfile, ProfileLine
from pwagents.project import read_yaml
from pwagents.schema import Behavior, Product, Text, UserProfile

POSITIVE, NEGATIVE = "Positive Preferences", "Negative Preferences"
RECOMMENDATIONS, AVOIDANCES = "Domain Recommendations", "Domain Avoidances"
MOST_LINES = 10  # of a list of preferences, as models are asked
_REVIEW = 1000  # characters of a review that are told
_FIELDS = {str(info.alias): name for name, info in UserProfile.model_fields.items()}  # "Age" -> "age"

# Some more lines than asked for are taken; many more mean that a model has run wild.
Lines = Annotated[tuple[Text, ...], Field(max_length=2 * MOST_LINES)]

_LINES = (
    f'Each list holds at most {MOST_LINES} short lines of the form "attribute: value", like "color: navy" or '
    '"price: budget", the surest first, the attribute in one or two lower-case words. Write only what the '
    "purchases and reviews support; an empty list is a good answer."
)
_JSON_ONLY = "Answer with one JSON object and nothing else."

WHOLE = f"""\
You analyse what a customer of an online shop bought and wrote, and describe the customer in a profile.

{FENCE_NOTE}

The profile has these fields:
<FIELDS>
It ends with two lists that keep likes and dislikes apart. "{POSITIVE}": what the customer likes in general, \
whatever is bought. "{NEGATIVE}": what to keep away from the customer everywhere, above all what bad reviews \
have in common.
{_LINES}

{_JSON_ONLY} Its keys are the names of the fields and of the two lists; fields are texts."""

MICRO = f"""\
You analyse a few purchases of one customer of an online shop, all from one interest, and say what matters \
to the customer within this interest.

{FENCE_NOTE}

Keep likes and dislikes apart in two lists. "{RECOMMENDATIONS}": which properties of products to look for \
here. "{AVOIDANCES}": which materials, functions or other properties to avoid here.
{_LINES}

{_JSON_ONLY} Its keys are the names of the two lists."""

UPDATE = f"""\
You keep the profile of what an online shop's customer wants in the present conversation up to date. You get \
the request, the profile so far, and the last step: what the shopping assistant did, and what came of it.

{FENCE_NOTE}

The profile is a list of lines. Each has a "text" of the form "attribute: value", "positive" (true for a \
wish, false for something to avoid) and its "provenance":
- "history": known from before the conversation; you never add such lines;
- "stated": said by the customer in this conversation;
- "inferred": your conclusion from what the customer turned down or accepted.

Edit the profile: correct lines that the last step contradicts, add what it tells, take away what no longer \
holds, and leave all other lines as they are. The customer's words count most: a stated line replaces \
inferred and history lines about the same attribute. If the step tells nothing, repeat the profile as it is.

{_JSON_ONLY} Its only key is "lines"."""


def options() -> dict:
    """The fields of a profile and their options, from ``options.yaml``."""
    return read_yaml(__package__, "options.yaml")


def whole_prompt() -> str:
    """:data:`WHOLE` with the fields and their options, in the order of the published profiles."""
    known, lines = options(), []
    for field in UserProfile.model_fields.values():
        name = str(field.alias)
        if name in known["levels"]:
            levels = "; ".join(f"{level} ({text})" for level, text in known["levels"][name].items())
            lines.append(f'- "{name}": exactly one of: {levels}.')
        elif name in known["choices"]:
            lines.append(f'- "{name}": exactly one of: {"; ".join(known["choices"][name])}.')
        else:
            lines.append(f'- "{name}": keywords, separated by commas: {known["free"][name]}.')
    lines.append(f"The focus aspects are: {', '.join(known['focus_aspects'])}.")
    return WHOLE.replace("<FIELDS>", "\n".join(lines))


def tell_history(told: Sequence[str], left_out: int) -> str:
    """Behaviours (:func:`tell_behavior`, oldest first) as fenced data, with a word on those left out."""
    note = f"(The {left_out} oldest purchases are left out for length.)\n" if left_out else ""
    return f"{note}Purchases, oldest first:\n{fence(chr(10).join(told))}"


def tell_behavior(behavior: Behavior, products: Mapping[str, Product]) -> str:
    """One purchase and its review, in one paragraph."""
    product, review = products[behavior.parent_asin], behavior.review
    day = datetime.fromtimestamp(behavior.timestamp / 1000, UTC).date()
    price = "" if product.price is None else f", ${product.price:.2f}"
    store = f", by {product.store}" if product.store else ""
    said = f"{review.title}. {review.text}".strip(". ")[:_REVIEW]
    return f"[{day}] {product.title} ({product.category}{store}{price}). {review.rating:g} of 5 stars. {said}"


class WholeReply(UserProfile):
    """A global profile as a model writes it. Keywords may come as a list; keys that were not asked for are
    passed over."""

    model_config = ConfigDict(extra="ignore")

    positive: Lines = Field(alias=POSITIVE)
    negative: Lines = Field(alias=NEGATIVE)

    @model_validator(mode="before")
    @classmethod
    def _join_keywords(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            key: ", ".join(map(str, value)) if isinstance(value, list) and key in _FIELDS else value
            for key, value in data.items()
        }

    def strayed(self) -> list[str]:
        """The fields whose value is none of the options."""
        return [name for name in options()["choices"] if _option(name, getattr(self, _FIELDS[name])) is None]

    def profile(self) -> GlobalProfile:
        """The profile; an option in other capitals is taken for it, a value that strays becomes "Other"."""
        facts = {name: getattr(self, field) for name, field in _FIELDS.items()}
        facts |= {name: _option(name, facts[name]) or OTHER for name in options()["choices"]}
        return GlobalProfile(facts=UserProfile(**facts), positive=self.positive, negative=self.negative)


class MicroReply(BaseModel):
    """A micro-profile as a model writes it; keys that were not asked for are passed over."""

    recommendations: Lines = Field(alias=RECOMMENDATIONS)
    avoidances: Lines = Field(alias=AVOIDANCES)

    def profile(self) -> MicroProfile:
        return MicroProfile(recommendations=self.recommendations, avoidances=self.avoidances)


class UpdateReply(BaseModel):
    """A contextual profile as a model writes it."""

    lines: Annotated[tuple[ProfileLine, ...], Field(max_length=4 * MOST_LINES)]


def blank_profile() -> GlobalProfile:
    """What is known of a user when no reply could be read."""
    return GlobalProfile(facts=UserProfile(**dict.fromkeys(_FIELDS, OTHER)))


def _option(name: str, value: str) -> str | None:
    """The option of a field that a value is, capitals aside; None where it is none of them."""
    wanted = value.strip().casefold()
    return next((option for option in options()["choices"][name] if option.casefold() == wanted), None)
