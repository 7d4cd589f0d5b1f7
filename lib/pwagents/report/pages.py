"""RESULTS.md, PAPERS.md and README's picture, made from the committed reference and the papers' files.

    python -m pwagents.report.pages    # writes them; as `make papers` does

RESULTS.md has the questions of ``headlines.yaml`` and what the reference says to them; each number of a
finding is read from a stored table when the page is made. PAPERS.md has each part of each paper
(``results/papers/parts.yaml``) and links its tables.
"""

import re
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.files import write_aside
from pwagents.report.reference import REFERENCE, read_episodes, read_lines
from pwagents.results.papers import load_targets
from pwagents.results.viewer import draw_episode
from pwagents.schema import Trajectory
from pwagents.settings import ROOT, settings_values
from pwagents.shop.score import attempts
from pwagents.words import read_yaml

# What a part of a paper need not have.
_EMPTY = dict.fromkeys(("here", "files", "code", "needs", "command", "own", "differs", "values"), "")


def read_papers() -> dict[str, dict[str, Any]]:
    """Return all parts of the papers, by paper: ``title, read`` and ``parts``.

    A part has its entries in ``parts.yaml``. ``numbers`` counts what is printed of it. ``own`` are the
    commands that make it as published: those it names, else those of its printed rows, else the notebook's
    at preset paper.
    """
    targets, papers = load_targets(), {}
    for paper, known in read_yaml("pwagents.results", "papers/parts.yaml").items():
        papers[paper] = known | {"parts": [_EMPTY | part for part in known["parts"]]}
        for part in papers[paper]["parts"]:
            is_printed = targets["table"] == part.get("table", part["part"])
            cells = targets[is_printed & (targets["paper"] == paper)]
            part["numbers"] = len(cells)
            if not part["own"]:
                rows = [command for command in cells["command"].unique() if command]
                at_paper = [f"make reproduce PRESET=paper ONLY={part['here'][:2]}"]
                part["own"] = rows or (at_paper if part["here"] and part["needs"] else [])
    return papers


def read_setting(place: str | float, preset: str) -> Any:
    """Return a preset's value of a notebook's setting ("04_puma dpo.temperature"); KeyError if it is gone.

    A number is a constant of the library, which no preset changes.
    """
    if not isinstance(place, str):
        return place
    notebook, key = place.split()
    return reduce(getitem, key.split("."), settings_values(notebook, {"preset": preset}))


def draw_best_episode(results: Path) -> str:
    """Draw an episode of Orion's main test that asks, searches and finds, as SVG.

    Of all such it is one with the fewest questions, of these the one with most words of the user's history.

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
            title = f"A stored episode of notebook 06 ({record.method}), all made up"
            svg = draw_episode(record.instruction, trajectory, title)
            of_history = {*re.findall("<tspan.*?</tspan>", svg)}
            pictures.append((n, -len(of_history), record.task_id, svg))
    if not pictures:
        raise ValueError(f"no episode in {results} asks, searches and finds")
    return min(pictures)[-1]


def make_environment(results: Path, **options: Any):
    """Return Jinja's environment of the templates; what they call reads ``results``.

    ``options`` are Jinja's own.
    """
    from jinja2 import Environment, PackageLoader

    def row(name: str, where: Mapping[str, Any]) -> pd.Series:
        """Return the one row of a table, or of a figure's numbers ("figures/09_levels")."""
        if name.startswith("figures/"):
            table = pd.read_parquet(results / f"{name}.parquet")
        else:
            table = pd.read_csv(results / "tables" / f"{name}.csv")
        rows = table[(table[list(where)] == pd.Series(where)).all(axis=1)]
        if len(rows) != 1:
            raise ValueError(f"{name} has {len(rows)} rows with {dict(where)}; expected one")
        return rows.iloc[0]

    def link(name: str) -> str:
        """Return links to what is stored of a name, its table and figure; the name alone if nothing is."""
        kinds = (f"**/tables/{name}.csv", f"**/figures/{name}.png")
        paths = [path for kind in kinds for path in sorted(results.glob(kind))]
        links = [f"[`{name}`]({path.relative_to(ROOT)}) ({path.parent.name[:-1]})" for path in paths]
        return ", ".join(links) or f"`{name}`"

    loader = PackageLoader("pwagents.report", "templates")
    environment = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **options)
    environment.globals |= {"row": row, "papers": read_papers(), "setting": read_setting}
    environment.filters["decimal"] = lambda value: re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
    environment.filters["link"] = link
    # A text that calls the macros of numbers.md.
    numbers = environment.get_template("numbers.md")
    environment.filters["fill"] = lambda text: environment.from_string(text).render(vars(numbers.module))
    return environment


def make_pages(results: Path = REFERENCE) -> dict[str, str]:
    """Return the texts of both pages and of the picture, by path."""
    from jinja2 import StrictUndefined

    environment = make_environment(results, undefined=StrictUndefined)
    values = {
        "results": results.relative_to(ROOT),
        "rows": {row["notebook"][:2]: row for row in read_lines(results / "timings" / "journal.jsonl")},
        "summary": pd.read_csv(results / "tables" / "10_summary.csv").groupby("name", sort=False),
        "labels": pd.read_parquet(results / "figures" / "10_summary.parquet").attrs["options"]["labels"],
        "headlines": read_yaml("pwagents.report", "headlines.yaml"),
    }
    texts = {name: environment.get_template(name).render(values) for name in ("PAPERS.md", "RESULTS.md")}
    return texts | {f"{values['results']}/episode.svg": draw_best_episode(results)}


if __name__ == "__main__":
    for path, text in make_pages().items():
        write_aside(ROOT / path, text)
