"""Figures: three files each, the same bytes every time, and what the plots show."""

import os
import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from pwagents.evaluation.figures import mark_level, plot_bars, plot_intervals, plot_lines, save_figure

matplotlib.use("Agg")

DATA = pd.DataFrame(
    {
        "method": ["random", "cheap $5 or $6", "oracle"] * 2,
        "type": ["search"] * 3 + ["recommend"] * 3,
        "mean": [0.1, 0.2, 0.9, 0.0, 0.03, np.nan],
        "low": [0.05, 0.15, 0.85, np.nan, 0.01, np.nan],
        "high": [0.15, 0.22, 0.95, np.nan, 0.05, np.nan],
        "paper": [np.nan, 0.3, np.nan, 0.01, np.nan, np.nan],
    }
)
KINDS = ("png", "svg", "csv")


@pytest.fixture(autouse=True)
def plain_matplotlib():
    with matplotlib.rc_context():
        yield
    plt.close("all")


def read(folder, name):
    return {kind: (folder / "figures" / f"{name}.{kind}").read_bytes() for kind in KINDS}


def draw(folder):
    fig = plot_intervals(DATA, "method", hue="type", paper="paper", xlabel="result accuracy")
    save_figure(fig, "intervals", DATA, output_dir=folder)
    return read(folder, "intervals")


def test_the_files_are_the_same_at_every_run_and_in_every_process(tmp_path):
    here = draw(tmp_path / "a")
    assert draw(tmp_path / "b") == here
    script = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        f"import pathlib, test_figures; test_figures.draw(pathlib.Path({str(tmp_path / 'c')!r}))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert read(tmp_path / "c", "intervals") == here


def test_the_files_name_no_date_and_no_program(tmp_path):
    files = draw(tmp_path)
    assert b"<dc:date>" not in files["svg"] and b"Matplotlib" not in files["svg"].split(b"<defs>")[0]
    assert b"Software" not in files["png"] and b"tIME" not in files["png"]


def test_the_csv_is_the_plotted_data(tmp_path):
    draw(tmp_path)
    stored = pd.read_csv(tmp_path / "figures" / "intervals.csv")
    pd.testing.assert_frame_equal(stored, DATA, check_dtype=False)


def test_saving_closes_the_figure(tmp_path):
    draw(tmp_path)
    assert not plt.get_fignums()


def points(ax):
    """(x, y) of all plotted measured points."""
    return [tuple(xy) for container in ax.containers for xy in zip(*container[0].get_data(), strict=True)]


def test_intervals_are_drawn_in_order_from_the_top():
    fig = plot_intervals(DATA[:3], "method")
    ax = fig.axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["random", r"cheap \$5 or \$6", "oracle"]
    assert ax.yaxis_inverted()
    assert points(ax) == [(0.1, 0), (0.2, 1), (0.9, 2)]
    assert fig.legends == []


def test_hues_stand_side_by_side_and_papers_values_in_the_same_place():
    ax = plot_intervals(DATA, "method", hue="type", paper="paper").axes[0]
    measured = points(ax)
    assert len({y for _, y in measured}) == len(measured) == len(DATA)
    drawn = [c.get_offsets().filled(np.nan) for c in ax.collections if isinstance(c, PathCollection)]
    papers = [tuple(xy) for xy in np.concatenate(drawn) if np.isfinite(xy).all()]
    expected = [(x, y) for x, (_, y) in zip(DATA["paper"], measured, strict=True) if np.isfinite(x)]
    assert papers == expected


def test_a_legend_names_here_and_paper():
    fig = plot_intervals(DATA[:3], "method", paper="paper")
    assert {text.get_text() for text in fig.legends[0].get_texts()} == {"here", "paper"}


def test_a_point_without_interval_is_still_drawn():
    ax = plot_intervals(DATA[3:4], "method").axes[0]
    assert points(ax) == [(0.0, 0)]


@pytest.mark.parametrize("stacked", [False, True])
def test_bars_keep_the_order_of_the_frame(stacked):
    ax = plot_bars(DATA, "method", "mean", hue="type", stacked=stacked).axes[0]
    assert [bars.get_label() for bars in ax.containers] == ["search", "recommend"]
    assert [bar.get_height() for bar in ax.containers[0]] == [0.1, 0.2, 0.9]
    bottom = [bar.get_y() for bar in ax.containers[1]][:2]
    assert bottom == ([0.1, 0.2] if stacked else [0, 0])


def test_bars_without_hue():
    ax = plot_bars(DATA[:3], "method", "mean", ylabel="accuracy").axes[0]
    assert [bar.get_height() for bar in ax.containers[0]] == [0.1, 0.2, 0.9]
    assert ax.get_ylabel() == "accuracy"


LINES = pd.DataFrame(
    {
        "run": ["a", "a", "b", "b"] * 2,
        "step": [0, 10] * 4,
        "value": [1.0, 2.0, 3.0, np.nan, 5.0, 6.0, 7.0, 8.0],
        "part": ["left"] * 4 + ["right"] * 4,
    }
)


def drawn(ax):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()}


def test_a_line_a_hue_and_a_panel_a_value():
    fig = plot_lines(LINES, "step", "value", hue="run", panel="part", xlabel="step", ylabel="value")
    left, right = fig.axes
    assert [ax.get_title() for ax in fig.axes] == ["left", "right"]
    assert drawn(left) == {"a": ([0, 10], [1, 2]), "b": ([0], [3])}
    assert drawn(right) == {"a": ([0, 10], [5, 6]), "b": ([0, 10], [7, 8])}
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["a", "b"]
    looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in right.get_lines()]
    assert looks == [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in left.get_lines()]
    assert all(one != other for one, other in zip(*looks, strict=True))


def test_panels_fill_rows_and_only_the_lowest_name_the_axis():
    data = pd.concat([LINES.assign(part=name) for name in "xyz"])
    fig = plot_lines(data, "step", "value", hue="run", panel="part", columns=2, xlabel="step")
    assert [ax.get_xlabel() for ax in fig.axes] == ["", "step", "step"]


def test_intervals_stand_beside_each_other():
    data = LINES[:3].assign(low=LINES["value"] - 0.5, high=LINES["value"] + 0.25)
    (ax,) = plot_lines(data, "step", "value", hue="run").axes
    (a, _, (bars,)), (b, _, _) = ax.containers
    assert a.get_xdata()[0] < 0 < b.get_xdata()[0] == -a.get_xdata()[0] < 0.5
    assert [tuple(end[:, 1]) for end in bars.get_segments()] == [(0.5, 1.25), (1.5, 2.25)]


def test_a_long_line_has_no_markers_and_what_it_smooths_is_faint():
    data = pd.DataFrame({"run": "a", "step": range(50), "value": 0.5, "each": [0.0, 1.0] * 25})
    (ax,) = plot_lines(data, "step", "value", hue="run", faint="each").axes
    faint, line = ax.get_lines()
    assert faint.get_alpha() < 1 and set(faint.get_ydata()) == {0, 1} and set(line.get_ydata()) == {0.5}
    assert line.get_marker() == "None"


def test_a_level_is_named_beside_the_panel():
    (ax,) = plot_lines(LINES[:4], "step", "value", hue="run").axes
    mark_level(ax, 0.7, "teacher")
    assert drawn(ax)["teacher"][1] == [0.7, 0.7]
    assert [text.get_text() for text in ax.texts] == ["teacher"]
