"""A preset's results as a static site that opens by a double click: no server, no network.

    python -m pwagents.report.site outputs/laptop    # writes outputs/laptop/report; as `make report` does

Where laptop has not run, the site is that of the committed reference (:mod:`pwagents.report.reference`).
Everything is read from what the notebooks left; what is missing is left out. Texts of others (products,
reviews, replies of models) are escaped: by Jinja, by great_tables where the tables were saved, and in the
browser of episodes by writing text nodes alone. Other pages may run no script at all.
"""

import re
import shutil
import sys
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from pwagents.notebook import SMOKE
from pwagents.report.episodes import write_scripts
from pwagents.report.pages import make_environment
from pwagents.report.reference import REFERENCE, find_results, read_lines
from pwagents.urls import without_passwords
from pwagents.words import read_yaml

_TITLE = re.compile(r'<td [^>]*class="gt_heading gt_title[^"]*"[^>]*>(.*?)</td>', re.DOTALL)
_SHOWN = ["text/html", "image/png", "text/markdown", "text/plain"]  # of outputs; no scripts, no widgets
_IMAGE = re.compile(r'src="data:image/png;base64,([^"]+)"')


@dataclass(frozen=True)
class Part:
    """A stored table or figure; ``html`` is a table's, without its style: great_tables escaped it."""

    name: str
    title: str
    files: tuple[Path, ...]
    html: str = ""

    @property
    def id(self) -> str:
        """Return the name of its place in a page; a table and a figure may have one name."""
        return self.name if self.html else f"figure-{self.name}"


@dataclass(frozen=True)
class Notebook:
    """What one notebook left, figures first; ``row`` is of the journal: its last run, finished if one is."""

    name: str
    executed: Path | None
    row: Mapping[str, Any]
    parts: tuple[Part, ...]


def read_notebooks(output_dir: Path) -> list[Notebook]:
    """Read what all notebooks left in ``output_dir``, by number."""
    executed = {path.stem: path for path in (output_dir / "notebooks").glob("*.ipynb")}
    journal = sorted(
        read_lines(output_dir / "timings" / "journal.jsonl"), key=lambda row: row["status"] == "finished"
    )
    rows = {row["notebook"]: row for row in journal if row["notebook"][:2].isdigit()}
    folders = (output_dir, output_dir / "timings")
    parts = [_read_figure(path) for each in folders for path in sorted(each.glob("figures/*.png"))]
    parts += [_read_table(path) for each in folders for path in sorted(each.glob("tables/*.html"))]
    # Tables and figures have their notebook's number alone.
    names = {name[:2]: name for name in sorted({*executed, *rows})}
    notebooks = []
    for number in sorted({part.name[:2] for part in parts} | names.keys()):
        name = names.get(number, number)
        own = tuple(part for part in parts if part.name.startswith(f"{number}_"))
        notebooks.append(Notebook(name, executed.get(name), rows.get(name, {}), own))
    return notebooks


def build(output_dir: Path) -> Path:
    """Write the site of ``output_dir`` into its folder ``report``, over an older one; return the first page.

    Raises:
        ValueError: there is nothing to be reported.
    """
    site = output_dir / "report"
    kinds = ("notebooks/*.ipynb", "tables/*.html", "figures/*.png", "timings/journal.jsonl")
    output_dir = find_results(output_dir, *kinds)
    # What an older run left in the reference does not say what made it.
    notebooks = [each for each in read_notebooks(output_dir) if each.row or output_dir != REFERENCE]
    if not notebooks:
        raise ValueError(f"{output_dir} holds no results; expected what `make reproduce` leaves there")
    # The site is made anew, with copies of all files that it links: it can be moved as a whole.
    shutil.rmtree(site, ignore_errors=True)
    (site / "files").mkdir(parents=True)
    places = {part.id: (part, notebook) for notebook in notebooks for part in notebook.parts}
    for file in (file for part, _ in places.values() for file in part.files):
        shutil.copyfile(file, site / "files" / file.name)
    n_episodes = write_scripts(output_dir, site / "data")

    def left(*names: str) -> list[tuple[Part, Notebook]]:
        """Return the figures and tables of these names that are there, and the notebooks that left them."""
        return [places[id] for name in names for id in (f"figure-{name}", name) if id in places]

    pages = {"index.html": "Results", "papers.html": "Papers"}
    pages |= {"episodes.html": "Episodes"} if n_episodes else {}
    headlines = []
    for each in read_yaml("pwagents.report", "headlines.yaml"):
        if shown := [places[id] for id in (f"figure-{each['figure']}", each["table"]) if id in places]:
            headlines.append((each["question"], shown))
    environment = make_environment(output_dir, autoescape=True)
    environment.globals |= {
        "preset": next((n.row["preset"] for n in notebooks if n.row), output_dir.name),
        "pages": pages | {f"{notebook.name}.html": notebook.name[:2] for notebook in notebooks},
        "smoke_banner": SMOKE, "n_episodes": n_episodes, "headlines": headlines, "notebooks": notebooks,
        "left": left, "is_reference": output_dir == REFERENCE, "folder": output_dir.name,
    }  # fmt: skip

    def write(page: str, template: str, **values: Any) -> None:
        text = environment.get_template(template).render(here=page, **values)
        (site / page).write_text(text, "utf-8", "replace")

    for page in pages:
        write(page, page)
    for notebook in notebooks:
        body, highlighting = _convert(notebook, site / "files") if notebook.executed else ("", "")
        write(
            f"{notebook.name}.html", "notebook.html", notebook=notebook, body=body, highlighting=highlighting
        )
    return site / "index.html"


def _read_figure(path: Path) -> Part:
    """Read a figure, with the title that it is drawn with."""
    numbers, title = path.with_suffix(".parquet"), ""
    if numbers.exists():
        title = pd.read_parquet(numbers).attrs.get("options", {}).get("title", "")
    return Part(path.stem, title or path.stem, _files(path, ".png", ".svg", ".csv"))


def _read_table(path: Path) -> Part:
    page = path.read_text("utf-8")
    html = page[page.index("<table") : page.rindex("</table>") + len("</table>")]
    title = _TITLE.search(html)
    title = Markup(title[1] if title else path.stem)
    return Part(path.stem, title, _files(path, ".html", ".csv", ".tex"), Markup(html))


def _files(path: Path, *suffixes: str) -> tuple[Path, ...]:
    return tuple(file for suffix in suffixes if (file := path.with_suffix(suffix)).exists())


def _convert(notebook: Notebook, folder: Path) -> tuple[Markup, Markup]:
    """Convert an executed notebook to HTML, its images to files beside it; return also its code's style."""
    import nbformat
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter
    from traitlets.config import Config

    # The template without a page around it: that one asks the network for scripts.
    config = Config({"NbConvertBase": {"display_data_priority": _SHOWN}})
    executed = nbformat.reads(without_passwords(notebook.executed.read_text("utf-8")), as_version=4)
    executed.metadata.pop("widgets", None)
    body, _ = HTMLExporter(config=config, template_name="basic").from_notebook_node(executed)
    # Images become files beside the page, which loads them when they are looked at.
    names = []

    def write_image(image: re.Match) -> str:
        names.append(f"{notebook.name}_{len(names) + 1}.png")
        (folder / names[-1]).write_bytes(b64decode(image[1]))
        return f'loading="lazy" src="files/{names[-1]}"'

    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark")
    )
    style = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return Markup(_IMAGE.sub(write_image, body)), Markup(style)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pwagents.report.site OUTPUTS/PRESET")
    try:
        print(f"Open {build(Path(sys.argv[1]))} in a browser")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
