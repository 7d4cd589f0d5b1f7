"""One record of the raw Amazon Reviews 2023 files: is it sound, and what does it become?

A record whose structure is broken (not JSON, a field missing or of a wrong type, a time that cannot be) is an
error. A dirty value in a sound record (a price like "from 9.99", HTML in a title) is mended and counted.
"""

import gzip
import html
import json
import math
import re
import zlib
from collections import Counter
from pathlib import Path

from pwagents.errors import DataError
from pwagents.progress import progress
from pwagents.schema import Behavior, Product, Review

# Field -> the kinds of JSON value it may hold. The SQL check in amazon_scan.py is made from the same tables.
_NUMBER = ("whole number", "decimal number")
_OPTIONAL = ("null", "missing")
REVIEW_FIELDS = {
    "user_id": ("text",),
    "parent_asin": ("text",),
    "timestamp": ("whole number",),
    "rating": _NUMBER,
    "title": ("text", "null"),
    "text": ("text", "null"),
}
META_FIELDS = {
    "parent_asin": ("text",),
    "main_category": ("text", "null"),
    "title": ("text", "null"),
    "price": (*_NUMBER, "text", *_OPTIONAL),
    "store": ("text", *_OPTIONAL),
    "average_rating": (*_NUMBER, *_OPTIONAL),
    "rating_number": (*_NUMBER, *_OPTIONAL),
    "features": ("list", "text", *_OPTIONAL),
    "description": ("list", "text", *_OPTIONAL),
    "details": ("object", "text", *_OPTIONAL),
}
ID_FIELDS = ("user_id", "parent_asin")
ID_PATTERN = "[!-~]+"
# 1990 and 2030 in ms: times in seconds fall outside, and so do those that no data of today can hold.
FIRST_TIME, LAST_TIME = 631_152_000_000, 1_893_456_000_000
TIMES = "whole milliseconds since 1970, between the years 1990 and 2030"
HIGHEST_PRICE = 1e6  # US dollars; what is dearer was no price
MOST_RATINGS = 1e9  # of a product

# Raw main_category -> the category names that PersonalWAB uses (section 3.2.1). Others keep their raw name.
PAPER_CATEGORIES = {
    "Electronics": (
        "All Electronics",
        "Amazon Devices",
        "Apple Products",
        "Camera & Photo",
        "Car Electronics",
        "Cell Phones & Accessories",
        "Computers",
        "GPS & Navigation",
        "Home Audio & Theater",
        "Portable Audio & Accessories",
    ),
    "Home and Kitchen": ("Amazon Home", "Appliances"),
    "Grocery and Gourmet Food": ("Grocery", "Grocery & Gourmet Food"),
    "Clothing, Shoes, and Jewelry": ("AMAZON FASHION", "Amazon Fashion", "Clothing, Shoes & Jewelry"),
    "Health and Household": (
        "All Beauty",
        "Health & Personal Care",
        "Health & Household",
        "Luxury Beauty",
        "Premium Beauty",
    ),
}
_CATEGORY_NAMES = {raw: name for name, raws in PAPER_CATEGORIES.items() for raw in raws}

# Known tags alone: "<3" and "size <M>" in a review are no HTML.
_TAGS = "a|b|big|blockquote|br|center|code|div|em|font|h[1-6]|hr|i|img|li|ol|p|pre|small|span|strong|sub|sup"
_TAG = re.compile(rf"</?(?:{_TAGS}|table|tbody|td|th|tr|u|ul)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")  # and halves of surrogate pairs
_AMOUNT = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def category_name(main_category: str | None) -> str:
    """The category name of a raw ``main_category``: PersonalWAB's where one fits; "Other" for null."""
    raw = _plain(main_category, "main_category", Counter())
    return _CATEGORY_NAMES.get(raw, raw) or "Other"


def find_broken_record(path: Path, fields: dict[str, tuple[str, ...]]) -> None:
    """Read ``path`` line by line up to its first broken record.

    Raises:
        DataError: names file, line and field. Nothing is raised when all records are sound.
    """
    line_number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as lines:
            for line_number, line in enumerate(progress(lines, f"checking {path.name}"), 1):
                if line.strip():
                    _check_line(path, line_number, line, fields)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            path, line_number + 1, "(file)", f"unreadable data ({error})", "a whole file"
        ) from None


