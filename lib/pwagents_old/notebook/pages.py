"""PAPERS.md, RESULTS.md and README's picture, made of the committed reference and of the papers' files.

    python -m pwagents_old.notebook.pages    # writes them; as `make papers` does

PAPERS.md has each part of each paper (``results/papers/parts.yaml``) and what is printed of it.
RESULTS.md has the questions of ``site/headlines.yaml`` and what the reference says to them; each number of a
finding is read from a stored table when the page is made.
"""

import re
from collections.abc import Mapping
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.files import write_aside
from pwagents.shop.score import attempts
from pwagents.results.papers import COSTS, load_targets
from pwagents.results.viewer import draw_episode
from pwagents.schema import Trajectory
from pwagents.settings import settings_values
from pwagents_old.notebook.preflight import kind_of
from pwagents_old.notebook.reference import REFERENCE, SUMMARY, read_episodes, read_lines
from pwagents_old.notebook.summary import METHODS, TASKS
from pwagents.settings import ROOT
from pwagents.words import read_yaml

# Columns that PAPERS.md leaves to the tables themselves.
_LEFT_OUT = ("data", "grader", *COSTS.values(), "to run it here", "over pipelines", "notebook", "needs")
# What a part of a paper need not have.
_EMPTY = dict.fromkeys(("here", "files", "code", "needs", "command", "paper", "differs", "values"), "")


def read_papers() -> dict[str, dict[str, Any]]:
    """Read all parts of the papers, by paper: ``title, read`` and ``parts``.

    A part has its entries in ``parts.yaml``, and ``source``, its name in tables. ``numbers`` and ``rows``
    count what is printed of it; ``commands`` make its rows here, within ``tolerance``.
    """
    targets, papers = load_targets(), {}
    tables = dict([*targets.groupby(targets["paper"] + ", " + targets["table"])])
    for paper, known in read_yaml("pwagents.results", "papers/parts.yaml").items():
        papers[paper] = known | {"parts": [_EMPTY | part for part in known["parts"]]}
        for part in papers[paper]["parts"]:
            source = f"{paper}, {part.get('table', part['part'])}"
            cells = tables.get(source, targets.head(0))
            rows = cells.drop_duplicates("row")
            commands = rows[rows["command"] != ""].groupby("command", sort=False)["row"].agg(list)
            part |= {"source": source, "numbers": len(cells), "rows": len(rows), "commands": dict(commands)}
            part["tolerance"] = next(iter(cells["tolerance"]), None)
    return papers


def read_setting(place: str | float, preset: str) -> Any:
    """Read a preset's value of a notebook's setting ("04_puma dpo.temperature"); KeyError if it is gone.

    A number is a constant of the library, which no preset changes.
    """
    if not isinstance(place, str):
        return place
    notebook, key = place.split()
    return reduce(getitem, key.split("."), settings_values(notebook, {"preset": preset}, kind_of(notebook)))


def with_printed(part: Mapping[str, Any], results: Path) -> list[list]:
    """Return the paper's rows of a part as printed, and below them ours, as cells below their headings.

    They are of the first of the part's tables that is there and has both; empty where there is none.
    """
    for path in (results / "tables" / f"{name}.csv" for name in part["files"]):
        table = pd.read_csv(path) if path.exists() else pd.DataFrame()
        if "source" in table and part["source"] in set(table["source"]):
            table["source"] = table["source"].replace(part["source"], "paper")
            table = table[[column for column in table if column not in _LEFT_OUT]]
            table = table[table["source"].str.match("paper$|here")]
            texts = table.map(lambda value: f"{round(value, 3):g}" if isinstance(value, float) else value)
            return [[*table.columns], *texts.replace("nan", "").to_numpy().tolist()]
    return []


