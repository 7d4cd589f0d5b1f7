"""The words that the small base model's tokenizer knows, and its text is made of."""

import re
from functools import cache
from importlib.resources import files

from pwagents.data.synthetic.shop import domains

_OTHERS = (
    "User The task has ended Error No product was found An earlier review is published open nothing "
    "Title Id Average Ratings Price Store Features Description Details Department Category"
)


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