def _check_line(path: Path, line_number: int, line: bytes, fields: dict[str, tuple[str, ...]]) -> None:
    where = (path, line_number)
    try:
        record = json.loads(line.decode("utf-8"))
        json.dumps(record, ensure_ascii=False).encode("utf-8")  # fails on half a surrogate pair ("\ud800")
    except UnicodeError as error:
        raise DataError(*where, "(line)", f"bytes that are not text ({error.reason})", "UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise DataError(*where, "(line)", f"what is not JSON ({error})", "one JSON object a line") from None
    if not isinstance(record, dict):
        raise DataError(*where, "(line)", f"a JSON {_kind(record)}", "one JSON object a line")
    for name, kinds in fields.items():
        kind = _kind(record[name]) if name in record else "missing"
        if kind not in kinds:
            found = "no such field" if kind == "missing" else f"{kind} {shortened(record[name])}"
            raise DataError(*where, name, found, " or ".join(k for k in kinds if k != "missing"))
        if name in ID_FIELDS and not re.fullmatch(ID_PATTERN, record[name]):
            raise DataError(*where, name, shortened(record[name]), "an id without spaces")
        if name == "timestamp":
            _check_time(where, record[name])


def _check_time(where: tuple[Path, int], time: int) -> None:
    if FIRST_TIME <= time < LAST_TIME:
        return
    in_seconds = FIRST_TIME <= time * 1000 < LAST_TIME
    found = f"{time}, which looks like seconds" if in_seconds else time
    raise DataError(*where, "timestamp", found, TIMES)


def _kind(value) -> str:
    kinds = {str: "text", int: "whole number", float: "decimal number", list: "list", dict: "object"}
    return "null" if value is None else kinds.get(type(value), "boolean")


def shortened(value) -> str:
    """``value`` as JSON of at most 60 characters, for messages."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def clean_behavior(record: dict, repairs: Counter) -> Behavior:
    """A sound review record as a Behavior; what was mended is counted in ``repairs``."""
    review = Review(
        rating=record["rating"],
        title=_plain(record["title"], "review title", repairs),
        text=_plain(record["text"], "review text", repairs),
    )
    if not review.text:
        repairs["review without text kept (no review task made)"] += 1
    return Behavior(parent_asin=record["parent_asin"], timestamp=record["timestamp"], review=review)


def clean_product(record: dict, repairs: Counter) -> Product:
    """A sound metadata record as a Product; what was mended is counted in ``repairs``."""
    title = _plain(record["title"], "product title", repairs)
    if not title:
        repairs['product without title called "Untitled"'] += 1
    return Product(
        parent_asin=record["parent_asin"],
        title=title or "Untitled",
        category=category_name(record["main_category"]),
        price=price_of(record.get("price"), repairs),
        store=_plain(record.get("store"), "product store", repairs) or None,
        average_rating=bounded(record.get("average_rating"), 5, "average_rating", repairs),
        rating_number=whole_number(record.get("rating_number"), repairs),
        features=_texts(record.get("features"), "features", repairs),
        description=_texts(record.get("description"), "description", repairs),
        details=_details(record.get("details"), repairs),
    )


def _plain(text: str | None, what: str, repairs: Counter) -> str:
    """``text`` without HTML tags, entities, control characters and runs of white space."""
    text = text or ""
    if "&" in text or "<" in text:
        cleaned = _TAG.sub(" ", _ENTITY.sub(lambda entity: html.unescape(entity[0]), text))
        if cleaned != text:
            repairs[f"HTML removed from {what}"] += 1
        text = cleaned
    return " ".join(_CONTROL.sub(" ", text).split())


def price_of(price: float | str | None, repairs: Counter) -> float | None:
    """A price in dollars, also from a text such as "$1,299.00" or "from 9.99"; None where there is none."""
    if isinstance(price, str):
        number = _AMOUNT.search(price)
        if number is None:
            repairs["price that is text without a number taken as missing"] += 1
            return None
        if number[0] != price.strip().lstrip("$"):
            repairs["price that is a range or phrase: its first number taken"] += 1
        price = float(number[0].replace(",", ""))
    return bounded(price, HIGHEST_PRICE, "price", repairs)


def bounded(value: float | None, highest: float, field: str, repairs: Counter) -> float | None:
    """``value`` where it lies between 0 and ``highest`` and is finite, else None."""
    if value is None or (0 <= value <= highest and math.isfinite(value)):
        return value
    repairs[f"{field} that cannot be (negative, too high or NaN) taken as missing"] += 1
    return None


def whole_number(value: float | None, repairs: Counter) -> int | None:
    """A count of ratings without its fraction; None where it cannot be one."""
    value = bounded(value, MOST_RATINGS, "rating_number", repairs)
    return None if value is None else int(value)


def _texts(value: list | str | None, field: str, repairs: Counter) -> tuple[str, ...]:
    """A field that is a list of texts, or one text: its texts, the empty ones left out."""
    parts = [value] if isinstance(value, str) else value or []
    return tuple(text for part in parts if (text := _plain(as_text(part), f"product {field}", repairs)))


def _details(value: dict | str | None, repairs: Counter) -> dict[str, str]:
    """Details are an object, or an object written as JSON text; their values become text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = value.strip() or None
        if value is not None and not isinstance(value, dict):
            repairs["details that are no JSON object taken as missing"] += 1
            value = None
    pairs = ((key, _plain(as_text(part), "product details", repairs)) for key, part in (value or {}).items())
    return {_plain(key, "product details", repairs): text for key, text in pairs if text}


def as_text(value) -> str:
    """``[1, "b"]`` as "1, b" and ``{"a": 1}`` as "a: 1"; null is empty."""
    if isinstance(value, list):
        return ", ".join(map(as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {as_text(part)}" for key, part in value.items())
    return "" if value is None else str(value)
