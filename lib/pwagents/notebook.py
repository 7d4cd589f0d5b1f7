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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents import engine, portable
from pwagents.data import require_files
from pwagents.errors import SettingsError
from pwagents.files import append_line, open_lines
from pwagents.progress import counts
from pwagents.results.drawing import save_figure
from pwagents.results.episodes import FAILURES, count_outcomes
from pwagents.results.tables import Html, banner, render_table, save_table
from pwagents.settings import (
    FLAT,
    NOTEBOOKS,
    ROOT,
    DataSettings,
    NotebookSettings,
    Players,
    changes,
    load_settings,
    plain,
    rows,
    settings_values,
    substitutes,
)

SMOKE = "Preset smoke: this run only shows that everything works. The preset laptop makes real numbers."
# Folders that decide results: a stray file elsewhere, such as an executed notebook, changes none.
DECIDING = ("lib", "notebooks", "params")
PENDING = Html("<p><b>Answer.</b> The answer appears here after the notebook has run.</p>")
JOURNAL = Path("timings", "journal.jsonl")
PACKAGES = ("torch", "transformers", "numpy", "pwagents")


@dataclass(frozen=True)
class Run:
    """Where a notebook's results go.

    Attributes:
        number: the notebook's, with which names of tables and figures begin.
        output_dir: of tables, figures, models, caches, stored runs and timings.
        made_from: facts printed in small type below each figure.
        instead: which models play in the place of the preset's; below tables.
        row: of the journal, of a run that :meth:`begin` began; its ``timings`` are seconds by step.
        notes: of the language models asked so far, by the file of their replies; below tables.
        counted: what this process had counted when the run began (:mod:`pwagents.progress`).
    """

    number: str
    output_dir: Path
    made_from: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    notes: Callable[[Path], str] = lambda store: ""
    began: float = field(default_factory=time.monotonic)
    counted: Mapping[str, int] = field(default_factory=lambda: Counter(counts))

    @classmethod
    def begin(cls, notebook: str, settings: NotebookSettings, **attributes: Any) -> "Run":
        """Begin a run with a row in the journal: note commit, versions and settings as they are now."""
        # An absolute path: a notebook may change its working directory before it ends.
        output_dir = settings.output_dir.absolute()
        journal = output_dir / JOURNAL
        row = {
            "notebook": notebook,
            "status": "unfinished",
            "preset": settings.preset,
            "seed": settings.seed,
            "source": settings.data.source,
            "settings": {**plain(settings), "output_dir": str(output_dir)},
            "data_hash": None,
            "rows_before": journal.read_bytes().count(b"\n") if journal.exists() else 0,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **find_commit(),
            "versions": find_versions(),
            "portable": portable.is_on(),
            "cpu_count": os.cpu_count(),
            "timings": {},
        }
        run = cls(notebook.partition("_")[0], output_dir, row=row, **attributes)
        atexit.register(run.write_row)
        return run

    @property
    def cache(self) -> Path:
        """The folder of embeddings, indexes and recommenders."""
        return self.output_dir / "cache"

    @property
    def store(self) -> Path:
        """The file of language models' replies."""
        return self.output_dir / "runs" / "replies.sqlite"

    @property
    def wall_clock(self) -> "Run":
        """Saves under ``timings``: seconds differ from run to run, and stay out of the tables."""
        return replace(self, output_dir=self.output_dir / "timings")

    def episodes_file(self, name: str) -> Path:
        """Return the file of stored episodes."""
        return self.output_dir / "runs" / f"{self.number}_{name}.jsonl"

    def table(self, data: pd.DataFrame, name: str, *, title: str, note: str = "", **options: Any) -> Html:
        """Save a table and return it to be displayed; for the options see :func:`save_table`."""
        name = f"{self.number}_{name}"
        self.row.setdefault("tables", []).append(name)  # for `make check`, which reports it if it is missing
        options["note"] = " ".join(filter(None, (note, self.instead, self.notes(self.store))))
        return save_table(data, name, title=title, output_dir=self.output_dir, **options)

    def cost(self, estimate: pd.DataFrame, players: Players) -> None:
        """Show what language models will be asked, before it is paid for; a line if none is asked.

        Args:
            estimate: calls, tokens and US dollars, a row a role.
            players: whose budget ends the run.
        """
        if estimate.empty:
            print("All roles are played offline: no language model is asked.")
            return
        limits = f"{players.budget_usd:g} US dollars or {players.budget_tokens:,} tokens"
        title = "Calls, tokens and US dollars, before the run"
        note = f"A run stops before it costs more than {limits}, and goes on from there when run again."
        _display(self.table(estimate, "estimate", title=title, note=note, formats={"US dollars": ",.2f"}))

    def figure(
        self,
        plot: Callable,
        name: str,
        data: pd.DataFrame,
        *,
        made_from: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Save a figure with its numbers, and show it; for the options see :func:`save_figure`.

        Args:
            plot: the function that draws it from ``data`` and ``options``.
            made_from: facts that differ from, or add to, those of all figures of the notebook.
        """
        name = f"{self.number}_{name}"
        facts = {**self.made_from, **(made_from or {})}
        stamp = " · ".join([name, *(f"{fact}: {value}" for fact, value in facts.items())])
        save_figure(plot, name, data, output_dir=self.output_dir, stamp=stamp, **options)

    def answer(self, *sentences: str) -> None:
        """Show the notebook's answer, and put it at the top, where :func:`start` left a place for it."""
        from IPython.display import Markdown, display, update_display

        text = Markdown(f"**Answer.** {' '.join(sentences)}")
        update_display(text, display_id=f"answer-{self.number}")
        display(text)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall-clock of the ``with`` block to the journal row, also if it raises."""
        timings, begin = self.row.setdefault("timings", {}), time.monotonic()
        try:
            yield
        finally:
            timings[step] = round(timings.get(step, 0.0) + time.monotonic() - begin, 3)

    def finish(self, data_hash: str) -> None:
        """Write the journal row of a run that is complete, and print it with what was stored, what made."""
        self.row.update(status="finished", data_hash=data_hash, models=self.notes(self.store))
        atexit.unregister(self.write_row)
        self.write_row()
        row = self.row
        commit = (row["commit"] or "no commit")[:10] + (" with local changes" if row["local_changes"] else "")
        print(
            f"{row['notebook']} finished in {row['minutes']:.1f} min, {row['peak_memory_mb']:,.0f} MB: "
            f"{row['preset']}, {row['source']}, seed {row['seed']}, data {data_hash}, {commit}"
        )
        if row["counts"]:
            print("; ".join(f"{what}: {n:,}" for what, n in row["counts"].items()))

    def write_row(self) -> None:
        """Append the row to the journal; notebooks run beside each other, and each waits for its turn."""
        # In KiB, but on macOS in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.row["peak_memory_mb"] = round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
        self.row["counts"] = dict(sorted((counts - Counter(self.counted)).items()))
        self.row["minutes"] = round((time.monotonic() - self.began) / 60, 3)
        with open_lines(self.output_dir / JOURNAL, wait=True) as file:
            append_line(file, json.dumps(self.row).encode() + b"\n")


def start(
    notebook: str, namespace: Mapping[str, Any], *, notes: Callable[[Path], str] = lambda store: ""
) -> tuple[Any, Run]:
    """Load and show a notebook's settings, and begin its run.

    Args:
        notebook: its name, such as "03_benchmark".
        namespace: the notebook's ``globals()``; outside IPython the parameters themselves.
        notes: see :class:`Run`.

    Raises:
        SettingsError: see :func:`load_settings`; or files, keys or an engine are missing.
    """
    parameters = read_parameters(namespace, NOTEBOOKS[notebook])
    settings = load_settings(notebook, parameters)
    if isinstance(settings.data, DataSettings):
        try:
            require_files(settings.data)
        except ValueError as error:
            raise SettingsError(f"{notebook}: {error}") from None
    if not settings.portable:
        portable.switch_off()
    elif shortfall := portable.shortfall():
        print(shortfall)
    engine.use(settings.engine)
    made_from = {"preset": settings.preset, "source": settings.data.source}
    if base := getattr(settings, "base", None):
        made_from["backbone"] = base.backbone
        if settings.portable and base.is_small:  # the small model stays on the CPU
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif profiler := getattr(getattr(settings, "players", None), "profiler", ""):
        made_from["profiler"] = profiler
    others = "; ".join(f"{own} for {named}" for own, named in substitutes(notebook, settings).items())
    instead = f"In the place of the preset's models: {others}." if others else ""
    run = Run.begin(notebook, settings, made_from=made_from, instead=instead, notes=notes)
    if settings.preset == "smoke":
        _display(banner(SMOKE))
    _display(PENDING, display_id=f"answer-{run.number}")
    usual = settings_values(notebook, {"preset": settings.preset})
    _display(settings_table(settings, changes(parameters), usual))
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
            values = values if cell.startswith("# Parameters") else {}  # run again, perhaps with fewer lines
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


def settings_table(settings: NotebookSettings, given: Mapping[str, Any], usual: Mapping[str, Any]) -> Html:
    """Return all settings as a table: group, name, value, meaning; bold where ``given`` is not ``usual``."""
    listed, bold = [], []
    for group, name, value, meaning in rows(settings):
        found: list[Any] = [given, usual]
        for part in f"{group}.{name}".strip(".").split("."):
            found = [values.get(part) if isinstance(values, Mapping) else None for values in found]
        if found[0] is not None and found[0] != found[1]:
            bold.append(len(listed))
        listed.append((group, name, "none" if value in ("", None, []) else str(value), meaning))
    table = pd.DataFrame(listed, columns=["group", "setting", "value", "meaning"])
    shown = render_table(table, "settings", title="Settings", note="Bold: changed here.", bold_rows=bold)
    # In a box of its own, so that the notebook's story begins on the first screen.
    return Html(f'<div style="max-height: 32em; overflow-y: auto">{shown.html}</div>')


def outcomes(episodes: pd.DataFrame, by: Sequence[str]) -> None:
    """Show how episodes ended, by the columns ``by``; a line if all were scored and none went wrong.

    Among the scored are those that count 0 because the policy's model refused or the agent failed (``end``):
    each kind has a column if there are any.
    """
    counts = count_outcomes(episodes, by).rename(columns=lambda column: column.replace("_", " "))
    went_wrong = (episodes["outcome"] != "scored").any()
    for end, what in FAILURES.items():
        failed = episodes["end"] == end if "end" in episodes else pd.Series(dtype=bool)
        if failed.any():
            sums = failed.groupby([episodes[column] for column in by]).sum().rename(f"of these {what}")
            counts, went_wrong = counts.join(sums, on=list(by)), True
    if went_wrong:
        _display(render_table(counts, "outcomes", title="How the episodes ended"))
    else:
        print(f"All {len(episodes):,} episodes were scored.")


def find_commit() -> dict[str, Any]:
    """Return the commit, and whether what decides results differs from it; None for both without git."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    try:
        if not (ROOT / ".git").exists() or not (ROOT / "lib" / "pwagents").is_dir():
            raise FileNotFoundError  # installed: a repository around it is another one
        answers = [
            subprocess.run([*git, *arguments], check=True, capture_output=True, text=True).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", *DECIDING])
        ]
    except (OSError, subprocess.CalledProcessError):  # git is missing, or refuses
        return {"commit": None, "local_changes": None}
    return {"commit": answers[0], "local_changes": bool(answers[1])}


def find_versions() -> dict[str, str | None]:
    """Return the versions of Python and of what computes, by their metadata, which costs no import."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        versions[package] = None
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _display(shown: Any, **options: Any) -> None:
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython():
        display(shown, **options)
