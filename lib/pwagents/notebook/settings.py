"""A notebook's settings: read from ``params/``, changed by its parameters cell, checked before work starts.

The folder of a preset holds what differs from ``params/laptop``; what has no line there either has its
default. Of each folder a notebook reads ``common.yaml``, the file of its wing (``puma``, ``orion``) and its
own, as far as they exist. Later files change earlier ones, the preset changes laptop, and the parameters
cell, which papermill writes into, changes the preset: group by group, setting by setting.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import NonNegativeInt, ValidationError
from pydantic_core import ArgsKwargs

from pwagents.data.settings import DataSettings
from pwagents.engine import Engine
from pwagents.errors import DataError, SettingsError
from pwagents.llm.settings import Players
from pwagents.project import ROOT, project_path
from pwagents.settings import meaning, settings

PARAMS = ROOT / "params"
COMPLETE = "laptop"  # the preset that every other one differs from
INTERACTIVE = "outputs/interactive"  # where a notebook opened by hand leaves its results
UNLISTED = ("portable", "engine")  # papermill may change them, but no parameters cell lists them


@settings
class NotebookSettings:
    """What every notebook has; each notebook's own class adds its groups."""

    preset: str
    """The folder of ``params/`` that values come from."""

    output_dir: Path
    """Where results go."""

    seed: NonNegativeInt
    """Of data, sampling and training."""

    stored_runs_only: bool = False
    """Make tables and figures from stored runs: nothing is played or trained, what is missing is an error."""

    portable: bool = True
    """Compute with AVX2 on one thread: the same numbers on other machines; false: as the CPU likes."""

    engine: Engine = "local"
    """What runs episodes, profiles and trainings that do not depend on each other: local, this machine; ray,
    dask: a cluster. The results are the same."""

    data: DataSettings


Kind = TypeVar("Kind", bound=NotebookSettings)


def load_settings(notebook: str, kind: type[Kind], parameters: Mapping[str, Any]) -> Kind:
    """The settings of a notebook.

    Args:
        notebook: its name, such as "01_data".
        kind: its class of settings.
        parameters: what its parameters cell says: ``preset``, ``source``, ``data_dir``, ``output_dir``,
            ``seed``, ``stored_runs_only``, and a dict for each group. An empty value leaves the preset's.

    Raises:
        SettingsError: a name, type or range is wrong, an API key is missing, or ``data_dir`` lacks the
            source's files; a line each, with notebook, group, setting, what was found and what was expected.
        DataError: a file of parameters is no YAML of names and values.
    """
    values = _merged(preset_values(notebook, kind, parameters["preset"]), changes(parameters))
    values |= {name: parameters[name] for name in ("preset", "stored_runs_only")}
    values["output_dir"] = project_path(parameters["output_dir"] or INTERACTIVE)
    for name in ("source", "data_dir"):  # flat in the parameters cell, of the group `data` for the library
        if name in values:
            values["data"] = {**_group(notebook, "data", values.get("data", {})), name: values.pop(name)}
    try:
        loaded = kind(**_with_seed(kind, values))
    except ValidationError as error:
        raise SettingsError("\n".join(_told(notebook, kind, problem) for problem in error.errors())) from None
    _require(notebook, loaded)
    return loaded


def preset_values(notebook: str, kind: type[NotebookSettings], preset: str) -> dict[str, Any]:
    """What the files of a preset say for a notebook, as nested dicts.

    Raises:
        SettingsError: there is no such preset.
        DataError: a file is no YAML of names and values.
    """
    presets = sorted(folder.name for folder in PARAMS.iterdir() if any(folder.glob("common.yaml")))
    if preset not in presets:
        raise SettingsError(f"{notebook}, preset: found {preset!r}; expected one of {', '.join(presets)}")
    wing = kind.__module__.split(".")[1]
    merged: dict[str, Any] = {}
    for folder in dict.fromkeys([COMPLETE, preset]):
        for name in ("common", wing, notebook):
            values = read_values(PARAMS / folder / f"{name}.yaml")
            merged = _merged(merged, _common(values, kind) if name == "common" else values)
    # Files that several notebooks share hold groups that this one may not have.
    own = {"source", "data_dir", *(field.name for field in fields(kind))}
    return {name: value for name, value in merged.items() if name in own}


def _common(values: Mapping[str, Any], kind: type[NotebookSettings]) -> dict[str, Any]:
    """What all notebooks share, without what the notebook's own kind of data does not have."""
    known = {field.name for field in fields(get_type_hints(kind)["data"])}
    data = {name: value for name, value in values.get("data", {}).items() if name in known}
    return {**values, "data": data}


def read_values(path: Path) -> dict[str, Any]:
    """The names and values of a YAML file; of no file, none.

    Raises:
        DataError: it is no YAML of names and values.
    """
    if not path.exists():
        return {}
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        found = " ".join(str(error).split())  # on one line
        raise DataError(path, "1", "parameters", found, "a YAML file") from None
    if not isinstance(values, dict):
        raise DataError(path, "1", "parameters", type(values).__name__, "lines of 'name: value'")
    return values


