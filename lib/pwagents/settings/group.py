"""What all settings are made of: typed groups, roles of language models, paths, lists of numbers."""

import os
import re
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, to_jsonable_python

from pwagents.urls import KEY_VARIABLE, OPENAI_URL, check_url, endpoint_url, without_token

_LIBRARY = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (_LIBRARY.parents[1] / "params").is_dir()  # a wheel has them inside the package
ROOT = _LIBRARY.parents[1] if IS_CHECKOUT else Path.cwd()
PARAMS = (ROOT if IS_CHECKOUT else _LIBRARY) / "params"


def at_least(lowest: int) -> AfterValidator:
    """Return the check of a pair: two whole numbers, the least and the most."""

    def check(pair: tuple[int, int]) -> tuple[int, int]:
        if not lowest <= pair[0] <= pair[1]:
            raise ValueError(f"expected two whole numbers [least, most], {lowest} <= least <= most")
        return pair

    return AfterValidator(check)


def _refuse_repeats(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is listed twice; expected different seeds")
    return seeds


def _read_numbers(value: Any) -> Any:
    """Return values with numbers such as "1e-4" read: YAML 1.1, as PyYAML reads it, takes them for texts."""
    if isinstance(value, Mapping):
        return {name: _read_numbers(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_read_numbers(each) for each in value]
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value)
    return float(value) if is_number else value


Pair = tuple[int, int]  # least and most
Lora = tuple[int, int]  # rank and alpha of an adapter
LabelKind = Literal["published", "leak_free"]  # of what PUMA learns to write
Names = tuple[str, ...]
Numbers = tuple[int, ...]
Share = Annotated[float, Field(ge=0, le=1)]
Shares = tuple[Share, ...]
Worlds = Annotated[tuple[NonNegativeInt, ...], AfterValidator(_refuse_repeats)]  # their seeds, or none
Dtype = Literal["float32", "bfloat16"]  # of a model on disk that plays a role
Seeds = Annotated[Worlds, Field(min_length=1)]
Sharding = Literal["fsdp", "deepspeed", "ddp", "cpu"]  # files of params/accelerate; cpu is for tests
Fields = Annotated[dict[str, Any], BeforeValidator(_read_numbers)]  # passed on under another library's names
Variants = tuple[Fields, ...]  # of a group: a name each, and what differs


def parse_player(spec: str, words: Collection[str] = ()) -> tuple[str, str]:
    """Return provider and name of a model: ``openai:gpt-4o`` is ("openai", "gpt-4o"); a word is (word, "").

    A role is played by one of the words its field allows ("offline": rules), by a model at an endpoint
    (``openai:gpt-4o-mini``), by a saved transformers model (``local:path/to/model``, seen from the project's
    root) or by stored replies alone (``replay:gpt-4o-mini``).

    Raises:
        ValueError: ``spec`` is neither a model nor one of ``words``, or its folder holds no saved model.
    """
    if spec in words:
        return spec, ""
    provider, _, name = spec.partition(":")
    if provider not in ("openai", "local", "replay") or not name:
        expected = ", ".join((*words, "openai:NAME", "local:FOLDER"))
        raise ValueError(f"model {spec!r}; expected {expected} or replay:NAME")
    files = ("config.json", "adapter_config.json")
    if provider == "local" and not any((project_path(name) / file).exists() for file in files):
        raise ValueError(
            f"model {spec!r}: {project_path(name)} holds no config.json and no adapter_config.json; "
            "expected the folder of a saved model"
        )
    return provider, name


def player(*words: str) -> AfterValidator:
    """Return the type of a role: ``policy: Annotated[str, player("offline")]``."""

    def check(spec: str) -> str:
        parse_player(spec, words)
        return spec

    return AfterValidator(check)


def _check_base_url(url: str) -> str:
    """Return a URL without a password; the error of another one does not quote it, as pydantic would."""
    try:
        return url and check_url(url)
    except ValueError as error:
        reason = PydanticCustomError("base_url", "{reason}", {"reason": str(error)})
        details = InitErrorDetails(type=reason, input="(not shown)")
        raise ValidationError.from_exception_data("base_url", [details]) from None


def project_path(path: str | Path) -> Path:
    """Return a path seen from the project's root, wherever the notebook runs; "~" is the home folder."""
    return ROOT / Path(path).expanduser()


def is_installed(package: str) -> bool:
    """Return whether a package is installed."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def S(default: Any, meaning: str) -> Any:
    """Return the default (...: none) and the meaning of a setting, which notebooks show."""
    return Field(default, description=meaning)


class Group(BaseModel):
    """A group of settings: typed, immutable, and without names that there are not."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def changed(self, **values: Any) -> Self:
        """Return the group with other values, checked as any; a mapping changes a group within it.

        ``settings.changed(seed=5, data={"repurchase": 0.0})``
        """
        for name, value in values.items():
            if isinstance(value, Mapping) and isinstance(own := getattr(self, name, None), Group):
                values[name] = own.changed(**value)
        return type(self)(**values_of(type(self), self) | values)


AnyGroup = TypeVar("AnyGroup", bound=Group)


class Players(Group):
    """What the language models of a run share; a notebook's own group adds a setting for each role."""

    base_url: Annotated[
        str, AfterValidator(_check_base_url), PlainSerializer(without_token), Field(repr=False)
    ] = S("", "OpenAI-compatible endpoint; empty: OPENAI_BASE_URL, else OpenAI's. Its key: OPENAI_API_KEY.")
    endpoint: str = S("", "Name of the endpoint in stored replies and episodes; empty: its URL.")
    sampling: Fields = S({}, "Changes to what is sent with every request: {temperature: null} leaves it out.")
    budget_usd: PositiveFloat = S(5.0, "US dollars at which a run stops; run again, it goes on from there.")
    budget_tokens: PositiveInt = S(
        20_000_000, "Tokens (prompts and replies) at which a run stops in the same way."
    )
    workers: PositiveInt = S(1, "Calls or episodes at a time; a `local:` model writes theirs as one batch.")
    dtype: Dtype = S("float32", "Of `local:` models; bfloat16 only where portable is false.")
    max_new_tokens: PositiveInt | None = S(
        None, "Tokens of a `local:` model's call; none: 128, or 256 under the protocol published."
    )

    def facts(self, *roles: str) -> dict[str, Any]:
        """Return what of the players decides an episode: who plays ``roles`` and how models are asked."""
        facts = {role: getattr(self, role) for role in roles}
        if self.are_models:
            facts |= {"endpoint": self.endpoint, "sampling": self.sampling}
        if self._played_by("local", "replay"):
            facts["max_new_tokens"] = self.max_new_tokens
        if self._played_by("openai"):
            # With its port: two servers of one machine may call two models by one name.
            facts["endpoint"] = self.endpoint or without_token(endpoint_url(self.base_url))
        return facts

    @property
    def are_models(self) -> bool:
        """Return whether a language model plays any role."""
        return bool(self._played_by("openai", "local", "replay"))

    def require_keys(self) -> None:
        """Find a missing key before hours of work do; an endpoint other than OpenAI's own may need none.

        Raises:
            ValueError: roles are played by OpenAI's models, and the environment holds no key.
        """
        roles = self._played_by("openai")
        if (
            roles
            and endpoint_url(self.base_url) == OPENAI_URL
            and not os.environ.get(KEY_VARIABLE, "").strip()
        ):
            needed = f"needs a key; set the environment variable {KEY_VARIABLE}"
            raise ValueError(f"{', '.join(roles)}: a model of OpenAI {needed}")

    def _played_by(self, *providers: str) -> list[str]:
        """Return the roles that models of these providers play."""
        own = type(self).model_fields.keys() - Players.model_fields.keys()
        form = re.compile(rf"(?:^|')(?:{'|'.join(providers)}):")  # of a text, or in a list of them
        return [
            name for name in type(self).model_fields if name in own and form.search(str(getattr(self, name)))
        ]


def plain(value: Any) -> Any:
    """Return settings as JSON values: groups as dicts, tuples as lists."""
    return to_jsonable_python(value)


def values_of(kind: type[Group], group: Group) -> dict[str, Any]:
    """Return what a group has for the settings of a kind, all of which it has among its own."""
    return {name: getattr(group, name) for name in kind.model_fields}


def variants_of(group: AnyGroup, taken: Collection[str] = ()) -> dict[str, AnyGroup]:
    """Return the groups that its setting ``variants`` describes, by their names, none of which is ``taken``.

    Raises:
        ValueError: a variant has no name of its own, has settings that there are not, or changes nothing.
    """
    made: dict[str, AnyGroup] = {}
    for variant in group.variants:
        differs = dict(variant)
        name = differs.pop("name", None)
        if not isinstance(name, str) or name in {*taken, *made}:
            raise ValueError(f"a variant is named {name!r}; expected a name that no other variant has")
        # What a variant changes of a mapping, such as a trainer's fields, joins what is there.
        joined = {
            key: {**getattr(group, key), **value} if isinstance(value, dict) else value
            for key, value in differs.items()
        }
        made[name] = group.changed(**{"variants": (), **joined})
        if made[name] == group.changed(variants=()):
            raise ValueError(f"variant {name!r} changes nothing; expected a change")
    return made
