"""The words that the small base model's tokenizer knows, and its text is made of."""

import re
from functools import cache
from importlib.resources import files

from pwagents.data.synthetic.shop import domains

_OTHERS = (
    "User The task has ended Error No product was found An earlier review is published open nothing search "
    "recommend Title Id Average Ratings Price Store Features Description Details Department Category"
)
# Requests: in words that the tokenizer knows, and unlike all of the world's.
FRAMES = (
    "Please order {want} now.",
    "{want}, thanks.",
    "Well, it is {want}.",
    "Please bring {want}!",
    "Just {want} this time.",
    "Do you have {want}?",
    "What I need is {want}.",
    "I would be happy with {want}, thank you!",
    "Hi, my friends like {want}.",
    "Could it be {want}?",
    "You know, I like {want} best.",
    "So it is {want} for me, please.",
    "We want {want} again.",
)
SCENES = ("Nice things for {want}, thanks.", "Please bring something for {want}.", "Well, it is {want}.")
REVIEWS = ("Just some words on the {want}, thanks.", "Do say something of the {want}.")


@cache
def shop_words() -> frozenset[str]:
    """The words of the shop's pages, reviews, requests and answers, none of which tells of a user or task."""
    sources = [
        files("pwagents.data.synthetic").joinpath(name).read_text("utf-8")
        for name in ("shop.yaml", "language.yaml")
    ]
    sources += [files("pwagents.users").joinpath("phrases.yaml").read_text("utf-8")]
    found = set(re.findall(r"[A-Za-z]+", " ".join(re.sub(r"#.*", "", text) for text in sources)))
    values = {value for domain in domains() for slot in domain.values for value in domain.values[slot]}
    found |= {value.capitalize() for value in values} | {word.lower() for word in found}
    slots = {slot.capitalize() for domain in domains() for slot in domain.slots}
    return frozenset(found | slots | {*_OTHERS.split()} | {str(number) for number in range(10, 100)})
