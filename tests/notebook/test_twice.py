"""Notebooks that have moved to the new package: a second run in one kernel, and what they look like."""

import ast
import shutil

import nbformat
import pytest
from nbclient import NotebookClient

from pwagents.report.reference import REFERENCE
from pwagents.settings import NOTEBOOKS, load_settings, rows

from .notebooks import QUICK, ROOT, cells_of, parameters_of

# Calls that present, and what holds titles, notes and choices of columns.
SHOWS = {"print", "display", "table", "figure", "answer", "outcomes"}
SHOWS |= {"show_episodes", "show", "render_table"}
LABELS = {"title", "note", "axis", "hue", "labels", "headings", "columns", "tested", "cells"}
LABELS |= {"two_decimals", "twins", "figure"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_run_all_works_twice_in_one_kernel_and_its_settings_cell_after_the_end(notebook, tmp_path):
    if notebook == "10_summary":  # it reads what other notebooks left
        for folder in ("figures", "tables"):
            shutil.copytree(REFERENCE / folder, tmp_path / folder)
    fresh = nbformat.v4.new_notebook(cells=[cell.copy() for cell in cells_of(notebook)])
    given = QUICK[notebook] | {"preset": "smoke", "output_dir": str(tmp_path)}
    lines = [f"{name} = {value!r}" for name, value in given.items()]
    place = next(i for i, cell in enumerate(fresh.cells) if "parameters" in cell.metadata.get("tags", ()))
    fresh.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(["# Parameters", *lines])))
    client = NotebookClient(fresh, kernel_name="python3", timeout=300, resources={"metadata": {"path": ROOT}})
    code = [(i, cell) for i, cell in enumerate(fresh.cells) if cell.cell_type == "code"]
    starts, settings_cell = next((i, cell) for i, cell in code if "start(" in cell.source)
    with client.setup_kernel():
        for _ in range(2):
            client.reset_execution_trackers()  # of outputs, which the second run replaces
            for i, cell in code:
                client.execute_cell(cell, i)
        assert f"{notebook} finished" in code[-1][1].outputs[-1].text
        answers = [shown_answer(cell) for _, cell in code]
        at_top, at_end = filter(None, answers)
        assert at_top == at_end and answers.index(at_top) == [i for i, _ in code].index(starts)
        client.reset_execution_trackers()
        client.execute_cell(settings_cell, starts)


def shown_answer(cell) -> str:
    """Return the answer that a cell's output shows; empty if it shows none."""
    texts = [output.get("data", {}).get("text/markdown", "") for output in cell.outputs]
    return "".join(text for text in texts if text.startswith("**Answer.**"))


def code_of(notebook: str) -> list[str]:
    return [cell.source for cell in cells_of(notebook) if cell.cell_type == "code"]


@pytest.mark.parametrize("notebook", QUICK)
def test_no_cell_assigns_a_name_that_a_setting_has(notebook, tmp_path):
    settings = load_settings(notebook, {"preset": "smoke", "output_dir": str(tmp_path)})
    groups = {part for group, *_ in rows(settings) for part in group.split(".")}
    taken = {*parameters_of(notebook), *groups, *(name for _, name, *_ in rows(settings))} - {""}
    cells = [source for source in code_of(notebook) if not source.startswith("preset =")]
    assigned = set()
    for statement in (statement for source in cells for statement in ast.parse(source).body):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            assigned.add(statement.name)  # what is assigned inside stays there
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assigned.add(node.id)
            elif isinstance(node, ast.alias):
                assigned.add(node.asname or node.name)
    assert assigned & taken == set()


@pytest.mark.parametrize("notebook", QUICK)
def test_at_most_sixteen_cells_and_two_lines_in_five_import_or_present(notebook):
    cells = code_of(notebook)
    assert len(cells) - 3 <= 16  # parameters, start and finish not counted
    shows, count = 0, 0
    for statement in (statement for source in cells[2:-1] for statement in ast.parse(source).body):
        count += statement.end_lineno - statement.lineno + 1
        shows += lines_shown(statement)
    assert shows <= 0.4 * count, f"{shows} of {count} lines"


def lines_shown(statement: ast.stmt) -> int:
    """Count a statement's lines that import, label or present, those within conditions and loops too."""
    if isinstance(statement, ast.If | ast.With | ast.For | ast.Try):
        inner = [*statement.body, *getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())]
        return sum(map(lines_shown, inner))
    return statement.end_lineno - statement.lineno + 1 if is_shown(statement) else 0


def is_shown(statement: ast.stmt) -> bool:
    """Whether a statement imports, labels or presents."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.Assign):
        names = [node for target in statement.targets for node in ast.walk(target)]
        names = {node.id for node in names if isinstance(node, ast.Name)}
        return names <= LABELS
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = getattr(call, "func", None)
    return getattr(name, "id", getattr(name, "attr", "")) in SHOWS
