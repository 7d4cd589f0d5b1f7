"""The notebooks of the project, for tests: their parameters cells and classes of settings."""

import re
from functools import cache
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(
    path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem)
)
_START = re.compile(r"settings, run = start\(\"(\w+)\", (\w+), globals\(\)\)")


@cache
def cells_of(notebook: str) -> list:
    return nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells


def parameters_cell(notebook: str) -> str:
    (source,) = (c.source for c in cells_of(notebook) if "parameters" in c.metadata.get("tags", ()))
    return source


@cache
def kind_of(notebook: str) -> type:
    """The class of settings that the notebook starts with."""
    (cell,) = (c for c in cells_of(notebook) if c.cell_type == "code" and _START.search(c.source))
    name, kind = _START.search(cell.source).groups()
    assert name == notebook
    namespace: dict = {}
    exec("\n".join(line for line in cell.source.splitlines() if line.startswith("from pwagents")), namespace)
    return namespace[kind]


def parameters_of(notebook: str) -> dict:
    """What the parameters cell says as it is committed."""
    values: dict = {}
    exec(parameters_cell(notebook), values)
    del values["__builtins__"]
    return values
