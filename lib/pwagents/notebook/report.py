"""A preset's results as a static site that opens by a double click: no server, no network.

    python -m pwagents.notebook.report outputs/laptop    # writes outputs/laptop/report; as `make report` does

Where laptop has not run, the site is that of the committed reference (:mod:`pwagents.notebook.reference`).
Everything is read from what the notebooks left; what is missing is left out. Texts of others (products,
reviews, replies of models) are escaped: by Jinja, by great_tables where the tables were saved, and in the
browser of episodes by writing text nodes alone. Other pages may run no script at all.
"""

import re
import shutil
import sys
from base64 import b64decode
from functools import partial
from pathlib import Path

from markupsafe import Markup

from pwagents.notebook.episodes import in_parallel, write_episodes
from pwagents.notebook.execute import without_passwords
from pwagents.notebook.reference import PRESET, REFERENCE
from pwagents.notebook.results import Notebook, read_notebooks
from pwagents.notebook.run import SMOKE_BANNER

# What the first page shows: a question, and the figure and table that answer it.
HEADLINES = (
    ("How good is each method, task by task?", "10_summary", "10_summary"),
    ("What does it help a search to know its user?", "01_ladder", "01_negative_controls"),
    (
        "Do profiles by interest help more than one of the whole user?",
        "02_search_gain",
        "02_micro_minus_global",
    ),
    ("Do they tell a user from others?", "02_consistency", "02_consistency_gain"),
    ("What does memory help an agent without a language model?", "03_single_turn", "03_memory_gain"),
    ("Is PUMA best, and which of its parts bring what?", "04_variants", "04_single_turn"),
    ("Does Orion learn by imitation?", "05_results", "05_results"),
    ("Does training by reward add to it?", "06_results", "06_results"),
    ("Is that more than the chance of a seed?", "07_seeds", "07_seeds"),
    ("What is each part of Orion worth?", "07_parts", "07_part_tests"),
    ("How much of the past has to be known?", "08_history_length", "08_history_length"),
    ("What does a trained policy lose without a part, in which world?", "08_parts", "08_parts"),
    ("Does an agent find in a year of browsing what a request leaves out?", "09_levels", "09_level_2"),
)
_SHOWN = ["text/html", "image/png", "text/markdown", "text/plain"]  # of outputs; no scripts, no widgets
_IMAGE = re.compile(r'src="data:image/png;base64,([^"]+)"')


def build(output_dir: Path) -> Path:
    """Write the site of ``output_dir`` into its folder ``report``, over an older one; return the first page.

    Raises:
        ValueError: there is nothing to be reported.
    """
    site = output_dir / "report"
    notebooks = read_notebooks(output_dir)
    if not notebooks and output_dir.name == PRESET:
        print(f"{output_dir} holds no results: the report is that of the committed reference, {REFERENCE}")
        output_dir = REFERENCE
        # What an older run left there says nothing of what made it.
        notebooks = [notebook for notebook in read_notebooks(output_dir) if notebook.run]
    if not notebooks:
        raise ValueError(f"{output_dir} holds no results; expected what `make reproduce` leaves there")
    shutil.rmtree(site, ignore_errors=True)
    for folder in ("files", "notebooks"):
        (site / folder).mkdir(parents=True)
    _copy_files(notebooks, site / "files")
    n_episodes = write_episodes(output_dir, site / "data")

    papers = _by_paper(notebooks)
    preset = next((n.run.row["preset"] for n in notebooks if n.run), output_dir.name)
    pages = [("index.html", "Results")]
    pages += [("papers.html", "Papers' tables")] if papers else []
    pages += [("episodes.html", "Episodes")] if n_episodes else []
    pages += [(f"{notebook.name}.html", notebook.name[:2]) for notebook in notebooks]
    environment = _environment(preset=preset, pages=pages, smoke_banner=SMOKE_BANNER)

    def write(name: str, template: str, up: str = "", **values) -> None:
        text = environment.get_template(template).render(here=name, up=up, **values)
        (site / name).write_text(text, "utf-8", "replace")

    headlines = _headlines(notebooks)
    write(
        "index.html", "index.html",
        notebooks=notebooks, headlines=headlines, n_episodes=n_episodes, has_papers=bool(papers),
    )  # fmt: skip
    if papers:
        write("papers.html", "papers.html", papers=papers)
    if n_episodes:
        write("episodes.html", "episodes.html", n_episodes=n_episodes)
    for notebook in notebooks:
        write(f"{notebook.name}.html", "results.html", notebook=notebook)
    executed = [notebook for notebook in notebooks if notebook.executed]
    bodies = in_parallel(partial(_executed, folder=site / "notebooks"), executed)
    for notebook, (body, highlighting) in zip(executed, bodies, strict=True):
        page = f"notebooks/{notebook.name}.html"
        write(page, "notebook.html", up="../", notebook=notebook, body=body, highlighting=highlighting)
    return site / "index.html"


def _environment(**values):
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("pwagents.notebook", "site"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= values
    return environment


def _copy_files(notebooks: list[Notebook], folder: Path) -> None:
    for notebook in notebooks:
        for part in (*notebook.tables, *notebook.figures):
            for file in part.files:
                shutil.copyfile(file, folder / file.name)


def _headlines(notebooks: list[Notebook]) -> list[tuple]:
    """Question, notebook, figures and tables of those headlines of which something is there."""
    found = []
    for question, figure, table in HEADLINES:
        for notebook in notebooks:
            figures = [part for part in notebook.figures if part.name == figure]
            tables = [part for part in notebook.tables if part.name == table]
            if figures or tables:
                found.append((question, notebook, figures, tables))
    return found


def _by_paper(notebooks: list[Notebook]) -> list[tuple[str, list]]:
    """Each paper with the tables beside which something of ours stands, in the paper's order."""
    papers: dict[str, list] = {}
    for notebook in notebooks:
        for table in notebook.tables:
            if table.paper:
                papers.setdefault(table.paper[0], []).append((table, notebook))
    return [(paper, sorted(tables, key=lambda each: each[0].paper)) for paper, tables in papers.items()]


def _executed(notebook: Notebook, folder: Path) -> tuple[Markup, Markup]:
    """An executed notebook as HTML, its images as files beside it, and the style of its code."""
    import nbformat
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter
    from traitlets.config import Config

    text = without_passwords(notebook.executed.read_text("utf-8"))
    # The template without a page around it: that one asks the network for scripts.
    exporter = HTMLExporter(
        config=Config({"NbConvertBase": {"display_data_priority": _SHOWN}}), template_name="basic"
    )
    executed = nbformat.reads(text, as_version=4)
    executed.metadata.pop("widgets", None)
    body, _ = exporter.from_notebook_node(executed)
    n_images = 0

    def image(found: re.Match) -> str:
        nonlocal n_images
        n_images += 1
        name = f"{notebook.name}_{n_images}.png"
        (folder / name).write_bytes(b64decode(found[1]))
        return f'loading="lazy" src="{name}"'

    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark")
    )
    return Markup(_IMAGE.sub(image, body)), Markup(
        f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    )


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m pwagents.notebook.report OUTPUTS/PRESET", file=sys.stderr)
        return 2
    try:
        print(f"Open {build(Path(sys.argv[1]))} in a browser")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
