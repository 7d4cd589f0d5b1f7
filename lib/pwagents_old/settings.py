"""Settings: typed groups, each declared beside the code that it sets.

    @settings
    class RoleSettings:
        n_trajectories: PositiveInt = 400
        '''Conversations to learn from.'''  # notebooks show it

:mod:`pwagents_old.notebook.settings` puts a notebook's groups together from ``params/``.
"""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import AfterValidator, ConfigDict, Field, NonNegativeInt
from pydantic.dataclasses import dataclass
from pydantic_core import to_jsonable_python

Class = TypeVar("Class", bound=type)
Group = TypeVar("Group")


def _refuse_repeats(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is listed twice; expected different seeds")
    return seeds


Share = Annotated[float, Field(ge=0, le=1)]
Lora = tuple[int, int]  # rank and alpha of an adapter
Names = tuple[str, ...]
Numbers = tuple[int, ...]
Shares = tuple[Share, ...]
Worlds = Annotated[tuple[NonNegativeInt, ...], AfterValidator(_refuse_repeats)]  # their seeds, or none
Seeds = Annotated[Worlds, Field(min_length=1)]
Variants = tuple[dict[str, Any], ...]  # of a group: a name each, and what differs


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: Class) -> Class:
    """Make a class a group of settings: a frozen pydantic dataclass that takes its own keywords alone."""
    config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
    return dataclass(cls, frozen=True, kw_only=True, config=config)


def meaning(group: type, name: str) -> str:
    """Return what a setting means: the text below its field, in the group or in one that it builds on."""
    for cls in group.__mro__:  # pydantic takes no texts over from a class it inherits from
        field = getattr(cls, "__pydantic_fields__", {}).get(name)
        if field is not None and field.description:
            return field.description
    return ""


def values_of(kind: type, group: Any) -> dict[str, Any]:
    """Return what a group has for the settings of a kind, all of which it has among its own."""
    return {field.name: getattr(group, field.name) for field in fields(kind)}


def variants_of(group: Group, taken: Collection[str] = ()) -> dict[str, Group]:
    """Return the groups that its setting ``variants`` describes, by their names, none of which is ``taken``.

    Raises:
        ValueError: a variant has no name of its own, has settings that there are not, or changes nothing.
    """
    made: dict[str, Group] = {}
    for variant in group.variants:
        changes = dict(variant)
        name = changes.pop("name", None)
        if not isinstance(name, str) or name in {*taken, *made}:
            raise ValueError(f"a variant is named {name!r}; expected a name that no other variant has")
        # What a variant changes of a mapping, such as a trainer's fields, joins what is there.
        joined = {
            key: {**getattr(group, key), **value} if isinstance(value, dict) else value
            for key, value in changes.items()
        }
        made[name] = replace(group, **{"variants": (), **joined})
        if made[name] == replace(group, variants=()):
            raise ValueError(f"variant {name!r} changes nothing; expected a change")
    return made


def plain(value: Any) -> Any:
    """Return settings as JSON values: groups as dicts, tuples as lists."""
    return to_jsonable_python(value)
