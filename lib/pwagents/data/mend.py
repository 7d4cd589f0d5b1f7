"""Mend the dirty values of sound records, and count each repair under a name that tables show.

Both sources with files use it. A value that cannot be mended without guessing raises a ValueError, of which
the source makes a DataError that names file and record.
"""

import html
import json
import math
import re
from collections import Counter
from typing import Any

# 1990 and 2030 in ms: times in seconds fall outside, and so do those that no data of today can hold.
FIRST_TIME, LAST_TIME = 631_152_000_000, 1_893_456_000_000
TIMES = "whole milliseconds since 1970, between the years 1990 and 2030"
HIGHEST_PRICE = 1e6  # US dollars; what is dearer was no price
MOST_RATINGS = 1e9  # of a product
NOBODY = ("none", "null", "nan")  # what programs write for a user that is missing, in any case

# Known tags alone: "<3" and "size <M>" in a review are no HTML.
_TAGS = "a|b|big|blockquote|br|center|code|div|em|font|h[1-6]|hr|i|img|li|ol|p|pre|small|span|strong|sub|sup"
_TAG = re.compile(rf"</?(?:{_TAGS}|table|tbody|td|th|tr|u|ul)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")  # and halves of surrogate pairs
# Amazon's marks for a video, for another product.
_EMBEDDED = re.compile(r"\[\[(?:VIDEOID|ASIN)\s*:(?:(?!\[\[).)*?\]\]", re.DOTALL | re.IGNORECASE)
_AMOUNT = re.compile(
    r"-?(?:\d{1,3}(?:[,\s']\d{3})+(?:\.\d+)?(?!,?\d)"  # 1,299.00 and 1 299.00
    r"|(?P<comma>\d{1,3}(?:[.\s']\d{3})+,\d{1,2}|\d*,\d{1,2})(?!\d)"  # 1.299,00 and 12,50
    r"|\d*\.\d+|\d+)"
)


def clean_text(text: str | None, what: str, repairs: Counter) -> str:
    """Take HTML, Amazon's marks, control characters and runs of white space out of a text; null is empty."""
    text = text or ""
    if "&" in text or "<" in text:
        cleaned = _TAG.sub(" ", _ENTITY.sub(lambda entity: html.unescape(entity[0]), text))
        repairs[f"HTML removed from {what}"] += cleaned != text
        text = cleaned
    if "[[" in text:
        cleaned = _EMBEDDED.sub(" ", text)
        repairs[f"mark of a video or product removed from {what}"] += cleaned != text
        text = cleaned
    return " ".join(_CONTROL.sub(" ", text).split())


def parse_price(value: float | str | None, repairs: Counter) -> float | None:
    """Read a price in dollars, also from "$1,299.00", "12,50" or "from 9.99"; None where there is none."""
    if isinstance(value, str):
        number = _AMOUNT.search(value)
        if number is None:
            repairs["price that is text without a number taken as missing"] += 1
            return None
        is_more = number[0] != value.strip().lstrip("$")
        repairs["price that is a range or phrase: its first number taken"] += is_more
        thousands, point = (r"[.\s']", ",") if number["comma"] else (r"[,\s']", ".")
        value = float(re.sub(thousands, "", number[0]).replace(point, "."))
    return keep_in_range(value, HIGHEST_PRICE, "price", repairs)


def parse_count(value: float | None, repairs: Counter) -> int | None:
    """Take a count of ratings without its fraction; None where it cannot be one."""
    value = keep_in_range(value, MOST_RATINGS, "rating_number", repairs)
    return None if value is None else int(value)


def keep_in_range(value: float | None, highest: float, field: str, repairs: Counter) -> float | None:
    """Keep a number from 0 to ``highest``; any other becomes None.

    Raises:
        ValueError: ``value`` is no number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{field} is {shorten(value)}; expected a number")
    if 0 <= value <= highest and math.isfinite(value):
        return value
    repairs[f"{field} that cannot be (negative, too high or NaN) taken as missing"] += 1
    return None


def check_time(time: Any) -> int:
    """Give back a time in milliseconds.

    Raises:
        ValueError: it is no whole number, or none of the years 1990 to 2030.
    """
    if isinstance(time, int) and FIRST_TIME <= time < LAST_TIME:
        return time
    raise ValueError(f"timestamp is {shorten(time)}; expected {TIMES}")


def shorten(value: Any) -> str:
    """Write ``value`` as JSON of at most 60 characters, for messages."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
