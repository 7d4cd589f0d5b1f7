"""A setting exists because somebody changes it and some code reads it: those of notebooks that have moved."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
import yaml

from pwagents.settings import COMPLETE, NOTEBOOKS, PARAMS, Dials, Group, NotebookSettings, settings_values

from . import notebooks
from .notebooks import ROOT

Setting = tuple[str, str]  # the class that declares it, and its name
# What every notebook has, whoever changes it: its parameters cell and the Makefile do.
OF_EVERY_RUN = ("preset", "output_dir", "seed", "stored_runs_only")
# What notebook 09's dials change, by their names.
DIALLED = {f"histories.{name}" for name in Dials.model_fields}


def groups(kind: type[Group], place: str = "") -> Iterator[tuple[str, type[Group]]]:
    """Yield (place, class) of a class of settings and of all groups within it: ("shop.recommender", ...)."""
    yield place, kind
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Group):
            yield from groups(field.annotation, f"{place}.{name}".lstrip("."))


def declared(kind: type[Group], name: str) -> Setting:
    """Return a setting by the class that declares it first, which several groups may build on."""
    owner = [cls for cls in kind.__mro__ if name in vars(cls).get("__annotations__", {})][-1]
    return owner.__qualname__, name


def settings_of(kind: type[Group]) -> dict[Setting, str]:
    """Return the settings of a class with their places, groups themselves aside."""
    found = {}
    for place, group in groups(kind):
        inner = {other for other, _ in groups(group) if other}
        found |= {
            declared(group, name): f"{place}.{name}".lstrip(".")
            for name in group.model_fields
            if name not in inner
        }
    return found


def changed_in(kind: type[Group], values: Mapping, than: Mapping | None = None) -> set[Setting]:
    """Return the settings that nested values name, or those of them that differ from ``than``."""
    found = set()
    for name, value in values.items():
        if name == "variants":  # a list of changes of this group
            names = {each for variant in value for each in variant} & kind.model_fields.keys()
            found |= {declared(kind, each) for each in names}
        elif name in kind.model_fields:
            inner, before = kind.model_fields[name].annotation, (than or {}).get(name)
            if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, Group):
                found |= changed_in(inner, value, None if than is None else before or {})
            elif than is None or value != before:
                found.add(declared(kind, name))
    return found


@cache
def nodes() -> list[ast.AST]:
    """Return the code of the library and of all notebooks' cells: attributes, calls and dicts."""
    files = [file for folder in ("lib", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    sources = [file.read_text("utf-8") for file in files]
    cells = [cell for notebook in notebooks.NOTEBOOKS for cell in notebooks.cells_of(notebook)]
    sources += [cell.source for cell in cells if cell.cell_type == "code"]
    kinds = ast.Attribute | ast.Call | ast.Dict
    return [n for source in sources for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)]


def changed_by_code(kind: type[Group]) -> set[Setting]:
    """Return what code changes: ``settings.changed(data={"drift": 0.0})``, or a table of such changes."""
    found, by_place = set(), dict(groups(kind))
    for node in nodes():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "changed":
            place = getattr(node.func.value, "attr", "")  # of settings.play.changed(...)
            for keyword in node.keywords:
                if keyword.arg in (by_place[place].model_fields if place in by_place else ()):
                    found.add(declared(by_place[place], keyword.arg))
                if keyword.arg in by_place and isinstance(keyword.value, ast.Dict):
                    group = by_place[keyword.arg]
                    names = {getattr(name, "value", "") for name in keyword.value.keys}
                    found |= {declared(group, name) for name in names & group.model_fields.keys()}
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                group = by_place.get(getattr(key, "value", None) or ".")
                if group and isinstance(value, ast.Dict):
                    names = {getattr(name, "value", "") for name in value.keys} & group.model_fields.keys()
                    found |= {declared(group, name) for name in names}
    return found


def changed_by_somebody(kind: type[NotebookSettings]) -> set[Setting]:
    """Return what presets other than the complete one, the Makefile, the guide or code change of a class."""
    found: set[Setting] = set()
    for name, each in NOTEBOOKS.items():
        complete = settings_values(name, {})
        for group, values in complete.items():
            if isinstance(values, dict) and "variants" in values:
                inner = each.model_fields[group].annotation
                found |= changed_in(inner, {"variants": values["variants"]})
        for preset in {file.stem for file in PARAMS.glob("*.yaml")} - {COMPLETE}:
            found |= changed_in(each, settings_values(name, {"preset": preset}), complete)
    for name, text in re.findall(r"^FULL_(\w+) := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M):
        found |= changed_in(NOTEBOOKS[name], yaml.safe_load(f"{{{text}}}"))
    guide = (ROOT / "GUIDE.md").read_text("utf-8")
    for setting, place in settings_of(kind).items():
        name = place.rpartition(".")[2]
        if re.search(rf"`{re.escape(place)}\b|[{{(`\"' ]{name}[\"']?[:=]|`{name}`", guide):
            found.add(setting)
    return found | changed_by_code(kind)


def read_by_code(place: str) -> bool:
    """Return whether code reads a setting as an attribute of something that is called like its group."""
    group, _, name = place.rpartition(".")
    owners = {"settings", "config", "self", "loaded", "preferences", "success", "played", "sweeps"}
    owners.add(group.rpartition(".")[2])
    for node in nodes():
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            owner, read = getattr(node.args[0], "id", ""), getattr(node.args[1], "value", "")
            if read == name and owner in owners:
                return True
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if owner in owners:
                return True
    return False


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_somebody_changes_each_setting(notebook):
    kind = NOTEBOOKS[notebook]
    changed = changed_by_somebody(kind)
    unchanged = [place for setting, place in settings_of(kind).items() if setting not in changed]
    assert [place for place in unchanged if place not in {*OF_EVERY_RUN, *DIALLED}] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_some_code_reads_each_setting(notebook):
    unread = [place for place in settings_of(NOTEBOOKS[notebook]).values() if not read_by_code(place)]
    assert unread == []
