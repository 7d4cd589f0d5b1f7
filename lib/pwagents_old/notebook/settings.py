"""A notebook's settings: read from ``params/``, changed by its parameters cell, checked before work starts.

A preset is one file. Its section ``all`` is for every notebook, a section ``orion`` for those of a wing, and
``03_benchmark`` for a notebook; later sections change earlier ones. ``laptop.yaml`` is complete, up to
defaults in the library, and every other preset says what differs. The parameters cell, which papermill
writes into, comes last.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import NonNegativeInt, ValidationError
from pydantic_core import ArgsKwargs

from pwagents.errors import SettingsError
from pwagents_old.data.settings import DataSettings
from pwagents_old.engine import Engine
from pwagents_old.project import PARAMS, project_path
from pwagents_old.settings import meaning, plain, settings

COMPLETE = "laptop"  # the preset that every other one differs from
INTERACTIVE = "outputs/interactive"  # where a notebook opened by hand leaves its results


@settings
class NotebookSettings:
    """What every notebook has; each notebook's own class adds its groups."""

    preset: str
    """The file of ``params/`` that values come from."""

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
    """Load the settings of a notebook.

    Args:
        notebook: its name, such as "01_data".
        kind: its class of settings.
        parameters: what its parameters cell says: ``preset``, ``source``, ``data_dir``, ``output_dir``,
            ``seed``, ``stored_runs_only``, and a dict for each group. An empty value leaves the preset's.

    Raises:
        SettingsError: a name, type or range is wrong, an API key is missing, or ``data_dir`` lacks the
            source's files; a line each, with notebook and setting, in OmegaConf's or pydantic's words.
    """
    try:
        merged = _merge(notebook, kind, parameters)
        merged = OmegaConf.merge(OmegaConf.structured(kind), merged)  # refuses names that there are not
        values = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
        loaded = kind(**values | {"output_dir": project_path(values["output_dir"])})
        # What no type can say: files that must be there, keys that must be set.
        loaded.data.require_files()
        if hasattr(loaded, "players") and not loaded.stored_runs_only:
            loaded.players.require_keys()
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        where = getattr(error, "full_key", None) or "params"
        wrong = " ".join(str(error).partition("\n    full_key:")[0].split())
        raise SettingsError(f"{notebook}, {where}: {wrong}") from None
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            place, wrong = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
            if not isinstance(problem["input"], ArgsKwargs | Mapping):  # a group, whose values do not agree
                wrong += f" (found {problem['input']!r})"
            lines.append(f"{notebook}, {place}: {wrong}")
        raise SettingsError("\n".join(lines)) from None
    except (ValueError, RuntimeError) as error:  # a "~name" that is nobody's
        raise SettingsError(f"{notebook}: {error}") from None
    return loaded


def settings_values(
    notebook: str, kind: type[NotebookSettings], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what files and parameters say, unchecked: nested dicts, without defaults of the library.

    Raises:
        ValueError: there is no such preset, or OmegaConf cannot read what the parameters say.
    """
    return OmegaConf.to_container(_merge(notebook, kind, parameters), resolve=True)


def _merge(notebook: str, kind: type[NotebookSettings], parameters: Mapping[str, Any]) -> DictConfig:
    """Merge the sections of files that a notebook reads, the weakest first, and what its cell changes."""
    preset = parameters.get("preset") or COMPLETE
    presets = sorted(file.stem for file in PARAMS.glob("*.yaml"))
    if preset not in presets:
        raise ValueError(f"preset: found {preset!r}; expected one of {', '.join(presets)}")
    own, wing, merged = get_type_hints(kind), kind.__module__.split(".")[1], OmegaConf.create()
    for name in dict.fromkeys([COMPLETE, preset]):
        file = OmegaConf.load(PARAMS / f"{name}.yaml")
        for section in ("all", wing):
            # Not every notebook has all groups that are shared, nor all of the shop's data.
            shared = OmegaConf.masked_copy(file.get(section, OmegaConf.create()), list(own))
            if "data" in shared:
                names = [field.name for field in fields(own["data"])]
                shared.data = OmegaConf.masked_copy(shared.data, names)
            merged.merge_with(shared)
        merged.merge_with(file.get(notebook, {}))
    return OmegaConf.merge(merged, {"output_dir": INTERACTIVE}, changes(parameters), {"preset": preset})


def read_changes(text: str) -> dict[str, Any]:
    """Read what a command line changes of a preset, as YAML: ``{players: {workers: 8}}``.

    Raises:
        SettingsError: it is no YAML of names and values.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"changes: {' '.join(str(error).split())}; expected YAML") from None
    if not isinstance(values, dict):
        raise SettingsError(f"changes: found {text!r}; expected names and values")
    return values


def changes(parameters: Mapping[str, Any]) -> DictConfig:
    """Return what a parameters cell changes of its preset: all but empty values, by group."""
    changed = {name: value for name, value in parameters.items() if value not in (None, "", {})}
    changed = {name: str(value) if isinstance(value, Path) else value for name, value in changed.items()}
    changed.pop("preset", None)
    # Flat in the parameters cell, of the group `data` for the library.
    flat = {name: changed.pop(name) for name in ("source", "data_dir") if name in changed}
    # YAML 1.1, as papermill and PyYAML read it, takes 1e-4 for a text: OmegaConf reads it once more.
    written = yaml.safe_dump(changed, sort_keys=False)
    return OmegaConf.merge({"data": flat} if flat else {}, OmegaConf.create(written))


def parameters_of(kind: type[NotebookSettings], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a notebook's first cells define.

    papermill only warns of a parameter that the notebook does not have. It is among these, so that
    :func:`load_settings` refuses it.

    Args:
        namespace: the notebook's ``globals()``.
    """
    # What was run in this kernel: IPython keeps the cells' sources in ``In``.
    names = {"source", "data_dir", *(field.name for field in fields(kind))}
    for cell in namespace.get("In", ()):
        if cell.startswith("# Parameters"):  # the cell that papermill adds
            assigned = [node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Assign)]
            names |= {target.id for node in assigned for target in node.targets}
    return {name: namespace[name] for name in names if name in namespace}


def rows(group: Any, name: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """Yield (group, setting, value, meaning) of all settings, groups within groups as "shop.recommender"."""
    shown = plain(group)  # a URL without a token
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from rows(value, f"{name}.{field.name}".lstrip("."))
        else:
            value = value.name if isinstance(value, Path) else shown[field.name]
            yield name, field.name, value, meaning(type(group), field.name)
