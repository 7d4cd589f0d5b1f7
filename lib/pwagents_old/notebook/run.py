"""A notebook's run: its settings shown, its results saved under its number, its row in the journal.

settings, run = start("01_data", DataNotebook, globals())           # first cell after the parameters
with run.timed("search index"):
    ...
run.table(frame, "statistics", title="...")                         # tables/01_statistics.csv, .html, .tex
run.figure(plot_year, "year", frame)         # figures/01_year.png, .svg, .csv; .parquet for `make figures`
run.finish(data_hash=benchmark.content_hash)                        # last cell

A run leaves a row in ``<output_dir>/timings/journal.jsonl``: what ran, on what, for how long, and how it
ended. Wall-clock belongs there and never into a table. A run that ends without ``finish`` (a cell failed, the
kernel was restarted) leaves a row with the status "unfinished"; only a killed process leaves none. Nothing of
the environment's variables is recorded.
"""

import atexit
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents import portable
from pwagents.data import require_files
from pwagents.notebook import read_parameters, settings_table
from pwagents.results import tables
from pwagents.results.drawing import save_figure
from pwagents.results.metrics import FAILURES
from pwagents.settings import (
    DataSettings,
    Kind,
    Players,
    changes,
    load_settings,
    plain,
)
from pwagents import engine
from pwagents.files import append_line, open_lines
from pwagents.results.metrics import count_outcomes
from pwagents_old.llm.make import notes
from pwagents_old.notebook import figures, preflight  # noqa: F401  figures: where drawing functions stand
from pwagents_old.project import ROOT

SMOKE_BANNER = (
    "Preset smoke: this run only shows that everything works. Its numbers mean nothing; "
    "the preset laptop makes real ones."
)
# Folders that decide results: a stray file elsewhere, such as an executed notebook, changes none.
DECIDING = ("lib", "notebooks", "params")
PACKAGES = ("torch", "transformers", "numpy", "pwagents")


@dataclass(frozen=True)
class Run:
    """Where a notebook's results go.

    Attributes:
        number: the notebook's, with which names of tables and figures begin.
        output_dir: of tables, figures, models, caches, stored runs and timings.
        made_from: what each figure says of itself in small type: preset, source and, where the notebook has
            one, the backbone.
        row: of the journal, of a run that :meth:`begin` began; its ``timings`` are seconds by step.
        began: when, in seconds of the process's own clock.
    """

    number: str
    output_dir: Path
    made_from: Mapping[str, str] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls, notebook: str, settings: Mapping[str, Any], output_dir: Path | str, **made_from: str
    ) -> "Run":
        """Begin a run with a row in the journal: note commit, versions and settings as they are now.

        Args:
            settings: all of the notebook's, as JSON values.
        """
        versions: dict[str, str | None] = {"python": platform.python_version()}
        for package in PACKAGES:  # by their metadata, which costs no import
            versions[package] = None
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        row = {
            "notebook": notebook,
            "status": "unfinished",
            "preset": settings["preset"],
            "seed": settings["seed"],
            "source": settings["data"]["source"],
            "settings": {**settings, "output_dir": str(output_dir)},
            "data_hash": None,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **find_commit(),
            "versions": versions,
            "portable": not portable.shortfall(),
            "cpu_count": os.cpu_count(),
            "timings": {},
        }
        # An absolute path: a notebook may change its working directory before it ends.
        run = cls(notebook.partition("_")[0], Path(output_dir).absolute(), made_from, row)
        atexit.register(run.write_row)
        return run

    @property
    def cache_dir(self) -> Path:
        return self.output_dir / "cache"

    @property
    def store(self) -> Path:
        """The file of language models' replies."""
        return self.output_dir / "runs" / "replies.sqlite"

    def table(self, data: pd.DataFrame, name: str, *, title: str, note: str = "", **options: Any):
        """Save a table and return it to be displayed; for the options see :func:`tables.save_table`.

        Below the note stands what is to be told of the language models asked so far.
        """
        name = f"{self.number}_{name}"
        options["note"] = f"{note} {notes(self.store)}".strip()
        self.row.setdefault("tables", []).append(name)  # for `make check`, which misses it where it is gone
        return tables.save_table(data, name, title=title, output_dir=self.output_dir, **options)

    def show(self, data: pd.DataFrame, name: str, *, otherwise: str, **options: Any) -> None:
        """Save and display a table; where it has no row, print ``otherwise`` and remove an earlier run's."""
        if len(data):
            _display(self.table(data, name, **options))
        else:
            print(otherwise)
            for path in (self.output_dir / "tables").glob(f"{self.number}_{name}.*"):
                path.unlink()

    def show_outcomes(self, episodes: pd.DataFrame, name: str, by: Sequence[str]) -> None:
        """Show how episodes ended, counted by the columns ``by``; in a line where nothing went wrong.

        Among the scored are those that count 0 because the policy's model refused or the agent failed
        (``end``): each kind has a column where there are any.
        """
        counts = count_outcomes(episodes, by).rename(columns=lambda column: column.replace("_", " "))
        went_wrong = (episodes["outcome"] != "scored").any()
        for end, what in FAILURES.items():
            failed = episodes["end"] == end if "end" in episodes else pd.Series(dtype=bool)
            if failed.any():
                sums = failed.groupby([episodes[column] for column in by]).sum().rename(f"of these {what}")
                counts, went_wrong = counts.join(sums, on=list(by)), True
        counts = counts if went_wrong else counts.iloc[:0]
        otherwise = f"All {len(episodes):,} episodes were scored."
        self.show(counts, name, title="How the episodes ended", otherwise=otherwise)

    def cost(self, estimate: pd.DataFrame, players: Players) -> None:
        """Show what language models will be asked, before it is paid for, as the table "estimate"; one line
        where none is asked.

        Args:
            estimate: of :func:`pwagents_old.llm.budget.estimate`.
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
        """Save a figure with the plotted numbers, from which `make figures` can draw it again, and show it.

        Args:
            plot: the function that draws it from ``data`` and ``options``; see :func:`save_figure`.
            made_from: what differs from, or adds to, what all figures of the notebook say of themselves.
        """
        name = f"{self.number}_{name}"
        # The stamp's small type, below the figure.
        facts = {**self.made_from, **(made_from or {})}
        stamp = " · ".join([name, *(f"{fact}: {value}" for fact, value in facts.items())])
        save_figure(plot, name, data, output_dir=self.output_dir, stamp=stamp, **options)

    @property
    def wall_clock(self) -> "Run":
        """Saves under ``timings``: seconds differ from run to run, and stay out of the tables."""
        return replace(self, output_dir=self.output_dir / "timings")

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall-clock of the ``with`` block to the journal row, also when it raises."""
        timings, begin = self.row.setdefault("timings", {}), time.monotonic()
        try:
            yield
        finally:
            timings[step] = round(timings.get(step, 0.0) + time.monotonic() - begin, 3)

    def finish(self, data_hash: str) -> None:
        """Write the journal row of a run that went to its end, and print it as one line."""
        self.row.update(status="finished", data_hash=data_hash, models=notes(self.store))
        atexit.unregister(self.write_row)
        self.write_row()
        row = self.row
        commit = (row["commit"] or "no commit")[:10] + (" with local changes" if row["local_changes"] else "")
        print(
            f"{row['notebook']} finished in {row['minutes']:.1f} min, {row['peak_memory_mb']:,.0f} MB: "
            f"{row['preset']}, {row['source']}, seed {row['seed']}, data {data_hash}, {commit}"
        )

    def write_row(self) -> None:
        """Append the row to the journal; notebooks run beside each other, and each waits for its turn."""
        # In KiB, but on macOS in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.row["peak_memory_mb"] = round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
        self.row["minutes"] = round((time.monotonic() - self.began) / 60, 3)
        with open_lines(self.output_dir / "timings" / "journal.jsonl", wait=True) as file:
            append_line(file, json.dumps(self.row).encode() + b"\n")


