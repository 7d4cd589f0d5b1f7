"""JSON replies of language models, validated: what a profile may hold, and what strays from the options."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pwagents.llm.chat import Reply
from pwagents.profiles.prompts import AVOIDANCES, MOST_LINES, NEGATIVE, POSITIVE, RECOMMENDATIONS, options
from pwagents.profiles.types import OTHER, GlobalProfile, MicroProfile, ProfileLine
from pwagents.schema import Text, UserProfile

Lines = Annotated[tuple[Text, ...], Field(max_length=2 * MOST_LINES)]
Model = TypeVar("Model", bound=BaseModel)


class MicroReply(BaseModel):
    """A micro-profile as a model writes it; keys beside those asked for are passed over."""

    recommendations: Lines = Field(alias=RECOMMENDATIONS)
    avoidances: Lines = Field(alias=AVOIDANCES)

    def profile(self) -> MicroProfile:
        return MicroProfile(recommendations=self.recommendations, avoidances=self.avoidances)


class WholeReply(UserProfile):
    """A global profile as a model writes it. Keywords may come as a list."""

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


class UpdateReply(BaseModel):
    """A contextual profile as a model writes it."""

    lines: Annotated[tuple[ProfileLine, ...], Field(max_length=4 * MOST_LINES)]


_FIELDS = {str(info.alias): name for name, info in UserProfile.model_fields.items()}  # "Age" -> "age"


def blank_profile() -> GlobalProfile:
    """What is known of a user when no reply could be read."""
    return GlobalProfile(facts=UserProfile(**dict.fromkeys(_FIELDS, OTHER)))


def read_reply(reply: Reply, form: type[Model]) -> Model:
    """The JSON object of a reply, in ``form``. Text around the object is passed over.

    Raises:
        ValueError: what is wrong with it, in one line.
    """
    if reply.finish_reason == "length":
        raise ValueError("it was cut off at the length limit; write less")
    start, end = reply.text.find("{"), reply.text.rfind("}")
    if start < 0 or end < start:
        raise ValueError("it holds no JSON object")
    try:
        return form.model_validate(json.loads(reply.text[start : end + 1]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the object"
        raise ValueError(f"{where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no valid JSON ({error})") from None


def _option(name: str, value: str) -> str | None:
    wanted = value.strip().casefold()
    return next((option for option in options()["choices"][name] if option.casefold() == wanted), None)
