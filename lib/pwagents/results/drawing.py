"""Figures as files, drawn from files with their numbers.

Whoever has the numbers can draw a figure again, without a run. A notebook first writes them to
``figures/NAME.parquet``, together with the word and options of the function that draws them, and then draws
from that file. The same numbers give the same bytes at every run on one machine: no dates, no versions, no
random ids, no settings of a user's matplotlibrc. In Python a figure comes back to be changed:

    figure = draw_figure("outputs/reference/figures/06_curves.parquet")
    figure.set_size_inches(8, 5)
    figure.savefig("curves.pdf")
"""

import io
from base64 import b64encode
from collections.abc import Callable
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd

from pwagents.files import write_aside
from pwagents.results import figures
from pwagents.results.style import escape_math, style
from pwagents.results.tables import csv_text, result_path

# Word -> the place of the function that it names. A file can name no other code.
PLOTS = {
    name.removeprefix("plot_"): f"{figures.__name__}:{name}"
    for name in vars(figures)
    if name.startswith("plot_")
}
# What figures can be written as, and what matplotlib is not to write of itself.
FORMATS = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_SHOWN_DPI = 72  # of a figure in a notebook; the saved PNG has twice as many


def save_figure(
    plot: Callable, name: str, data: pd.DataFrame, *, output_dir: Path | str, stamp: str = "", **options: Any
) -> None:
    """Write a figure's numbers, draw it from that file, and show it.

    The files are ``<output_dir>/figures/<name>.parquet``, of which :func:`draw_figure` makes the figure,
    ``.png``, ``.svg`` and ``.csv``. The figure is shown only inside IPython, with a text for who cannot see
    it.

    Args:
        plot: one of the functions of :data:`PLOTS`; it gets the frame and ``options``, which JSON must be
            able to store.
        data: the numbers, unrounded (6 significant digits in the CSV). Its index is dropped.
        stamp: what made the figure, such as preset, source and backbone: in small type below it.

    Raises:
        ValueError: ``plot`` is none of :data:`PLOTS`; or see :func:`pwagents.results.tables.result_path`.
    """
    import matplotlib.pyplot as plt
    from IPython import get_ipython
    from IPython.display import display

    path, frame = result_path(output_dir, "figures", name), data.reset_index(drop=True)
    place = f"{plot.__module__}:{plot.__qualname__}"
    word = next((word for word in PLOTS if PLOTS[word] == place), "")
    if not word:
        raise ValueError(f"figure {name}: drawn by {place}; expected a function plot_... of pwagents")
    frame.attrs = {"plot": word, "options": options, "stamp": stamp}  # pandas stores these in the file
    numbers = path.with_name(f"{name}.parquet")
    write_aside(numbers, frame.to_parquet(index=False, compression="zstd"))
    write_aside(path.with_name(f"{name}.csv"), csv_text(data))
    figure = draw_figure(numbers, stamped=True)
    png = write_figure(figure, path.with_name(f"{name}.png"))
    write_figure(figure, path.with_name(f"{name}.svg"))
    plt.close(figure)  # or else a notebook shows it a second time

    # What it shows, in words: its title, its axes and their panels.
    panels = [options.get("title", "")]
    for ax in figure.axes:
        labels = [ax.get_title(), ax.get_ylabel(), ax.get_xlabel()]
        panels.append(" against ".join(label for label in labels[1:] if label) or labels[0])
    shown = "; ".join(dict.fromkeys(filter(None, panels))) or "see its caption"
    text, image = f"Figure {name}: {shown}. Its numbers: figures/{name}.csv", b64encode(png).decode()
    # As HTML, for JupyterLab gives images of other kinds no alternative text.
    look = f"width: {figure.get_figwidth() * _SHOWN_DPI:.0f}px; max-width: 100%"
    html = f'<img src="data:image/png;base64,{image}" alt="{escape(text)}" style="{look}">'
    if get_ipython():
        display({"text/html": html, "image/png": image, "text/plain": text}, raw=True)


def draw_figure(path: Path | str, *, stamped: bool = False):
    """Return the matplotlib figure of a file of numbers, with its stamp if ``stamped``.

    Raises:
        ValueError: the file is no figure's numbers, or names another function than one of :data:`PLOTS`.
    """
    try:
        frame = pd.read_parquet(path)
    except ValueError as error:  # pyarrow's
        raise ValueError(f"{path}: {error}; expected a Parquet file with a figure's numbers") from error
    if (word := frame.attrs.get("plot")) not in PLOTS:
        raise ValueError(f"{path}: drawn by {word!r}; expected a function plot_... of pwagents")
    with style():
        figure = resolve_name(PLOTS[word])(frame, **frame.attrs["options"])
        if stamped and (stamp := frame.attrs["stamp"]):
            figure.supxlabel(escape_math(stamp), x=0.995, ha="right", fontsize=9, color="0.35")
    return figure


def write_figure(figure, path: Path) -> bytes:
    """Write a figure as its suffix says, and return its bytes."""
    import matplotlib.pyplot as plt

    buffer, kind = io.BytesIO(), path.suffix[1:]
    with style(), plt.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(buffer, format=kind, metadata=FORMATS[kind])
    write_aside(path, buffer.getvalue())
    return buffer.getvalue()
