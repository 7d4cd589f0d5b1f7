"""A preset's results as a static site that opens by a double click: no server, no network.

    python -m pwagents_old.notebook.report outputs/laptop    # writes outputs/laptop/report; as `make report` does

Where laptop has not run, the site is that of the committed reference (:mod:`pwagents_old.notebook.reference`).
Everything is read from what the notebooks left; what is missing is left out. Texts of others (products,
reviews, replies of models) are escaped: by Jinja, by great_tables where the tables were saved, and in the
browser of episodes by writing text nodes alone. Other pages may run no script at all.
"""

import ast
import json
import re
import shutil
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from pwagents import engine
from pwagents.notebook import SMOKE
from pwagents_old.notebook.episodes import write_episodes
from pwagents_old.notebook.execute import without_passwords
from pwagents_old.notebook.pages import make_environment
from pwagents_old.notebook.reference import REFERENCE, find_results, read_lines
from pwagents.words import read_yaml

_TITLE = re.compile(r'<td [^>]*class="gt_heading gt_title[^"]*"[^>]*>(.*?)</td>', re.DOTALL)
_HEADING = re.compile(r'<tr class="gt_heading">.*?</tr>', re.DOTALL)
_OURS = re.compile(r"<tr>(\s*<td [^>]*>here[^<]*</td>)")
_PAPERS = re.compile(r"<tr>(\s*<td [^>]*>(?:PersonalWAB|Orion|Persona2Web), )")
_SENTENCE = re.compile(r"(?<=.{40})[.!](?=\s|$)")  # a question, or "Figure 5.", alone says too little
_SHOWN = ["text/html", "image/png", "text/markdown", "text/plain"]  # of outputs; no scripts, no widgets
_IMAGE = re.compile(r'src="data:image/png;base64,([^"]+)"')


@dataclass(frozen=True)
class Part:
    """A saved table or figure, with the heading above its cell and the text's first sentence.

    ``html`` is a table's, without its style and title, empty for a figure; great_tables escaped it.
    """

    name: str
    files: tuple[Path, ...]
    title: str = ""
    html: str = ""
    section: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Notebook:
    """What one notebook left, in its order.

    ``row`` is of the journal: its last run that came to its end, or else its last.
    """

    name: str
    executed: Path | None
    row: Mapping[str, Any]
    parts: tuple[Part, ...]

    @property
    def settings(self) -> dict[str, str]:
        """All settings, "group.name" and value."""
        (values,) = pd.json_normalize(self.row["settings"]).to_dict("records")
        return {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()
        }


def read_notebooks(output_dir: Path) -> list[Notebook]:
    """Read what all notebooks left in ``output_dir``, by number."""
    executed = {path.stem: path for path in sorted((output_dir / "notebooks").glob("*.ipynb"))}
    journal = [*read_lines(output_dir / "timings" / "journal.jsonl")]
    journal.sort(key=lambda row: row["status"] == "finished")
    # The last one counts, and those that came to their end stand last.
    rows = {row["notebook"]: row for row in journal if row["notebook"][:2].isdigit()}
    folders = (output_dir, output_dir / "timings")
    tables = [_read_table(path) for each in folders for path in sorted(each.glob("tables/*.html"))]
    figures = [
        Part(path.stem, _files(path, ".png", ".svg", ".csv"))
        for each in folders
        for path in sorted(each.glob("figures/*.png"))
    ]
    # Tables and figures tell their notebook's number alone.
    names = {name[:2]: name for name in sorted({*executed, *rows})}
    notebooks = []
    for number in sorted({part.name[:2] for part in (*tables, *figures)} | names.keys()):
        name = names.get(number, number)
        cells = [*(_saved(executed[name]) if name in executed else ()), (".*", "", "")]
        own = []
        for part in (part for part in (*figures, *tables) if part.name.startswith(f"{number}_")):
            # The cell that names it; else one that makes up such a name; else the end.
            places = [i for i, (saved, *_) in enumerate(cells) if re.fullmatch(saved, part.name[3:])]
            place = max(places, key=lambda i: (len(cells[i][0]), -i))
            own.append((place, replace(part, section=cells[place][1], caption=cells[place][2])))
        parts = tuple(part for _, part in sorted(own, key=lambda each: each[0]))
        notebooks.append(Notebook(name, executed.get(name), rows.get(name, {}), parts))
    return notebooks


