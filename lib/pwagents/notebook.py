"""A notebook's run: its settings shown, its results saved under its number, its row in the journal.

    settings, run = start("03_benchmark", globals())           # first cell after the parameters
    run.table(frame, "memory_gain", title="...")               # tables/03_memory_gain.csv, .html, .tex
    run.figure(plot_intervals, "recommender", frame)           # figures/03_recommender.png, .svg, .csv
    run.finish(data_hash=benchmark.content_hash)               # last cell

A run leaves a row in ``<output_dir>/timings/journal.jsonl``: what ran, on what, for how long, and how it
ended. Wall-clock belongs there and never into a table. A run that ends without ``finish`` leaves a row with
the status "unfinished"; only a killed process leaves none. Nothing of the environment's variables is
recorded.
"""

import ast
import atexit
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents import portable
from pwagents.data import require_files
from pwagents.errors import SettingsError
from pwagents.files import append_line, open_lines
from pwagents.results.drawing import save_figure
from pwagents.results.metrics import FAILURES
from pwagents.results.tables import Html, banner, render_table, save_table
from pwagents.settings import (
    FLAT,
    NOTEBOOKS,
    ROOT,
    NotebookSettings,
    changes,
    load_settings,
    plain,
    rows,
)

SMOKE = "Preset smoke: this run only shows that everything works. The preset laptop makes real numbers."
PACKAGES = ("torch", "transformers", "numpy", "pwagents")


@dataclass(frozen=True)
class Run:
    """Where a notebook's results go.

    Attributes:
        number: the notebook's, with which names of tables and figures begin.
        made_from: what each figure says of itself in small type.
        row: of the journal; its ``timings`` are seconds by step.
    """

    number: str
    output_dir: Path
    made_from: Mapping[str, str]
    row: dict[str, Any]
    began: float = field(default_factory=time.monotonic)

    @property
    def cache(self) -> Path:
        """The folder of embeddings, indexes and recommenders."""
        return self.output_dir / "cache"

    def episodes_file(self, name: str) -> Path:
        """Return the file of stored episodes."""
        return self.output_dir / "runs" / f"{self.number}_{name}.jsonl"

    def table(self, data: pd.DataFrame, name: str, *, title: str, **options: Any) -> Html:
        """Save a table and return it to be displayed; for the options see :func:`save_table`."""
        name = f"{self.number}_{name}"
        self.row.setdefault("tables", []).append(name)  # for `make check`, which misses it if it is gone
        return save_table(data, name, title=title, output_dir=self.output_dir, **options)

    def figure(self, plot: Callable, name: str, data: pd.DataFrame, **options: Any) -> None:
        """Save a figure with its numbers, and show it; for the options see :func:`save_figure`."""
        name = f"{self.number}_{name}"
        stamp = " · ".join([name, *(f"{fact}: {value}" for fact, value in self.made_from.items())])
        save_figure(plot, name, data, output_dir=self.output_dir, stamp=stamp, **options)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall-clock of the ``with`` block to the journal row, also if it raises."""
        timings, begin = self.row["timings"], time.monotonic()
        try:
            yield
        finally:
            timings[step] = round(timings.get(step, 0.0) + time.monotonic() - begin, 3)

    def finish(self, data_hash: str) -> None:
        """Write the journal row of a run that is complete, and print it as one line."""
        self.row.update(status="finished", data_hash=data_hash)
        atexit.unregister(self.write_row)
        self.write_row()
        row = self.row
        took = f"{row['minutes']:.1f} min, {row['peak_memory_mb']:,.0f} MB"
        made_from = f"preset {row['preset']}, data {data_hash}, commit {row['commit'] or 'none'}"
        print(f"{row['notebook']} finished in {took}: {made_from}")

    def write_row(self) -> None:
        """Append the row to the journal; notebooks run beside each other, and each waits for its turn."""
        # In KiB, but on macOS in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.row["peak_memory_mb"] = round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
        self.row["minutes"] = round((time.monotonic() - self.began) / 60, 3)
        with open_lines(self.output_dir / "timings" / "journal.jsonl", wait=True) as file:
            append_line(file, json.dumps(self.row).encode() + b"\n")


def start(notebook: str, namespace: Mapping[str, Any]) -> tuple[Any, Run]:
    """Load and show a notebook's settings, and begin its run.

    Args:
        namespace: the notebook's ``globals()``; outside IPython the parameters themselves.

    Raises:
        SettingsError: see :func:`load_settings`; or files or keys are missing.
    """
    parameters = read_parameters(namespace, NOTEBOOKS[notebook])
    settings = load_settings(notebook, parameters)
    try:
        require_files(settings.data)
    except ValueError as error:
        raise SettingsError(f"{notebook}: {error}") from None
    if not settings.portable:
        portable.switch_off()
    elif shortfall := portable.shortfall():
        print(shortfall)
    values, made_from = plain(settings), {"preset": settings.preset, "source": settings.data.source}
    row = {
        "notebook": notebook,
        "status": "unfinished",
        "preset": settings.preset,
        "seed": settings.seed,
        "source": settings.data.source,
        "settings": values,
        "data_hash": None,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": find_commit(),
        "versions": {"python": platform.python_version(), **{each: version(each) for each in PACKAGES}},
        "portable": portable.is_on(),
        "cpu_count": os.cpu_count(),
        "timings": {},
    }
    run = Run(notebook.partition("_")[0], settings.output_dir.absolute(), made_from, row)
    atexit.register(run.write_row)
    if settings.preset == "smoke":
        _display(banner(SMOKE))
    _display(settings_table(settings, changes(parameters)))
    return settings, run


def read_parameters(namespace: Mapping[str, Any], kind: type[NotebookSettings]) -> dict[str, Any]:
    """Return what the parameters cell assigns, and the cell that papermill adds after it.

    IPython keeps the source of each cell that it ran: a cell counts if it assigns ``preset`` or is
    papermill's. The last value of a name holds, and what other cells assign does not matter. A misspelt
    parameter is among what is returned, so that :func:`load_settings` refuses it; names that begin with "_"
    are left out.

    Args:
        namespace: the notebook's ``globals()``. Outside IPython, settings are read from its names.
        kind: whose settings these are.
    """
    values: dict[str, Any] = {}
    for cell in namespace.get("In", ()):
        assigned = _assigned(cell, namespace)
        if "preset" in assigned or cell.startswith("# Parameters"):
            values |= {name: value for name, value in assigned.items() if not name.startswith("_")}
    names = {*FLAT, *kind.model_fields}
    return values or {name: namespace[name] for name in names if name in namespace}


def _assigned(cell: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a cell assigns: literals as they are written, other values as the namespace has them."""
    try:
        tree = ast.parse(cell)
    except SyntaxError:  # it did not run
        return {}
    stored = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    assigned = {name.id: namespace.get(name.id) for name in stored}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name):
            with suppress(ValueError, TypeError):
                assigned[name.id] = ast.literal_eval(statement.value)
    return assigned


