"""A preset's figures drawn again from their numbers, as `make figures` does.

python -m pwagents.report.redraw outputs/laptop --formats pdf    # as `make figures FORMATS=pdf`
"""

import argparse
import os
import sys
from collections.abc import Collection
from pathlib import Path

from pwagents.progress import progress
from pwagents.report.reference import find_results
from pwagents.results.drawing import FORMATS, draw_figure, write_figure
from pwagents.results.style import add_style

FOLDER = "redrawn"  # of a preset: what a notebook showed stays as it was


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
    os.environ["MATPLOTLIBRC"] = os.devnull  # a damaged one would not let matplotlib be imported
    import matplotlib

    parser = argparse.ArgumentParser(description="Draw a preset's figures again from their numbers.")
    parser.add_argument("output_dir", type=Path, help="for instance outputs/laptop")
    parser.add_argument("--formats", nargs="+", default=["png", "svg"], choices=sorted(FORMATS))
    parser.add_argument("--style", help="a matplotlib style sheet above the usual one: its name, or a file")
    arguments = parser.parse_args()
    matplotlib.use("agg")  # files alone: no window, whatever the matplotlibrc names
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
