"""One record of PersonalWAB's published files: is it sound, and what does it become?

A record whose structure is broken is an error. A dirty value in a sound record is mended and counted.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from pwagents.data.amazon_clean import (
    FIRST_TIME,
    LAST_TIME,
    TIMES,
    as_text,
    bounded,
    price_of,
    shortened,
    whole_number,
)
from pwagents.errors import DataError
from pwagents.schema import Product, Review, TaskType, Text

M = TypeVar("M", bound=BaseModel)

# What a field should have been, by the type of pydantic's complaint; for others its own words do.
_EXPECTED = {
    "missing": "this field in every record",
    "model_type": "a JSON object",
    "dict_type": "a JSON object",
    "tuple_type": "a list",
    "string_type": "text",
    "string_too_short": "a text that is not empty",
    "float_type": "a number",
    "int_type": "a whole number",
}


def parse(model: type[M], value: Any, file: Path, record: str, repairs: Counter, within: str = "") -> M:
    """``value`` as a ``model``; what its validators mend is counted in ``repairs``.

    Args:
        within: the field of the record that ``value`` is, if it is not the record itself.

    Raises:
        DataError: names file, record and the first broken field.
    """
    try:
        return model.model_validate(value, context=repairs)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    field = ".".join(map(str, (within, *first["loc"]) if within else first["loc"])) or "(record)"
    found = "no such field" if first["type"] == "missing" else shortened(first["input"])
    expected = _EXPECTED.get(first["type"]) or first["msg"].removeprefix("Input should be ")
    raise DataError(file, record, field, found, expected)


# Mends: each takes a value as published and pydantic's info, whose context counts what was mended. A value of
# a wrong kind is passed on, for pydantic to complain about.


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mend_price(value: Any, info: ValidationInfo) -> Any:
    return price_of(value, info.context) if isinstance(value, str) or _is_number(value) else value


def _mend_stars(value: Any, info: ValidationInfo) -> Any:
    return bounded(value, 5, "average_rating", info.context) if _is_number(value) else value


def _mend_count(value: Any, info: ValidationInfo) -> Any:
    return whole_number(value, info.context) if _is_number(value) else value


def _mend_texts(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        info.context[f"{info.field_name} given as one text taken as a list"] += 1
        return (value,) if value else ()
    if value is None:
        return ()
    return tuple(map(as_text, value)) if isinstance(value, list) else value


def _mend_details(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_text(part) for key, part in value.items()}
    return {} if value is None else value


def _mend_review_text(value: Any, info: ValidationInfo) -> Any:
    if value is None:
        info.context[f"review {info.field_name} that is null taken as empty"] += 1
        return ""
    return value


def _check_time(time: int) -> int:
    if FIRST_TIME <= time < LAST_TIME:
        return time
    in_seconds = FIRST_TIME <= time * 1000 < LAST_TIME
    raise PydanticCustomError("time", f"{TIMES} (it looks like seconds)" if in_seconds else TIMES)


def _check_stars(rating: float) -> float:
    if rating != int(rating):
        raise PydanticCustomError("stars", "a whole number of stars")
    return rating


def _called(name: str, what: str) -> tuple:
    """A text, ``name`` where it is null or blank."""

    def named(value: str, info: ValidationInfo) -> str:
        if not value:
            info.context[f'{what} called "{name}"'] += 1
        return value or name

    stripped = StringConstraints(strip_whitespace=True)
    return BeforeValidator(lambda value: "" if value is None else value), stripped, AfterValidator(named)


_Time = Annotated[int, AfterValidator(_check_time)]
_Texts = Annotated[tuple[str, ...], BeforeValidator(_mend_texts)]
_ReviewText = Annotated[str, BeforeValidator(_mend_review_text)]


class Published(BaseModel):
    """What a record must hold. It may hold more, which is ignored."""

    model_config = ConfigDict(strict=True)


class PublishedProduct(Published):
    parent_asin: Text
    title: Annotated[str, *_called("Untitled", "product without title")]
    category: Annotated[str, *_called("Other", "product without main_category")] = Field(
        alias="main_category"
    )
    price: Annotated[float | None, BeforeValidator(_mend_price)]
    store: str | None
    average_rating: Annotated[float | None, BeforeValidator(_mend_stars)]
    rating_number: Annotated[int | None, BeforeValidator(_mend_count)]
    features: _Texts
    description: _Texts
    details: Annotated[dict[str, str], BeforeValidator(_mend_details)]

    def product(self) -> Product:
        return Product(**dict(self))


class ProductReference(Published):
    parent_asin: Text


class PublishedReview(Published):
    rating: Annotated[float, Field(ge=1, le=5), AfterValidator(_check_stars)]
    title: _ReviewText
    text: _ReviewText

    def review(self) -> Review:
        return Review(rating=self.rating, title=self.title, text=self.text)


class DatedReview(PublishedReview):
    timestamp: _Time


class PublishedBehavior(Published):
    product_info: dict[str, Any]
    review: DatedReview


class PublishedTarget(Published):
    product_info: dict[str, Any]
    review: PublishedReview


class PublishedTask(Published):
    user_id: Text
    task: Text
    type: TaskType
    timestamp: _Time
    target: PublishedTarget
    task_id: Text | None = None  # not published; our own files have it


class PublishedProfile(Published):
    user_profile: dict[str, Any]


# In JSON a tuple is a list.
Purchases = Annotated[tuple[Annotated[tuple[int, str], Strict(False)], ...], Strict(False)]


class WrittenBenchmark(Published):
    """The file that :func:`pwagents.data.personalwab_export.write_personalwab` lays beside the others."""

    name: str
    content_hash: str
    repairs: dict[str, int]
    population: dict[str, Purchases]