def draw_best_episode(results: Path) -> str:
    """Draw an episode of Orion's main test that asks, searches and finds, as SVG.

    Of all such it is one with the fewest questions; of these one whose query repeats an answer, then the one
    with most words of the user's history.

    Raises:
        ValueError: there is none.
    """
    stored = pd.DataFrame(read_episodes(results / "runs" / "orion.parquet", ("GRPO", "PPO", "SFT")))
    pictures = []
    # Variations are played later than the main test.
    for record in stored.drop_duplicates(["method", "task_id"]).query("type == 'search'").itertuples():
        trajectory = Trajectory.model_validate(record.trajectory)
        calls = [step.action.name for step in trajectory.steps]
        n = calls.count("respond")
        searches = calls[: n + 1] == [*["respond"] * n, "search_product_by_query"]
        if n and searches and attempts(trajectory) == [1.0]:
            # An answer is of use where the query repeats its last word ("My style of choice: retro.").
            values = {step.observation.text.rstrip(".").split(" ")[-1] for step in trajectory.steps[:n]}
            used = values & {*trajectory.steps[n].action.arguments["query"].split()}
            is_of_use = any(value not in record.instruction for value in used)
            title = f"A stored episode of notebook 06 ({record.method}), all made up"
            svg = draw_episode(record.instruction, trajectory, title)
            bold = {*re.findall("<tspan.*?</tspan>", svg)}
            pictures.append((n, not is_of_use, -len(bold), len(svg), record.task_id, svg))
    if not pictures:
        raise ValueError(f"no episode in {results} asks, searches and finds")
    return min(pictures)[-1]


def make_environment(results: Path, **options: Any):
    """Make Jinja's environment of the templates in ``site``; what they call reads ``results``.

    ``options`` are Jinja's own.
    """
    from jinja2 import Environment, PackageLoader

    def row(name: str, where: Mapping[str, Any]) -> pd.Series:
        """Return the one row of a table, of "summary", or of a figure's numbers ("figures/09_levels")."""
        path = results / (SUMMARY if name == "summary" else f"tables/{name}.csv")
        is_figure = name.startswith("figures/")
        table = pd.read_parquet(results / f"{name}.parquet") if is_figure else pd.read_csv(path)
        rows = table[(table[list(where)] == pd.Series(where)).all(axis=1)]
        if len(rows) != 1:
            raise ValueError(f"{name} has {len(rows)} rows with {dict(where)}; expected one")
        return rows.iloc[0]

    def link(name: str) -> str:
        """Link what is stored of a name, its table and figure; the name alone where nothing is."""
        kinds = (f"**/tables/{name}.csv", f"**/figures/{name}.png")
        paths = [path for kind in kinds for path in sorted(results.glob(kind))]
        links = [f"[`{name}`]({path.relative_to(ROOT)}) ({path.parent.name[:-1]})" for path in paths]
        return ", ".join(links) or f"`{name}`"

    loader = PackageLoader("pwagents_old.notebook", "site")
    environment = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **options)
    environment.globals |= {"row": row, "printed": partial(with_printed, results=results)}
    environment.globals |= {"papers": read_papers(), "setting": read_setting}
    environment.filters["decimal"] = lambda value: re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
    environment.filters["link"] = link
    # A text that calls the macros of numbers.md.
    numbers = environment.get_template("numbers.md")
    environment.filters["fill"] = lambda text: environment.from_string(text).render(vars(numbers.module))
    return environment


def make_pages(results: Path = REFERENCE) -> dict[str, str]:
    """Make the texts of both pages and of the picture, by path."""
    from jinja2 import StrictUndefined

    environment = make_environment(results, undefined=StrictUndefined)
    values = {
        "results": results.relative_to(ROOT),
        "rows": {row["notebook"][:2]: row for row in read_lines(results / "timings" / "journal.jsonl")},
        "summary": pd.read_csv(results / SUMMARY).groupby("name", sort=False),
        "methods": METHODS,
        "tasks": TASKS,
        "headlines": read_yaml("pwagents_old.notebook", "site/headlines.yaml"),
    }
    texts = {name: environment.get_template(name).render(values) for name in ("PAPERS.md", "RESULTS.md")}
    return texts | {f"{values['results']}/episode.svg": draw_best_episode(results)}


if __name__ == "__main__":
    for path, text in make_pages().items():
        write_aside(ROOT / path, text)