def _saved(executed: Path) -> Iterator[tuple[str, str, str]]:
    """List what a notebook's cells save: a pattern of its name, the heading above, a sentence on it."""
    section = caption = ""
    for cell in json.loads(executed.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            headings = [line.strip("# ") for line in source.splitlines() if line.startswith("#")]
            section = headings[-1] if headings else section
            # Of the first paragraph that is neither a heading nor a table.
            texts = [text for text in source.split("\n\n") if text.strip() and text[0] not in "#|"]
            text = " ".join(texts[0].split()) if texts else ""
            end = _SENTENCE.search(text)
            caption = re.sub(r"[*`]", "", text[: end.end()] if end else text)
            continue
        with suppress(SyntaxError):  # a reader's own magics
            calls = [
                call
                for call in ast.walk(ast.parse(source))
                if isinstance(call, ast.Call) and len(call.args) > 1
            ]
            for call in sorted(calls, key=lambda call: call.lineno):
                name = call.args[1]
                if getattr(call.func, "attr", "") in ("table", "figure", "show"):
                    pieces = name.values if isinstance(name, ast.JoinedStr) else [name]
                    texts = (
                        re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in pieces
                    )
                    yield "".join(texts), section, caption


def build(output_dir: Path) -> Path:
    """Write the site of ``output_dir`` into its folder ``report``, over an older one; return the first page.

    Raises:
        ValueError: there is nothing to be reported.
    """
    site = output_dir / "report"
    kinds = ("notebooks/*.ipynb", "tables/*.html", "figures/*.png", "timings/journal.jsonl")
    output_dir = find_results(output_dir, *kinds)
    # What an older run left in the reference says nothing of what made it.
    notebooks = [each for each in read_notebooks(output_dir) if each.row or output_dir != REFERENCE]
    if not notebooks:
        raise ValueError(f"{output_dir} holds no results; expected what `make reproduce` leaves there")
    # The site is made anew, with copies of all files that it links: it can be moved as a whole.
    shutil.rmtree(site, ignore_errors=True)
    for folder in ("files", "notebooks"):
        (site / folder).mkdir(parents=True)
    parts = {
        (part.name, bool(part.html)): (part, notebook) for notebook in notebooks for part in notebook.parts
    }
    for part, _ in parts.values():
        for file in part.files:
            shutil.copyfile(file, site / "files" / file.name)
    n_episodes = write_episodes(output_dir, site / "data")

    def left(names: Sequence[str]) -> list[tuple[Part, Notebook]]:
        """Return the figures, and then the tables, of these names that are there."""
        return [
            parts[name, is_table] for is_table in (False, True) for name in names if (name, is_table) in parts
        ]

    pages = {"index.html": "Results", "papers.html": "Papers"} | (
        {"episodes.html": "Episodes"} if n_episodes else {}
    )
    pages |= {f"{notebook.name}.html": notebook.name[:2] for notebook in notebooks}
    headlines = []
    for each in read_yaml("pwagents_old.notebook", "site/headlines.yaml"):
        figure, table = parts.get((each["figure"], False)), parts.get((each["table"], True))
        if shown := [*filter(None, (figure, table))]:
            headlines.append((each["question"], shown))

    environment = make_environment(output_dir, autoescape=True)
    environment.globals |= {
        "preset": next((n.row["preset"] for n in notebooks if n.row), output_dir.name),
        "pages": pages, "smoke_banner": SMOKE, "n_episodes": n_episodes,
        "headlines": headlines, "notebooks": notebooks, "left": left, "is_reference": output_dir == REFERENCE,
        "folder": output_dir.name,
    }  # fmt: skip

    def write(name: str, template: str, up: str = "", **values) -> None:
        text = environment.get_template(template).render(here=name, up=up, **values)
        (site / name).write_text(text, "utf-8", "replace")

    for page in ("index.html", "papers.html", "episodes.html"):
        if page in pages:
            write(page, page)
    for notebook in notebooks:
        write(f"{notebook.name}.html", "results.html", notebook=notebook)
    executed = [notebook for notebook in notebooks if notebook.executed]
    bodies = engine.beside(partial(_convert, folder=site / "notebooks"), executed)
    for notebook, (body, highlighting) in zip(executed, bodies, strict=True):
        page = f"notebooks/{notebook.name}.html"
        write(page, "notebook.html", up="../", notebook=notebook, body=body, highlighting=highlighting)
    return site / "index.html"


def _read_table(path: Path) -> Part:
    page = path.read_text("utf-8")
    html = page[page.index("<table") : page.rindex("</table>") + len("</table>")]
    title = _TITLE.search(html)
    if html.count("<th ") > 14:  # in small type
        html = html.replace("<table ", "<table data-wide ", 1)
    html = _OURS.sub(r'<tr class="ours">\1', _PAPERS.sub(r'<tr class="papers">\1', _HEADING.sub("", html)))
    return Part(
        path.stem, _files(path, ".csv", ".tex"), Markup(title[1] if title else path.stem), Markup(html)
    )


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
        return f'loading="lazy" src="{names[-1]}"'

    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark")
    )
    style = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return Markup(_IMAGE.sub(write_image, body)), Markup(style)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pwagents_old.notebook.report OUTPUTS/PRESET")
    try:
        print(f"Open {build(Path(sys.argv[1]))} in a browser")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
