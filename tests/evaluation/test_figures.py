"""Figures: three files each, the same bytes every time, and what the plots show."""

import os
import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.evaluation.figure_files import save_figure
from pwagents.evaluation.figures import (
    COLORS,
    PALETTE,
    colors_of,
    mark_level,
    plot_bars,
    plot_intervals,
    plot_lines,
)

matplotlib.use("Agg")

DATA = pd.DataFrame(
    {
        "method": ["random", "cheap $5 or $6", "oracle"] * 2,
        "type": ["search"] * 3 + ["recommend"] * 3,
        "mean": [0.1, 0.2, 0.9, 0.0, 0.03, np.nan],
        "low": [0.05, 0.15, 0.85, np.nan, 0.01, np.nan],
        "high": [0.15, 0.22, 0.95, np.nan, 0.05, np.nan],
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
    fig = plot_intervals(DATA, "method", hue="type", xlabel="result accuracy")
    save_figure(fig, "intervals", DATA, output_dir=folder, stamp="preset: smoke · costs $5 or $6")
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


def test_hues_stand_side_by_side_and_a_legend_names_them():
    fig = plot_intervals(DATA, "method", hue="type")
    measured = points(fig.axes[0])
    assert len({y for _, y in measured}) == len(measured) == len(DATA)
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["search", "recommend"]


@pytest.mark.parametrize(
    "word", ["run", "trajectories", "a name that is as long as half of the figure is wide, or so"]
)
def test_a_legend_of_long_names_lies_within_the_figure(word):
    names = [f"{n:,} {word}" for n in (100, 200, 400, 800, 1600)]
    data = pd.DataFrame(
        {"step": [0, 1] * 5, "loss": range(10), "run": [name for name in names for _ in range(2)]}
    )
    fig = plot_lines(data, "step", "loss", hue="run")
    fig.canvas.draw()
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= fig.bbox.width


def test_a_method_has_one_colour_and_a_seed_one_marker():
    methods, seeds = ["SFT", "SFT", "GRPO", "GRPO"], ["seed 0", "seed 1"] * 2
    data = pd.DataFrame({"method": methods, "seed": seeds, "mean": [0.1, 0.2, 0.3, 0.4]})
    data = data.assign(low=data["mean"], high=data["mean"])
    ax = plot_intervals(data, "method", hue="seed", color="method").axes[0]
    looks = {c[0].get_xdata()[0]: (c[0].get_color(), c[0].get_marker()) for c in ax.containers}
    assert [looks[mean][0] for mean in data["mean"]] == [COLORS[method] for method in methods]
    assert looks[0.1][1] == looks[0.3][1] != looks[0.2][1] == looks[0.4][1]


def test_lines_of_one_colour_have_different_dashes():
    runs = ["GRPO, seed 0", "GRPO, seed 1", "PPO, seed 0"]
    data = pd.DataFrame({"run": runs * 2, "method": [run[:4].strip(",") for run in runs] * 2})
    data = data.assign(step=[0] * 3 + [1] * 3, value=0.5)
    (ax,) = plot_lines(data, "step", "value", hue="run", color="method").axes
    colors, dashes = zip(*((line.get_color(), line.get_linestyle()) for line in ax.get_lines()), strict=True)
    assert colors == (COLORS["GRPO"], COLORS["GRPO"], COLORS["PPO"])
    assert dashes[0] == dashes[2] != dashes[1]


def test_a_task_has_the_same_colour_in_every_figure():
    some, all_ = colors_of(["review", "instructions"]), colors_of(["search", "recommend", "review"])
    assert some["review"] == all_["review"] and some["instructions"] != some["review"]
    assert len(set(colors_of([f"variant {i}" for i in range(len(PALETTE))]).values())) == len(PALETTE)


@pytest.mark.parametrize("color", PALETTE)
def test_colours_stand_out_from_white_and_none_is_yellow(color):
    rgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]  # WCAG 2, relative luminance
    assert 1.05 / (luminance + 0.05) >= 3
    hue, saturation, value = matplotlib.colors.rgb_to_hsv(rgb)
    assert not (45 < 360 * hue < 75 and saturation > 0.4 and value > 0.7)


def test_the_stamp_says_what_made_the_figure(tmp_path):
    assert "preset: smoke · costs $5 or $6" in draw(tmp_path)["svg"].decode()


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
