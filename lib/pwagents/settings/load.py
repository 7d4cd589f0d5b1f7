"""How presets fill settings.

A preset is a file of ``params/``. Its section ``all`` is for every notebook that has such a group, a section
``orion`` for notebooks 05 to 08, and one such as ``03_benchmark`` for one notebook; later sections
change earlier ones. ``laptop.yaml`` is complete, other presets say what differs, and a notebook's parameters
cell comes last.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pwagents.errors import SettingsError
from pwagents.settings.group import PARAMS, Group, Players, plain, project_path
from pwagents.settings.orion import AblationsNotebook, GrpoNotebook, SensitivityNotebook, SftNotebook
from pwagents.settings.shared import (
    BenchmarkNotebook,
    NotebookSettings,
    ProfilesNotebook,
    PumaNotebook,
    WebNotebook,
)

COMPLETE = "laptop"  # the preset that every other one differs from
INTERACTIVE = "outputs/interactive"  # where a notebook opened by hand leaves its results
FLAT = {"source": "data", "data_dir": "data"}  # parameters of a cell that belong to a group
NOTEBOOKS: dict[str, type[NotebookSettings]] = {
    "00_tour": NotebookSettings,
    "01_data": NotebookSettings,
    "02_profiles": ProfilesNotebook,
    "03_benchmark": BenchmarkNotebook,
    "04_puma": PumaNotebook,
    "05_orion_sft": SftNotebook,
    "06_orion_grpo": GrpoNotebook,
    "07_ablations": AblationsNotebook,
    "08_sensitivity": SensitivityNotebook,
    "09_persona2web": WebNotebook,
    "10_summary": NotebookSettings,
}


def load_settings(notebook: str, parameters: Mapping[str, Any]) -> Any:
    """Return the settings of a notebook: the preset's, changed by its parameters.

    Args:
        parameters: what the parameters cell assigns; an empty value leaves the preset's.

    Raises:
        SettingsError: a name, type or range is wrong; a line each, with notebook and setting. Or a key is
            missing.
    """
    kind = NOTEBOOKS[notebook]
    try:
        values = settings_values(notebook, parameters)
        if isinstance(output_dir := values["output_dir"], str | Path):
            values["output_dir"] = project_path(output_dir)
        loaded = kind(**values)
        if isinstance(players := getattr(loaded, "players", None), Players) and not loaded.stored_runs_only:
            players.require_keys()
    except ValidationError as error:
        lines = [f"{notebook}, {line}" for line in _describe(kind, error)]
        raise SettingsError("\n".join(lines)) from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{notebook}, params: {' '.join(str(error).split())}") from None
    except (ValueError, RuntimeError) as error:  # no such preset, no key; a "~name" that is nobody's
        raise SettingsError(f"{notebook}: {error}") from None
    return loaded


def settings_values(notebook: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what files and parameters say, unchecked: nested dicts, without defaults of the library.

    Raises:
        ValueError: there is no such preset, or a file is no YAML.
    """
    kind = NOTEBOOKS[notebook]
    preset = parameters.get("preset") or COMPLETE
    presets = sorted(file.stem for file in PARAMS.glob("*.yaml"))
    if preset not in presets:
        raise ValueError(f"preset: found {preset!r}; expected one of {', '.join(presets)}")
    values: dict[str, Any] = {"output_dir": INTERACTIVE, "stored_runs_only": False}
    for name in dict.fromkeys([COMPLETE, preset]):
        with open(PARAMS / f"{name}.yaml", encoding="utf-8") as file:
            sections = yaml.safe_load(file)
        for section in ("all", kind.SECTION):
            # Not every notebook has all groups that are shared, nor all settings of the shop's data.
            shared = {
                key: value for key, value in sections.get(section, {}).items() if key in kind.model_fields
            }
            if "data" in shared:
                names = kind.model_fields["data"].annotation.model_fields
                shared["data"] = {key: value for key, value in shared["data"].items() if key in names}
            values = _merge(values, shared)
        values = _merge(values, sections.get(notebook, {}))
    values = _merge(values, changes(parameters)) | {"preset": preset}
    for setting, source in kind.FOLLOWS.items():
        (group, name), value = setting.split("."), values
        for part in source.split("."):
            value = value[part]
        values[group] = {name: value} | values[group]
    return values


def changes(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a parameters cell changes of its preset: all but empty values, by group."""
    changed: dict[str, Any] = {}
    for name, value in parameters.items():
        if name != "preset" and value not in (None, "", {}):
            changed = _merge(changed, {FLAT[name]: {name: value}} if name in FLAT else {name: value})
    return changed


def read_changes(text: str) -> dict[str, Any]:
    """Read what a command line changes of a preset, as YAML: ``{players: {workers: 8}}``.

    Raises:
        SettingsError: it is no YAML of names and values.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Without the text itself, which may hold a URL with a password.
        raise SettingsError(f"changes: {getattr(error, 'problem', 'unreadable')}; expected YAML") from None
    if not isinstance(values, dict):
        raise SettingsError(f"changes: found a {type(values).__name__}; expected names and values")
    return values


def substitutes(notebook: str, settings: Any) -> dict[str, str]:
    """Return each model in a role for which the preset names another one at an endpoint -> its name."""
    players = settings_values(notebook, {"preset": settings.preset}).get("players", {})
    names: dict[str, dict[str, None]] = {}  # several, where one stands for several
    for role, spec in players.items():
        own = getattr(settings.players, role)
        if str(spec).startswith("openai:") and own != spec and ":" in own:
            names.setdefault(own, {})[spec.removeprefix("openai:")] = None
    return {own: " and ".join(of_preset) for own, of_preset in names.items()}


def rows(group: Group, name: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """Yield (group, setting, value, meaning) of all settings, groups within groups as "shop.recommender"."""
    shown = plain(group)  # a URL without a token
    for field, info in type(group).model_fields.items():
        value = getattr(group, field)
        if isinstance(value, Group):
            yield from rows(value, f"{name}.{field}".lstrip("."))
        else:
            yield name, field, value.name if isinstance(value, Path) else shown[field], info.description or ""


def _describe(kind: type[Group], error: ValidationError) -> Iterator[str]:
    """Yield a line for each problem that pydantic found: which setting, what is wrong, and what was found."""
    problems = {problem["loc"]: problem for problem in error.errors(include_url=False)}
    for place, problem in problems.items():
        if any(len(other) > len(place) and other[: len(place)] == place for other in problems):
            continue  # a list that lacks an item because that item is wrong
        where, wrong = ".".join(map(str, place)), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            group = kind
            for name in place[:-1]:
                group = group.model_fields[name].annotation
            near = get_close_matches(str(place[-1]), [*group.model_fields, *FLAT], 1)
            wrong = "no such setting" + (f"; did you mean {near[0]!r}?" if near else "")
        elif not isinstance(problem["input"], Mapping | Group):  # of a group, the values do not agree
            wrong += f" (found {problem['input']!r})"
        yield f"{where}: {wrong}".removeprefix(": ")  # several groups: the text names them


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``old`` with the values of ``new``, groups merged name by name."""
    merged = dict(old)
    for name, value in new.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged
