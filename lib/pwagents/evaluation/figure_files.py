"""Figures as files: PNG, SVG and the plotted numbers as CSV; and as a notebook shows them.

The same figure gives the same bytes at every run on one machine: no dates, no versions, no random ids.
"""

import io
from base64 import b64encode
from html import escape
from pathlib import Path

import pandas as pd

from pwagents.evaluation.figures import escape_math
from pwagents.evaluation.tables import csv_text
from pwagents.project import result_path, write_aside

# What figures can be written as, and what matplotlib is not to write of itself.
FORMATS = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_SHOWN_DPI = 72  # of a figure in a notebook; the saved PNG has twice as many


def save_figure(fig, name: str, data: pd.DataFrame, *, output_dir: Path | str, stamp: str = "") -> None:
    """Write ``<output_dir>/figures/<name>.png``, ``.svg`` and ``.csv``, show the figure, and close it.

    Args:
        fig: a matplotlib figure. It is shown only inside IPython, with a text for who cannot see it; then
            it is closed, so that a notebook does not show it a second time.
        data: the plotted numbers (6 significant digits in the CSV, without the index).
        stamp: what made the figure, such as notebook, preset, source and backbone: in small type below it.
    """
    import matplotlib.pyplot as plt

    path = result_path(output_dir, "figures", name)
    put_stamp(fig, stamp)
    png = rendered(fig, "png", name)
    write_aside(path.with_name(f"{name}.png"), png)
    write_aside(path.with_name(f"{name}.svg"), rendered(fig, "svg", name))
    write_aside(path.with_name(f"{name}.csv"), csv_text(data))
    _show(png, _alternative_text(fig, name), fig.get_figwidth())
    plt.close(fig)


def put_stamp(fig, stamp: str) -> None:
    """Write what made a figure in small type below it."""
    if stamp:
        fig.supxlabel(escape_math(stamp), x=0.995, ha="right", fontsize=9, color="0.35")


def rendered(fig, kind: str, name: str) -> bytes:
    """A figure as a file of one of :data:`FORMATS`, the same bytes at every run."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": name}):
        fig.savefig(buffer, format=kind, metadata=FORMATS[kind])
    return buffer.getvalue()


def _show(png: bytes, text: str, inches: float) -> None:
    """Display an image: as HTML, for JupyterLab gives images of other kinds no alternative text."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython():
        data = b64encode(png).decode()
        style = f"width: {inches * _SHOWN_DPI:.0f}px; max-width: 100%"
        html = f'<img src="data:image/png;base64,{data}" alt="{escape(text)}" style="{style}">'
        display({"text/html": html, "image/png": data, "text/escape_math": text}, raw=True)


def _alternative_text(fig, name: str) -> str:
    """What a figure shows, in words: its axes and their panels."""
    panels = []
    for ax in fig.axes:
        labels = [ax.get_title(), ax.get_ylabel(), ax.get_xlabel()]
        panels.append(" against ".join(label for label in labels[1:] if label) or labels[0])
    told = "; ".join(dict.fromkeys(filter(None, panels)))
    return f"Figure {name}: {told or 'see its caption'}. Its numbers: figures/{name}.csv"