def find_commit() -> dict[str, Any]:
    """Return the commit, and whether what decides results differs from it; None for both without git."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    try:
        if not (ROOT / ".git").exists() or not (ROOT / "lib" / "pwagents_old").is_dir():
            raise FileNotFoundError  # installed: a repository around it is another one
        answers = [
            subprocess.run([*git, *arguments], check=True, capture_output=True, text=True).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", *DECIDING])
        ]
    except (OSError, subprocess.CalledProcessError):  # git is missing, or refuses
        return {"commit": None, "local_changes": None}
    return {"commit": answers[0], "local_changes": bool(answers[1])}


def start(notebook: str, namespace: Mapping[str, Any], kind: type[Kind]) -> tuple[Kind, Run]:
    """Load and show a notebook's settings, and begin its run.

    Args:
        notebook: its name, such as "01_data".
        namespace: the notebook's ``globals()``, in which its parameters are.
        kind: its class of settings.

    Raises:
        SettingsError, DataError: see :func:`pwagents.settings.load_settings`; or a model, key, file
            or GPU is missing: a line says what brings it.
    """
    parameters = read_parameters(namespace, kind)
    preflight.check(notebook, kind, parameters)
    settings = load_settings(notebook, parameters, kind)
    if isinstance(settings.data, DataSettings):
        require_files(settings.data)
    # Before anything is computed: how numbers are made on this CPU, and where.
    if not settings.portable:
        portable.switch_off()
    elif shortfall := portable.shortfall():
        print(shortfall)
    # The small model's numbers are those of other machines only where a CPU computes them.
    if settings.portable and hasattr(settings, "base") and settings.base.is_small:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    engine.use(settings.engine)
    made_from = {"preset": settings.preset, "source": settings.data.source}
    if hasattr(settings, "base"):  # notebooks that train
        made_from["backbone"] = settings.base.backbone
    elif hasattr(getattr(settings, "players", None), "profiler"):
        made_from["profiler"] = settings.players.profiler
    run = Run.begin(notebook, plain(settings), settings.output_dir, **made_from)
    if settings.preset == "smoke":
        _display(tables.banner(SMOKE_BANNER))
    _display(settings_table(settings, changes(parameters)))
    return settings, run


def _display(shown: Any) -> None:
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython():
        display(shown)
