"""The notebooks of the project, for tests: their parameters cells and classes of settings."""

import re
from functools import cache
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(
    path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem)
)


@cache
def cells_of(notebook: str) -> list:
    return nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells


def parameters_cell(notebook: str) -> str:
    (source,) = (c.source for c in cells_of(notebook) if "parameters" in c.metadata.get("tags", ()))
    return source


def parameters_of(notebook: str) -> dict:
    """What the parameters cell says as it is committed."""
    values: dict = {}
    exec(parameters_cell(notebook), values)
    del values["__builtins__"]
    return values
