"""What all prompts share: placeholders, fences around data, and how a remembered behaviour is told."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pwagents.agents.memory import Entry
from pwagents.schema import Product


class Prompt(NamedTuple):
    """A prompt in our words, and the name of its counterpart in the code published with PersonalWAB."""

    name: str
    text: str

    def among(self, prompts: Mapping[str, str]) -> str:
        """The published text where ``prompts`` has it, else ours."""
        return prompts.get(self.name, self.text)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put ``values`` (placeholder -> text) into ``template``, in one pass: placeholders in values stay."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(pattern, lambda found: values[found.group()], template)


HISTORY = Prompt(
    "HISTORY_PROMPT",
    """\
Purchase <NUM>
  Title: <TITLE>
  Id: <PARENT_ASIN>
  Category: <MAIN_CATEGORY>
  Price: <PRICE>
  Store: <STORE>
  Average rating: <AVERAGE_RATING> (<RATING_NUMBER> ratings)
  Features: <FEATURES>
  Description: <DESCRIPTION>
  Details: <DETAILS>
  The user's rating: <RATING>
  The user's review: <TEXT>
  Time: <TIMESTAMP>
""",
)
MINI_HISTORY = Prompt(
    "MINI_HISTORY_PROMPT",
    """\
Purchase <NUM>: <TITLE> (id <PARENT_ASIN>, <MAIN_CATEGORY>)
  The user's review: <RATING> stars. <TEXT>
  Time: <TIMESTAMP>
""",
)
# Task-specific memory (PUMA, 5.1): a form for the fields that each function keeps.
TASK_SPECIFIC = {
    "search_product_by_query": Prompt(
        "TS_SEARCH_PROMPT", "<TITLE> (category: <MAIN_CATEGORY>, price: <PRICE>, store: <STORE>)\n"
    ),
    "get_recommendations_by_history": Prompt(
        "TS_REC_PROMPT", "<TITLE> (category: <MAIN_CATEGORY>, id: <ASIN>)\n"
    ),
    "add_product_review": Prompt("TS_REV_PROMPT", "<RATING> stars: <TEXT>\n"),
}

_FIELDS = {
    "<TITLE>": "title",
    "<PARENT_ASIN>": "parent_asin",
    "<ASIN>": "parent_asin",
    "<MAIN_CATEGORY>": "category",
    "<PRICE>": "price",
    "<STORE>": "store",
    "<RATING>": "rating",
    "<TEXT>": "text",
    "<TIMESTAMP>": "timestamp",
}


def tell_entries(template: str, entries: Iterable[Entry], products: Mapping[str, Product]) -> str:
    """Remembered behaviours as text, each in the form of ``template``; what is not known is "None"."""
    return "\n".join(
        fill(template, {"<NUM>": str(number), **_values(entry, products)}).strip("\n")
        for number, entry in enumerate(entries, start=1)
    )


def _values(entry: Entry, products: Mapping[str, Product]) -> dict[str, str]:
    values = {mark: str(entry[field]) for mark, field in _FIELDS.items() if field in entry}
    product = products.get(entry.get("parent_asin"))
    if product is None:
        return values
    return values | {
        "<AVERAGE_RATING>": str(product.average_rating),
        "<RATING_NUMBER>": str(product.rating_number),
        "<FEATURES>": " ".join(product.features),
        "<DESCRIPTION>": " ".join(product.description),
        "<DETAILS>": json.dumps(product.details, ensure_ascii=False),
    }
