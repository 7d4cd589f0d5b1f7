"""How notebooks are written: prose before code, short cells, one way to set them."""

import ast
import statistics
from itertools import pairwise

import pytest

from .notebooks import NOTEBOOKS, cells_of, kind_of, parameters_cell

FLAT = ["preset", "source", "data_dir", "output_dir", "seed", "stored_runs_only"]
MOST_CODE_CELLS = {"03_benchmark": 25, "09_persona2web": 25}


def code_and_text(notebook):
    cells = cells_of(notebook)
    return [c for c in cells if c.cell_type == "code"], [c for c in cells if c.cell_type == "markdown"]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_has_as_much_prose_as_code_and_short_cells(notebook):
    code, text = code_and_text(notebook)
    lines = [len(cell.source.splitlines()) for cell in code]
    assert len(text) >= len(code)
    assert len(code) <= MOST_CODE_CELLS.get(notebook, 22)
    assert statistics.median(lines) <= 9 and max(lines) <= 20


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_parameters_are_six_flat_names_and_one_for_each_group(notebook):
    lines = parameters_cell(notebook).splitlines()
    assert len(lines) <= 15 and all("#" in line for line in lines)
    values = {}
    exec("\n".join(lines), values)
    names = [name for name in values if name != "__builtins__"]
    assert names[: len(FLAT)] == FLAT
    groups = set(kind_of(notebook).__dataclass_fields__) - {*FLAT, "portable", "engine"}
    assert set(names[len(FLAT) :]) == groups and all(values[name] == {} for name in groups)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_no_cell_renames_parameters(notebook):
    """No cell after the settings reads a parameter by its bare name."""
    code, _ = code_and_text(notebook)
    starts = next(i for i, cell in enumerate(code) if "start(" in cell.source)
    names = {*FLAT, *kind_of(notebook).__dataclass_fields__} - {"preset"}
    assigned, read = set(), set()
    for cell in code[starts + 1 :]:
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else assigned).add(node.id)
    assert not (read & names) - assigned


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_opens_with_its_question_and_what_to_expect(notebook):
    _, text = code_and_text(notebook)
    opening = text[0].source
    assert opening.startswith(f"# {notebook[:2]} · ") and "**Question.**" in opening
    assert all(f"| {row}" in opening for row in ("reads", "writes", "takes", "expect"))


@pytest.mark.parametrize(("notebook", "following"), list(pairwise(NOTEBOOKS)))
def test_a_notebook_ends_with_a_link_to_the_next(notebook, following):
    title = cells_of(following)[0].source.splitlines()[0].removeprefix("# ")
    assert cells_of(notebook)[-1].source == f"Next: [{title}]({following}.ipynb)"
