"""A notebook's run: its settings shown, its results saved under its number, its journal row.

settings, run = start("01_data", DataNotebook, globals())           # first cell after the parameters
with run.timed("search index"):
    ...
run.table(frame, "statistics", title="...")                         # tables/01_statistics.csv, .html, .tex
run.figure(plot_year, "year", frame)         # figures/01_year.png, .svg, .csv; .parquet for `make figures`
run.finish(data_hash=benchmark.content_hash)                        # last cell
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from pwagents import engine, portable
from pwagents.evaluation import tables
from pwagents.evaluation.episodes import count_outcomes
from pwagents.evaluation.viewer import FAILURES
from pwagents.llm.settings import Players
from pwagents.notebook.figures import save_figure
from pwagents.notebook.journal import Journal
from pwagents.notebook.settings import Kind, changes, load_settings, parameters_of, rows
from pwagents.settings import plain

SMOKE_BANNER = (
    "Preset smoke: this run only shows that everything works. Its numbers mean nothing; "
    "the preset laptop makes real ones."
)


@dataclass(frozen=True)
class Run:
    """Where a notebook's results go.

    Attributes:
        number: the notebook's, with which names of tables and figures begin.
        output_dir: of tables, figures, models, caches, stored runs and timings.
        made_from: what each figure says of itself in small type: preset, source and, where the notebook has
            one, the backbone.
    """

    number: str
    output_dir: Path
    journal: Journal
    made_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def cache_dir(self) -> Path:
        return self.output_dir / "cache"

    @property
    def store(self) -> Path:
        """The file of language models' replies."""
        return self.output_dir / "runs" / "replies.sqlite"

    def table(self, data: pd.DataFrame, name: str, *, title: str, **options: Any):
        """Save a table and return it to be displayed; for the options see :func:`tables.save_table`."""
        name = f"{self.number}_{name}"
        if self.journal:  # for `make check`, which misses it where it is gone
            self.journal.row.setdefault("tables", []).append(name)
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
            estimate: of :func:`pwagents.llm.budget.estimate`.
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
        facts = {**self.made_from, **(made_from or {})}
        stamp = " · ".join([name, *(f"{fact}: {value}" for fact, value in facts.items())])
        save_figure(plot, name, data, output_dir=self.output_dir, stamp=stamp, **options)

    @property
    def wall_clock(self) -> "Run":
        """Saves under ``timings``: seconds differ from run to run, and stay out of the tables."""
        return replace(self, output_dir=self.output_dir / "timings")

    def timed(self, step: str) -> AbstractContextManager[None]:
        """Adds the wall-clock of the ``with`` block to the journal row."""
        return self.journal.timed(step)

    def finish(self, data_hash: str) -> None:
        """Write the journal row of a run that went to its end."""
        self.journal.finish(data_hash)


def start(notebook: str, kind: type[Kind], namespace: Mapping[str, Any]) -> tuple[Kind, Run]:
    """Load and show a notebook's settings, and begin its run.

    Args:
        notebook: its name, such as "01_data".
        kind: its class of settings.
        namespace: the notebook's ``globals()``, in which its parameters are.

    Raises:
        SettingsError, DataError: see :func:`pwagents.notebook.settings.load_settings`.
    """
    parameters = parameters_of(kind, namespace)
    settings = load_settings(notebook, kind, parameters)
    if not settings.portable:
        portable.switch_off()
    elif shortfall := portable.shortfall():
        print(shortfall)
    engine.use(settings.engine)
    journal = Journal.start(notebook, plain(settings), settings.output_dir)
    if settings.preset == "smoke":
        _display(tables.banner(SMOKE_BANNER))
    _display(settings_table(settings, changes(parameters)))
    made_from = {"preset": settings.preset, "source": settings.data.source}
    if hasattr(settings, "base"):  # notebooks that train
        made_from["backbone"] = settings.base.backbone
    elif hasattr(getattr(settings, "players", None), "profiler"):
        made_from["profiler"] = settings.players.profiler
    return settings, Run(notebook[:2], settings.output_dir, journal, made_from)


def settings_table(settings: Any, changed: DictConfig):
    """Lay out all settings as a table: group, name, value, meaning; those in ``changed`` are bold."""
    listed, bold = [], []
    for group, name, value, what in rows(settings):
        if OmegaConf.select(changed, f"{group}.{name}".lstrip("."), default=None) is not None:
            bold.append(len(listed))
        value = value.name if isinstance(value, Path) else str(plain(value))
        listed.append((group, name, "none" if value in ("", "None", "[]") else value, what.replace("`", "")))
    frame, note = (
        pd.DataFrame(listed, columns=["group", "setting", "value", "meaning"]),
        "Bold: changed here.",
    )
    table = tables.render_table(frame, "settings", title="Settings", note=note, bold_rows=bold)
    # A hundred rows: in a box of their own, so that the notebook's story begins on the first screen.
    return tables.Html(f'<div style="max-height: 32em; overflow-y: auto">{table.html}</div>')


def _display(shown: Any) -> None:
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython():
        display(shown)