def read_changes(text: str) -> dict[str, Any]:
    """What a command line changes of a preset, as YAML.

    Raises:
        SettingsError: it is no YAML of names and values.
    """
    try:
        changes = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"changes: found {' '.join(str(error).split())}; expected YAML") from None
    if not isinstance(changes, dict):
        raise SettingsError(
            f"changes: found {text!r}; expected names and values, as {{players: {{workers: 8}}}}"
        )
    return changes


def changes(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What a parameters cell changes of its preset: all but empty values."""
    fixed = ("preset", "output_dir", "stored_runs_only")
    empty = (None, "", {})
    return {name: value for name, value in parameters.items() if name not in fixed and value not in empty}


def parameters_of(
    notebook: str, kind: type[NotebookSettings], namespace: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters that a notebook's first cells define.

    Args:
        namespace: the notebook's ``globals()``.

    Raises:
        SettingsError: the parameters cell lacks one, or papermill was given one that the notebook does not
            have. papermill itself only warns of these, and the run would go on with the default.
    """
    known = ["source", "data_dir", *(field.name for field in fields(kind))]
    for name in _injected(namespace.get("In", ())):
        if name not in known:
            raise SettingsError(f"{notebook}: found parameter {_unknown(name, known)}")
    if missing := [name for name in known if name not in namespace and name not in UNLISTED]:
        raise SettingsError(f"{notebook}: the parameters cell lacks {', '.join(missing)}; restore it")
    return {name: namespace[name] for name in known if name in namespace}


def rows(group: Any, name: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """(group, setting, value, meaning) of all settings, groups within groups as "shop.recommender"."""
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from rows(value, f"{name}.{field.name}".lstrip("."))
        else:
            yield name, field.name, value, meaning(type(group), field.name)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``below`` changed by ``above``: dicts within are merged likewise, all else is replaced."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merged(merged[name], value) if both else value
    return merged


def _with_seed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the run's seed in each group that takes one and was given none.

    A seed that is no number is told once, as the run's.
    """
    filled = dict(values)
    types = get_type_hints(kind)
    for name, group in values.items():
        if is_dataclass(types.get(name)) and isinstance(group, Mapping):
            seed = {"seed": values["seed"]} if isinstance(values.get("seed"), int) else {}
            takes = "seed" in get_type_hints(types[name])
            inner = _with_seed(types[name], {**seed, **group})
            filled[name] = inner if takes else {key: inner[key] for key in group}
    return filled


def _group(notebook: str, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{notebook}, group {name}: found {value!r}; expected names and values")
    return value


def _told(notebook: str, kind: type, problem: Mapping[str, Any]) -> str:
    """One line on one of pydantic's errors."""
    *groups, name = [str(part) for part in problem["loc"] if not isinstance(part, int)] or ["settings"]
    where = ", ".join([notebook, *([f"group {'.'.join(groups)}"] if groups else [])])
    if problem["type"] == "unexpected_keyword_argument":
        return f"{where}: found setting {_unknown(name, _names(kind, groups))}"
    if problem["type"] == "missing" and problem["loc"][-1] == name:  # not an element of a list
        return f"{where}, setting {name}: found none; expected a value in params/{COMPLETE}"
    expected = problem["msg"] if problem["type"] != "missing" else f"at least {problem['loc'][-1] + 1} values"
    for prefix in ("Value error, ", "Input should be ", "expected "):
        expected = expected.removeprefix(prefix)
    expected = expected.rpartition("; expected ")[2]  # of a validator that tells what it found as well
    if isinstance(problem["input"], ArgsKwargs):  # of values that do not go together
        return f"{where}, group {name}: expected {expected}"
    return f"{where}, setting {name}: found {problem['input']!r}; expected {expected}"


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"{name!r}; expected {near[0] if near else 'one of ' + ', '.join(known)}"


def _names(kind: type, groups: list[str]) -> list[str]:
    """The settings of a group within a notebook's class."""
    for group in groups:
        hint = get_type_hints(kind).get(group)
        kind = next((each for each in (hint, *get_args(hint)) if is_dataclass(each)), kind)
    return [field.name for field in fields(kind)]


def _injected(cells: list[str]) -> list[str]:
    """Names assigned in the cell that papermill adds; its first line is "# Parameters"."""
    ours = [ast.parse(cell) for cell in cells if cell.startswith("# Parameters")]
    assigned = [node.targets for tree in ours for node in tree.body if isinstance(node, ast.Assign)]
    return [target.id for targets in assigned for target in targets if isinstance(target, ast.Name)]


def _require(notebook: str, loaded: NotebookSettings) -> None:
    """What no type can say: files that must be there, keys that must be set."""
    problems = []
    try:
        loaded.data.require_files()
    except ValueError as error:
        problems.append(f"{notebook}, group data: {error}")
    groups = [(field.name, getattr(loaded, field.name)) for field in fields(loaded)]
    for name, group in groups:
        if isinstance(group, Players) and not loaded.stored_runs_only:
            try:
                group.require_keys()
            except ValueError as error:
                problems.append(f"{notebook}, group {name}: {error}")
    if problems:
        raise SettingsError("\n".join(problems))