def settings_table(settings: NotebookSettings, changed: Mapping[str, Any]) -> Html:
    """Return all settings as a table: group, name, value, meaning; those in ``changed`` are bold."""
    listed, bold = [], []
    for group, name, value, meaning in rows(settings):
        own: Any = changed
        for part in f"{group}.{name}".strip(".").split("."):
            own = own.get(part) if isinstance(own, Mapping) else None
        if own is not None:
            bold.append(len(listed))
        listed.append((group, name, "none" if value in ("", None, []) else str(value), meaning))
    table = pd.DataFrame(listed, columns=["group", "setting", "value", "meaning"])
    shown = render_table(table, "settings", title="Settings", note="Bold: changed here.", bold_rows=bold)
    # In a box of its own, so that the notebook's story begins on the first screen.
    return Html(f'<div style="max-height: 32em; overflow-y: auto">{shown.html}</div>')


def outcomes(frame: pd.DataFrame, by: list[str]) -> Any:
    """Return how episodes ended, counted; a line if all were scored."""
    failed = {what: (frame["end"] == end) for end, what in FAILURES.items() if (frame["end"] == end).any()}
    if (frame["outcome"] == "scored").all() and not failed:
        return f"All {len(frame):,} episodes were scored."
    counts = frame.groupby(by, sort=False)["outcome"].value_counts().unstack(fill_value=0)
    for what, rows_ in failed.items():
        counts[f"of these {what}"] = rows_.groupby([frame[column] for column in by]).sum()
    return render_table(counts.reset_index(), "outcomes", title="How the episodes ended")


def find_commit() -> str | None:
    """Return the commit, with "+" if the files that decide results differ from it; None without git."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    try:
        answers = [
            subprocess.run([*git, *arguments], check=True, capture_output=True, text=True).stdout.strip()
            for arguments in (
                ["rev-parse", "HEAD"],
                ["status", "--porcelain", "--", "lib", "notebooks", "params"],
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return answers[0] + "+" * bool(answers[1])


def _display(shown: Any) -> None:
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython():
        display(shown)
