"""What :mod:`growth` measured, as tables and a figure: exponents, verdicts, and the step that dominates.

An exponent is log(ratio of costs) / log(ratio of sizes) from one size to the next: 1 is growth in proportion.
Time is CPU time (user and system), because other programs share the machine. A step's memory is how far the
process's memory rose while it ran.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.evaluation.figures import use_style
from pwagents.evaluation.tables import save_table
from pwagents.notebook.figures import write_figure

# Exponents up to here pass as linear: n log n of a sort is 1.09 from 36,000 to 360,000, and data that outgrow
# the processor's cache on the way cost more apiece from there on.
LINEAR = 1.15
FLOORS = {"cpu_s": 0.05, "mb": 10.0}  # less is noise, and counts as so much
MEASURES = {"cpu_s": "CPU s", "mb": "MB"}
TOTAL = "all steps"
FIXED = {"products": "n_users", "users": "n_products"}
NOTE = (
    "CPU s: user and system. MB: how far memory rose in the step; for all steps, the most that a process "
    "held, libraries included. Exponent: log of the ratio of costs by log of the ratio of sizes; less than "
    f"{FLOORS['cpu_s']:g} s or {FLOORS['mb']:g} MB counts as so much, and up to {LINEAR:g} passes as linear."
)


def save_growth(measured: pd.DataFrame, ladder: str, output_dir: Path) -> str:
    """Write table and figure ``growth_<ladder>``; the table as text.

    Args:
        measured: one row a size and step: ``n_products``, ``n_users``, ``step``, ``cpu_s``, ``wall_s``,
            ``mb`` (the rise in the step), ``peak_mb`` (of the process).
        ladder: what grows, "products" or "users".
    """
    measured = with_total(measured)
    fixed = measured[FIXED[ladder]].iloc[0]
    title = f"Growth with {ladder}, at {fixed:,} {FIXED[ladder].removeprefix('n_')}"
    title += f": most time goes to {dominant(measured, ladder)}"
    table = growth_table(measured, ladder)
    numbers = {"CPU s": ",.2f", "MB": ",.0f", "% of CPU s at the largest": ".0f"}
    exponents = {lower: ".2f" for upper, lower in table.columns if upper.startswith("exponent")}
    save_table(
        table,
        f"growth_{ladder}",
        title=title,
        note=NOTE,
        formats=numbers | exponents,
        output_dir=output_dir,
    )
    write_figure(plot_growth(measured, ladder), Path(output_dir) / "figures" / f"growth_{ladder}.png")
    return f"\n{title}\n{table.round(2).to_string()}"


def save_raw_scans(scans: pd.DataFrame, output_dir: Path) -> str:
    """Write table ``growth_raw_reviews``, as from :func:`raw_reviews.measure_raw_scan`; the table as text."""
    costs = scans.set_index("gb")[["cpu_s", "peak_mb"]].T
    grown = ", ".join(f"{name} {value:.2f}" for name, value in exponents(costs, 0.0).iloc[:, -1].items())
    shown = {
        "gb": "GB",
        "reviews": "reviews",
        "cpu_s": "CPU s",
        "wall_s": "wall s",
        "mb_per_s": "MB/s",
        "peak_mb": "peak MB",
    }
    table = scans.rename(columns=shown)[list(shown.values())]
    title = "Raw review files scanned, 1,000 users taken"
    note = f"Exponents from the smaller file to the larger: {grown}. Peak: the process, libraries included."
    save_table(table, "growth_raw_reviews", title=title, note=note, output_dir=output_dir)
    return f"\n{title}\n{table.round(2).to_string(index=False)}\n{note}"


def with_total(measured: pd.DataFrame) -> pd.DataFrame:
    """The rows and, for each size, TOTAL: the seconds of all steps, the most memory that a process held."""
    total = measured.groupby(["n_products", "n_users"], as_index=False).agg(
        cpu_s=("cpu_s", "sum"), wall_s=("wall_s", "sum"), mb=("peak_mb", "max"), peak_mb=("peak_mb", "max")
    )
    return pd.concat([measured, total.assign(step=TOTAL)], ignore_index=True)


def growth_table(measured: pd.DataFrame, ladder: str) -> pd.DataFrame:
    """One row a step: costs at each size, exponents from size to size, share of the time, verdict."""
    steps = measured["step"].unique()
    costs = {m: measured.pivot(index="step", columns=f"n_{ladder}", values=m).loc[steps] for m in MEASURES}
    sizes = costs["cpu_s"].columns
    columns = {(f"{n:,} {ladder}", name): costs[m][n] for n in sizes for m, name in MEASURES.items()}
    grown = {name: exponents(costs[m], FLOORS[m]) for m, name in MEASURES.items()}
    columns |= {(f"exponent of {name}", pair): frame[pair] for name, frame in grown.items() for pair in frame}
    largest = costs["cpu_s"][sizes[-1]]
    columns["% of CPU s at the largest", ""] = 100 * largest / largest[TOTAL]
    steepest = pd.concat(grown.values(), axis=1).max(axis=1)
    columns["growth", ""] = steepest.map(lambda e: "linear or less" if e <= LINEAR else "FASTER THAN LINEAR")
    return pd.DataFrame(columns).rename_axis(index="step")


def exponents(costs: pd.DataFrame, floor: float) -> pd.DataFrame:
    """From each size (column) to the next: (rows, sizes) costs -> (rows, sizes - 1) exponents."""
    logs = np.log(costs.clip(lower=floor)).to_numpy()
    steps = np.diff(np.log(costs.columns.to_numpy(float)))
    pairs = [f"{small:,} to {large:,}" for small, large in pairwise(costs.columns)]
    return pd.DataFrame(np.diff(logs, axis=1) / steps, index=costs.index, columns=pairs)


def dominant(measured: pd.DataFrame, ladder: str) -> str:
    """The step that takes the most CPU time at the largest size, and its share, as text."""
    size = measured[f"n_{ladder}"]
    seconds = measured[size == size.max()].set_index("step")["cpu_s"]
    step = seconds.drop(TOTAL).idxmax()
    return f"{step} ({seconds[step] / seconds[TOTAL]:.0%})"


def plot_growth(measured: pd.DataFrame, ladder: str):
    """CPU seconds and MB of each step over size; dotted lines are growth in proportion to size."""
    import matplotlib.pyplot as plt

    use_style()
    fig, axes = plt.subplots(1, 2, figsize=(12, 6))
    steps = measured[measured["step"] != TOTAL]
    for axis, (column, floor) in zip(axes, FLOORS.items(), strict=True):
        _plot_costs(axis, steps, f"n_{ladder}", column, floor)
        axis.set_xlabel(ladder)
        axis.set_ylabel(f"{MEASURES[column]} ({floor:g} or less at the bottom)")
    fig.suptitle(f"At {measured[f'n_{ladder}'].max():,} {ladder}, most time: {dominant(measured, ladder)}")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4)
    return fig


def _plot_costs(axis, steps: pd.DataFrame, size: str, column: str, floor: float) -> None:
    sizes = np.sort(steps[size].unique())
    for (step, rows), marker in zip(steps.groupby("step", sort=False), "osD^vPX", strict=False):
        rows = rows.sort_values(size)
        axis.plot(rows[size], rows[column].clip(lower=floor), marker=marker, label=step)
    highest = 2 * max(steps[column].max(), floor)
    for decade in range(8):
        label = None if decade else "in proportion to size"
        line = highest * sizes / sizes[-1] / 10**decade
        axis.plot(sizes, line, ":", color="0.5", linewidth=1.2, zorder=1, label=label)
    axis.set(xscale="log", yscale="log", ylim=(floor / 1.3, highest))
    axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axis.yaxis.set_major_formatter("{x:,g}")
    axis.minorticks_off()
