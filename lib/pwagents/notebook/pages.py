"""PAPERS.md, RESULTS.md and README's picture, made of the committed reference and of the papers' files.

    python -m pwagents.notebook.pages    # writes them; as `make papers` does

PAPERS.md has each part of each paper (``evaluation/papers/parts.yaml``) and what is printed of it.
RESULTS.md has the questions of ``site/headlines.yaml`` and what the reference says to them; each number of a
finding is read from a stored table when the page is made.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from pwagents.evaluation.metrics import attempts
from pwagents.evaluation.paper import COSTS, load_targets
from pwagents.evaluation.viewer import draw_episode
from pwagents.notebook.preflight import kind_of
from pwagents.notebook.reference import REFERENCE, SUMMARY, read_episodes, read_lines
from pwagents.notebook.settings import settings_values
from pwagents.notebook.summary import METHODS, TASKS
from pwagents.project import ROOT, read_yaml, write_aside
from pwagents.schema import Trajectory

# Columns that PAPERS.md leaves to the tables themselves.
_LEFT_OUT = ("data", "grader", *COSTS.values(), "to run it here", "over pipelines", "notebook", "needs")


class Numbers:
    """The numbers of a folder of results, as text for a page: two decimals, ".05" for 0.05.

    ``name`` is a table, "summary", or what a figure is drawn from ("figures/09_levels"). ``where`` has values
    of columns, which one row alone must have.
    """

    def __init__(self, results: Path):
        self.results = results

    def row(self, name: str, where: Mapping[str, Any]) -> pd.Series:
        """Return the one row.

        Raises:
            ValueError: there is none, or more than one.
        """
        path = self.results / (SUMMARY if name == "summary" else f"tables/{name}.csv")
        is_figure = name.startswith("figures/")
        table = pd.read_parquet(self.results / f"{name}.parquet") if is_figure else pd.read_csv(path)
        rows = table[(table[list(where)] == pd.Series(where)).all(axis=1)]
        if len(rows) != 1:
            raise ValueError(f"{name} has {len(rows)} rows with {dict(where)}; expected one")
        return rows.iloc[0]

    def plain(self, name: str, where: Mapping[str, Any], column: str) -> str:
        return _decimal(self.row(name, where)[column])

    def count(self, name: str, where: Mapping[str, Any], column: str = "n_tasks") -> str:
        return f"{self.row(name, where)[column]:,.0f}"

    def mean(self, name: str, where: Mapping[str, Any], column: str = "mean") -> str:
        """Tell a mean with its 95% interval: ".33 [.30, .36]"."""
        return "{} [{}, {}]".format(*map(_decimal, self.row(name, where)[[column, "low", "high"]]))

    def gain(self, name: str, where: Mapping[str, Any], column: str = "difference") -> str:
        """Tell a difference with its sign and its 95% interval: "+.02 [-.01, .05]"."""
        return f"+{self.mean(name, where, column)}".replace("+-", "-")

    def loss(self, name: str, where: Mapping[str, Any]) -> str:
        """Tell how far below something lies: the difference turned round, without a sign."""
        row = -self.row(name, where)[["difference", "high", "low"]].astype(float)
        return "{} [{}, {}]".format(*map(_decimal, row))

    def s(self, name: str, task: str) -> str:
        """Tell a line of the summary."""
        return self.mean("summary", {"name": name, "task": task}, "value")


def read_papers() -> dict[str, dict[str, Any]]:
    """Read all parts of the papers, by paper: ``title, read`` and ``parts``.

    A part has its entries in ``parts.yaml``. Where numbers of it are printed, it also has ``numbers`` and
    ``rows``, how many; ``commands``, by which its rows are made here; ``tolerance``; ``source``, its name in
    tables. ``values`` has each setting of the paper beside ours at the presets paper and laptop.
    """
    lists = dict.fromkeys(("files", "code", "needs"), ()) | {"commands": {}}
    texts = dict.fromkeys(("here", "command", "paper", "differs", "numbers"), "")
    tables, papers = dict([*load_targets().groupby(["paper", "table"])]), {}
    for paper, known in read_yaml("pwagents.evaluation", "papers/parts.yaml").items():
        parts = []
        for part in known["parts"]:
            printed, table = {}, part.get("table", part["part"])
            if (cells := tables.get((paper, table))) is not None:
                rows = cells.drop_duplicates("row")
                commands = rows[rows["command"] != ""].groupby("command", sort=False)["row"].agg(list)
                printed = {"rows": len(rows), "numbers": len(cells), "commands": dict(commands)}
                printed |= {"tolerance": cells["tolerance"].iloc[0], "source": f"{paper}, {table}"}
            # Our value of a setting is what a notebook's group says: "04_puma dpo.temperature".
            values = []
            for *value, place in part.get("values", ()):
                notebook, key = place.split()
                for preset in ("paper", "laptop"):
                    group = settings_values(notebook, kind_of(notebook), {"preset": preset})
                    value.append(OmegaConf.select(OmegaConf.create(group), key))
                values.append(value)
            parts.append({**texts, **lists, **part, **printed, "values": values})
        papers[paper] = known | {"parts": parts}
    return papers


def with_printed(part: Mapping[str, Any], results: Path) -> list[list[str]]:
    """Return the paper's rows of a part as printed, and below them ours, as cells below their headings.

    They are of the first of the part's tables that is there and has both; empty where there is none.
    """
    for name in part["files"]:
        path = results / "tables" / f"{name}.csv"
        table = pd.read_csv(path) if path.exists() else pd.DataFrame()
        if "source" in table and part.get("source") in set(table["source"]):
            table["source"] = table["source"].replace(part["source"], "paper")
            table = table[table["source"].str.match("paper$|here")]
            table = table.drop(columns=[column for column in _LEFT_OUT if column in table])
            texts = table.map(
                lambda value: f"{round(value, 3):g}" if isinstance(value, float) else str(value)
            )
            return [[*table.columns], *texts.replace("nan", "").to_numpy().tolist()]
    return []


def draw_best_episode(results: Path) -> str:
    """Draw an episode of Orion's main test that asks, searches and finds, as SVG.

    Of all such it is the one whose query has most words of the user's history.

    Raises:
        ValueError: there is none.
    """
    firsts: dict[tuple[str, str], dict[str, Any]] = {}  # variations are played later than the main test
    for record in read_episodes(results / "runs" / "orion.parquet", ("GRPO", "PPO", "SFT")):
        firsts.setdefault((record["method"], record["task_id"]), record)
    pictures = []
    for (method, _), record in firsts.items():
        trajectory = Trajectory.model_validate(record["trajectory"])
        calls = [step.action.name for step in trajectory.steps]
        if calls[:2] == ["respond", "search_product_by_query"] and attempts(trajectory) == [1.0]:
            # The answer must be of use: the query repeats its last word ("My style of choice: retro.").
            value = trajectory.steps[0].observation.text.split()[-1].rstrip(".")
            query = trajectory.steps[1].action.arguments["query"]
            title = f"A stored episode of notebook 06 ({method}), all made up"
            if value in query.split() and value not in record["instruction"]:
                pictures.append(draw_episode(record["instruction"], trajectory, title))
    if not pictures:
        raise ValueError(f"no episode in {results} asks, searches and finds")
    return max(pictures, key=lambda svg: (svg.count("<tspan"), -len(svg)))  # bold words, and brief


def make_pages(results: Path = REFERENCE) -> dict[str, str]:
    """Make the texts of both pages and of the picture, by path."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def link(name: str, kinds: str = "table figure") -> str:
        """Link what is stored of a name, its table and figure; the name alone where nothing is."""
        places = {"table": f"tables/{name}.csv", "figure": f"figures/{name}.png"}
        paths = [
            (kind, results / folder / places[kind]) for kind in kinds.split() for folder in ("", "timings")
        ]
        links = [f"[`{name}`]({path.relative_to(ROOT)}) ({kind})" for kind, path in paths if path.exists()]
        return ", ".join(links) or f"`{name}`"

    loader = PackageLoader("pwagents.notebook", "site")
    environment = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["link"], numbers = link, Numbers(results)
    told = {name: getattr(numbers, name) for name in ("plain", "count", "mean", "gain", "loss", "s")}
    headlines = [
        each | {key: environment.from_string(each[key]).render(**told) for key in ("who", "finding")}
        for each in read_yaml("pwagents.notebook", "site/headlines.yaml")
    ]
    # The summary's lines, a row a method.
    summary: dict[str, dict[str, str]] = {}
    for line in pd.read_csv(results / SUMMARY).itertuples():
        own = summary.setdefault(METHODS[line.name].label, {"notebook": f"{line.notebook:02}"})
        own[line.task] = numbers.s(line.name, line.task)
    rows = {row["notebook"][:2]: row for row in read_lines(results / "timings" / "journal.jsonl")}
    values = {"results": results.relative_to(ROOT), "rows": rows, "summary": summary, "tasks": TASKS}
    values |= {
        "headlines": headlines,
        "papers": read_papers(),
        "printed": partial(with_printed, results=results),
    }
    texts = {name: environment.get_template(name).render(**values) for name in ("PAPERS.md", "RESULTS.md")}
    return texts | {f"{values['results']}/episode.svg": draw_best_episode(results)}


def _decimal(value: float) -> str:
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")


def main() -> None:
    for name, text in make_pages().items():
        write_aside(ROOT / name, text)


if __name__ == "__main__":
    main()
