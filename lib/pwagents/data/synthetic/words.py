"""What the people of the synthetic world write: reviews and instructions."""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from pwagents.data.synthetic.people import Person, Purchase
from pwagents.data.synthetic.shop import Item, language, shared_heads
from pwagents.schema import Review, TaskType


@dataclass(frozen=True)
class TaskTruth:
    """What an instruction means, and where to find what it leaves out. No agent sees it.

    Args:
        kind: "open" names a situation, "ambiguous" a word that several domains share, "incomplete" the
            type of product and some attributes, "complete" the type and all attributes.
        interest: the domain that the task was drawn from.
        wants: slot -> the value of the target, and "type" -> its type.
        stated: the slots that the instruction names.
        in_history: slots left out whose wanted value an agent can find in the past: it is the user's current
            preference in this interest, and the user bought it there before the first task of the split.
        in_head: slots left out that an agent can only learn by asking the user.
    """

    kind: str
    interest: str
    wants: dict[str, str]
    stated: tuple[str, ...]
    in_history: tuple[str, ...]
    in_head: tuple[str, ...]


def write_review(person: Person, item: Item, purchase: Purchase, generator: np.random.Generator) -> Review:
    """Write a review in the person's tone and length: praise for what fits, blame for what they dislike."""
    mood = "high" if purchase.rating >= 4 else "low"
    tone = language()["tones"][person.tone]
    phrases = language()["likes" if mood == "high" else "dislikes"]
    slots = _topics(person, item, purchase, mood)[: person.sentences]
    sentences = [_pick(phrases[slot], generator).format(v=item.values[slot]) for slot in slots]
    opener = _pick(tone["opener"][mood], generator).format(type=item.type)
    closer = _pick(tone["closer"][mood], generator)
    return Review(
        rating=purchase.rating,
        title=_pick(tone["title"][mood], generator),
        text=" ".join([opener, *sentences, closer]),
    )


def _topics(person: Person, item: Item, purchase: Purchase, mood: str) -> list[str]:
    """List the slots worth a sentence: what fits; of a disappointment what is disliked, then the rest."""
    fits = [slot for slot, value in purchase.preferences.items() if item.values[slot] == value]
    if mood == "high":
        return fits
    disliked = [slot for slot, value in item.values.items() if value in person.dislikes]
    return disliked + [slot for slot in item.values if slot not in fits and slot not in disliked]


def write_request(
    task_type: TaskType,
    person: Person,
    item: Item,
    purchase: Purchase,
    bought: Set[tuple[str, str, str]],
    completeness: float,
    generator: np.random.Generator,
) -> tuple[str, TaskTruth]:
    """Write the instruction of a search or recommend task, and tell the truth about what it leaves out.

    Args:
        bought: (domain, slot, value) of all that the user bought before the first task of the split.
        completeness: the probability that an attribute is named; at 1 every request is complete.
            Below 1 recommendations name no attribute: they are requests to explore.
    """
    # Shares are chosen so that searches of all three incomplete kinds are frequent enough to compare.
    stated = [slot for slot in item.values if generator.random() < completeness]
    if len(stated) == len(item.values):
        kind = "complete"
    elif task_type == "recommend":
        kind, stated = "open", []
    elif (draw := generator.random()) < 0.15:
        # "something for slow mornings": with many attributes it would be no open request
        kind, stated = "open", stated[:1]
    else:
        kind = "ambiguous" if draw < 0.7 and item.head in shared_heads() else "incomplete"

    # What is left out, an agent finds in the history, or has to ask for.
    wants = item.values | {"type": item.type}
    current = purchase.interest.current
    left_out = [slot for slot in item.values if slot not in stated]
    found = [s for s in left_out if wants[s] == current[s] and (item.domain.name, s, wants[s]) in bought]
    type_is_stated = kind in ("incomplete", "complete")
    truth = TaskTruth(
        kind=kind,
        interest=item.domain.name,
        wants=wants,
        stated=(*stated, "type") if type_is_stated else tuple(stated),
        in_history=tuple(found),
        in_head=tuple(s for s in left_out if s not in found) + (() if type_is_stated else ("type",)),
    )
    if kind == "open":
        noun = item.domain.scenario if task_type == "recommend" else f"something for {item.domain.scenario}"
    else:
        noun = with_article(item.head if kind == "ambiguous" else item.type)
    named = ", ".join(language()["wishes"][slot].format(v=item.values[slot]) for slot in stated)
    template = language()["tones"][person.tone]["ask" if task_type == "search" else "recommend"]
    return _pick(template, generator).format(want=f"{noun} {named}".strip()), truth


def with_article(noun: str) -> str:
    """Say "a new yoga mat", "some running shoes" or "some olive oil"."""
    head = noun.split()[-1]
    return f"some {noun}" if head.endswith("s") or head in language()["uncounted"] else f"a new {noun}"


def ask_for_review(person: Person, item: Item, purchase: Purchase, generator: np.random.Generator) -> str:
    """Write the instruction of a review task: the product, the stars, and one attribute to talk about."""
    mood = "high" if purchase.rating >= 4 else "low"
    phrases = language()
    ask = _pick(phrases["tones"][person.tone]["review"], generator).format(type=item.type)
    rating = _pick(phrases["bridges"][mood], generator).format(stars=phrases["stars"][purchase.rating])
    slots, names = _topics(person, item, purchase, mood)[:1], phrases["slot_names"]
    hints = [phrases["mention"][mood].format(v=item.values[slot], slot=names[slot]) for slot in slots]
    return " ".join([ask, rating, *hints])


def _pick(options: list[str], generator: np.random.Generator) -> str:
    return options[generator.integers(len(options))]
