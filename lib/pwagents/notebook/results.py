"""What a preset left in its folder, as its report shows it: tables, figures, and the runs that made them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pwagents.notebook.execute import without_passwords

_TITLE = re.compile(r'<td [^>]*class="gt_heading gt_title[^"]*"[^>]*>(.*?)</td>', re.DOTALL)
_HEADING = re.compile(r'<tr class="gt_heading">.*?</tr>', re.DOTALL)
_OURS = re.compile(r"<tr>(\s*<td [^>]*>here[^<]*</td>)")
_PAPERS = re.compile(r"<tr>(\s*<td [^>]*>(?:PersonalWAB|Orion|Persona2Web), )")
_OF_PAPER = re.compile(r"(PersonalWAB|Orion|Persona2Web)\b.*?Table (\d+)")


@dataclass(frozen=True)
class Run:
    """A notebook's run, from its journal row."""

    notebook: str
    row: Mapping[str, Any]

    @property
    def command(self) -> str:
        settings = self.row["settings"]
        return (
            f"python -m pwagents.notebook.execute {self.notebook} --preset {self.row['preset']} "
            f"--output-dir {settings['output_dir']}"
        )

    @property
    def settings(self) -> list[tuple[str, str]]:
        """All settings, "group.name" and value."""
        return list(_flat(self.row["settings"]))

    @property
    def user(self) -> str:
        """Who plays the user; empty where nobody does."""
        return self.row["settings"].get("players", {}).get("user", "")


@dataclass(frozen=True)
class Table:
    """A saved table; ``html`` is great_tables' without its style and title, every cell escaped by it."""

    name: str
    title: Markup
    html: Markup
    files: tuple[Path, ...]

    @property
    def paper(self) -> tuple[str, int] | None:
        """Which table of which paper it stands beside, where its title says so."""
        found = _OF_PAPER.search(self.title)
        return (found[1], int(found[2])) if found else None


@dataclass(frozen=True)
class Figure:
    name: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Notebook:
    """What one notebook left."""

    name: str
    executed: Path | None
    run: Run | None
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]

    @property
    def noise_floor(self) -> str:
        """The table of what differs between equal runs but for their seed, where the notebook has one."""
        return next((table.name for table in self.tables if table.name.endswith("_noise_floor")), "")


def read_notebooks(output_dir: Path) -> list[Notebook]:
    """All notebooks that left something in ``output_dir``, by number."""
    executed = {path.stem: path for path in sorted((output_dir / "notebooks").glob("*.ipynb"))}
    runs = _read_runs(output_dir)
    tables = [table for folder in ("", "timings") for table in _read_tables(output_dir / folder)]
    figures = [figure for folder in ("", "timings") for figure in _read_figures(output_dir / folder)]
    names = {name[:2]: name for name in sorted({*executed, *runs})}
    numbers = {part.name[:2] for part in (*tables, *figures)} | names.keys()
    return [
        Notebook(
            name=names.get(number, number),
            executed=executed.get(names.get(number)),
            run=runs.get(names.get(number)),
            tables=tuple(table for table in tables if table.name.startswith(f"{number}_")),
            figures=tuple(figure for figure in figures if figure.name.startswith(f"{number}_")),
        )
        for number in sorted(numbers)
    ]


def read_lines(path: Path) -> Iterator[dict]:
    """The records of a JSONL file, without passwords in URLs; a line that is being written is left out."""
    if path.exists():
        with open(path, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(without_passwords(line.decode()))


def _read_runs(output_dir: Path) -> dict[str, Run]:
    """Each notebook's last run that went to its end, or else its last."""
    rows = read_lines(output_dir / "timings" / "journal.jsonl")
    in_order = sorted(rows, key=lambda row: row["status"] == "finished")
    return {row["notebook"]: Run(row["notebook"], row) for row in in_order}


def _read_tables(folder: Path) -> list[Table]:
    return [_read_table(path) for path in sorted((folder / "tables").glob("*.html"))]


def _read_table(path: Path) -> Table:
    page = path.read_text("utf-8")
    html = page[page.index("<table") : page.rindex("</table>") + len("</table>")]
    title = _TITLE.search(html)
    html = _OURS.sub(r'<tr class="ours">\1', _PAPERS.sub(r'<tr class="papers">\1', _HEADING.sub("", html)))
    files = tuple(file for suffix in (".csv", ".tex") if (file := path.with_suffix(suffix)).exists())
    # Escaped by great_tables when it was saved.
    return Table(path.stem, Markup(title[1] if title else path.stem), Markup(html), files)


def _read_figures(folder: Path) -> list[Figure]:
    return [
        Figure(
            path.stem,
            tuple(f for suffix in (".png", ".svg", ".csv") if (f := path.with_suffix(suffix)).exists()),
        )
        for path in sorted((folder / "figures").glob("*.png"))
    ]


def _flat(settings: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{group}{name}.")
        else:
            yield group + name, value if isinstance(value, str) else json.dumps(value)
