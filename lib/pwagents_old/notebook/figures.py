"""Figures as files, drawn from files with their numbers: whoever has these can draw them again, without a
run.

    python -m pwagents_old.notebook.figures outputs/laptop --formats pdf    # as `make figures FORMATS=pdf`

A notebook first writes a figure's numbers to ``figures/NAME.parquet``, together with the name and options of
the function that draws them, and then draws from that file. The same numbers give the same bytes at every run
on one machine: no dates, no versions, no random ids. In Python a figure comes back to be changed:

    figure = draw_figure("outputs/reference/figures/06_curves.parquet")
    figure.set_size_inches(8, 5)
    figure.savefig("curves.pdf")
"""

import argparse
import io
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Collection
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd

from pwagents.progress import progress
from pwagents_old.evaluation.figures import add_style, escape_math
from pwagents.results.tables import csv_text
from pwagents_old.notebook.reference import find_results
from pwagents_old.project import result_path, write_aside

FOLDER = "redrawn"  # of a preset: what a notebook showed stays as it was
# What figures can be written as, and what matplotlib is not to write of itself.
FORMATS = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_SHOWN_DPI = 72  # of a figure in a notebook; the saved PNG has twice as many
_PLOT = re.compile(r"pwagents(?:_old)?(\.\w+)+:plot_\w+")  # a file can name no other code


def save_figure(
    plot: Callable, name: str, data: pd.DataFrame, *, output_dir: Path | str, stamp: str = "", **options: Any
) -> None:
    """Write a figure's numbers, draw it from that file, and show it.

    The files are ``<output_dir>/figures/<name>.parquet``, of which :func:`draw_figure` makes the figure,
    ``.png``, ``.svg`` and ``.csv``. The figure is shown only inside IPython, with a text for who cannot see
    it.

    Args:
        plot: the drawing function, ``plot_...`` of a module of this library; it gets the frame and
            ``options``, which JSON must be able to hold.
        data: the numbers, unrounded (6 significant digits in the CSV). Its index is dropped.
        stamp: what made the figure, such as notebook, preset, source and backbone: in small type below it.
    """
    import matplotlib.pyplot as plt
    from IPython import get_ipython
    from IPython.display import display

    path, frame = result_path(output_dir, "figures", name), data.reset_index(drop=True)
    # pandas stores these in the file
    frame.attrs = {"plot": f"{plot.__module__}:{plot.__qualname__}", "options": options, "stamp": stamp}
    numbers = path.with_name(f"{name}.parquet")
    write_aside(numbers, frame.to_parquet(index=False, compression="zstd"))
    write_aside(path.with_name(f"{name}.csv"), csv_text(data))
    figure = draw_figure(numbers, stamped=True)
    png = write_figure(figure, path.with_name(f"{name}.png"))
    write_figure(figure, path.with_name(f"{name}.svg"))
    plt.close(figure)  # or else a notebook shows it a second time

    # What it shows, in words: its axes and their panels.
    panels = []
    for ax in figure.axes:
        labels = [ax.get_title(), ax.get_ylabel(), ax.get_xlabel()]
        panels.append(" against ".join(label for label in labels[1:] if label) or labels[0])
    shown = "; ".join(dict.fromkeys(filter(None, panels))) or "see its caption"
    text, image = f"Figure {name}: {shown}. Its numbers: figures/{name}.csv", b64encode(png).decode()
    # As HTML, for JupyterLab gives images of other kinds no alternative text.
    style = f"width: {figure.get_figwidth() * _SHOWN_DPI:.0f}px; max-width: 100%"
    html = f'<img src="data:image/png;base64,{image}" alt="{escape(text)}" style="{style}">'
    if get_ipython():
        display({"text/html": html, "image/png": image, "text/plain": text}, raw=True)


def draw_figure(path: Path | str, *, stamped: bool = False):
    """Draw the matplotlib figure of a file of numbers; without its stamp, unless ``stamped``.

    Raises:
        ValueError: the file is no figure's numbers, or names another function than one that plots.
    """
    try:
        frame = pd.read_parquet(path)
    except ValueError as error:  # pyarrow's
        raise ValueError(f"{path}: {error}; expected a Parquet file with a figure's numbers") from error
    plot = frame.attrs.get("plot", "")
    if not _PLOT.fullmatch(plot):
        raise ValueError(f"{path}: drawn by {plot!r}; expected a function plot_... of pwagents")
    # Files of the committed reference name the package as it was called before it moved aside.
    plot = re.sub(r"^pwagents\.(?!results\b)", "pwagents_old.", plot)
    figure = resolve_name(plot)(frame, **frame.attrs["options"])
    if stamped and (stamp := frame.attrs["stamp"]):
        figure.supxlabel(escape_math(stamp), x=0.995, ha="right", fontsize=9, color="0.35")
    return figure


def write_figure(figure, path: Path) -> bytes:
    """Write a figure as its suffix says, one of :data:`FORMATS`; return the bytes, the same at every run."""
    import matplotlib.pyplot as plt

    buffer, kind = io.BytesIO(), path.suffix[1:]
    with plt.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(buffer, format=kind, metadata=FORMATS[kind])
    write_aside(path, buffer.getvalue())
    return buffer.getvalue()


def redraw(output_dir: Path, formats: Collection[str] = ("png", "svg")) -> Path:
    """Draw all figures of a preset into its folder ``redrawn``, which is returned.

    Where laptop has not run, these are the figures of the committed reference.

    Raises:
        ValueError: there are no figures' numbers.
    """
    import matplotlib.pyplot as plt

    source = find_results(output_dir, "figures/*.parquet")
    files = sorted((source / "figures").glob("*.parquet"))
    if not files:
        found = f"{source / 'figures'} holds no figure's numbers (*.parquet)"
        raise ValueError(f"{found}; expected what a notebook leaves there when it has run")
    for path in progress(files, desc="figures", unit="figure"):
        figure = draw_figure(path, stamped=True)
        for kind in formats:
            write_figure(figure, output_dir / FOLDER / f"{path.stem}.{kind}")
        plt.close(figure)
    return output_dir / FOLDER


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw a preset's figures again from their numbers.")
    parser.add_argument("output_dir", type=Path, help="for instance outputs/laptop")
    parser.add_argument("--formats", nargs="+", default=["png", "svg"], choices=sorted(FORMATS))
    parser.add_argument("--style", help="a matplotlib style sheet above the usual one: its name, or a file")
    arguments = parser.parse_args()
    try:
        if arguments.style:
            add_style(arguments.style)
        print(f"Drawn: {redraw(arguments.output_dir, arguments.formats)}")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
