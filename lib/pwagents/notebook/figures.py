"""Figures are drawn from files with their numbers: whoever has the files can draw them again, without a run.

    python -m pwagents.notebook.figures outputs/laptop --formats pdf    # as `make figures FORMATS=pdf`

A notebook first writes a figure's numbers to ``figures/NAME.parquet``, together with the name and options of
the function that draws them, and then draws from that file. In Python a figure comes back to be changed:

    figure = drawn("outputs/reference/figures/06_curves.parquet")
    figure.set_size_inches(8, 5)
    figure.savefig("curves.pdf")
"""

import argparse
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd

from pwagents.evaluation.figure_files import FORMATS, put_stamp, rendered
from pwagents.evaluation.figures import add_style
from pwagents.notebook.reference import PRESET, REFERENCE
from pwagents.progress import progress
from pwagents.project import result_path, write_aside

FOLDER = "redrawn"  # of a preset: what a notebook showed stays as it was
_PLOT = re.compile(r"pwagents(\.\w+)+:plot_\w+")  # a file can name no other code


def save_numbers(
    plot: Callable, name: str, data: pd.DataFrame, *, output_dir: Path, stamp: str = "", **options: Any
) -> Path:
    """Write ``<output_dir>/figures/<name>.parquet``, of which :func:`drawn` makes the figure; its path.

    Args:
        plot: the drawing function, ``plot_...`` of a module of this library; it gets the frame and
            ``options``, which JSON must be able to hold.
        data: the numbers, unrounded. Its index is dropped.
        stamp: see :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    place = f"{plot.__module__}:{plot.__qualname__}"
    if not _PLOT.fullmatch(place):
        raise ValueError(f"figure {name} is drawn by {place}; expected a function plot_... of pwagents")
    frame = data.reset_index(drop=True)
    frame.attrs = {"plot": place, "options": options, "stamp": stamp}  # pandas stores them in the file
    path = result_path(output_dir, "figures", name).with_name(f"{name}.parquet")
    write_aside(path, frame.to_parquet(index=False, compression="zstd"))
    return path


def drawn(path: Path | str):
    """The matplotlib figure of a file of numbers, without its stamp.

    Raises:
        ValueError: the file is no figure's numbers.
    """
    return _drawn(_read(path))


def _read(path: Path | str) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ValueError as error:  # pyarrow's
        raise ValueError(f"{path}: {error}; expected a Parquet file with a figure's numbers") from error
    plot = frame.attrs.get("plot", "")
    if not _PLOT.fullmatch(plot):
        raise ValueError(f"{path}: drawn by {plot!r}; expected a function plot_... of pwagents")
    return frame


def _drawn(frame: pd.DataFrame):
    return resolve_name(frame.attrs["plot"])(frame, **frame.attrs["options"])


def redraw(output_dir: Path, formats: Collection[str] = ("png", "svg")) -> Path:
    """Draw all figures of a preset into its folder ``redrawn``, which is returned.

    Where laptop has not run, these are the figures of the committed reference.

    Raises:
        ValueError: there are no figures' numbers.
    """
    import matplotlib.pyplot as plt

    target, source = output_dir / FOLDER, output_dir
    files = _numbers(source)
    if not files and output_dir.name == PRESET:
        source = REFERENCE
        files = _numbers(source)
    if not files:
        raise ValueError(
            f"{source / 'figures'} holds no figure's numbers (*.parquet); a notebook's run leaves them"
        )
    if source != output_dir:
        print(f"{output_dir} holds no figures: these are those of the committed reference, {source}")
    for path in progress(files, desc="figures", unit="figure"):
        frame = _read(path)
        figure = _drawn(frame)
        put_stamp(figure, frame.attrs["stamp"])
        for kind in formats:
            write_aside(target / f"{path.stem}.{kind}", rendered(figure, kind, path.stem))
        plt.close(figure)
    return target


def _numbers(output_dir: Path) -> list[Path]:
    return sorted((output_dir / "figures").glob("*.parquet"))


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
