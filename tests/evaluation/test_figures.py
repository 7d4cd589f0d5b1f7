"""What the plots show: the numbers of the frame, each once, in one style."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.evaluation.figures import (
    COLORS,
    PALETTE,
    assign_colors,
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
LINES = pd.DataFrame(
    {
        "run": ["a", "a", "b", "b"] * 2,
        "step": [0, 10] * 4,
        "value": [1.0, 2.0, 3.0, np.nan, 5.0, 6.0, 7.0, 8.0],
        "part": ["left"] * 4 + ["right"] * 4,
    }
)


@pytest.fixture(autouse=True)
def usual_matplotlib():
    with matplotlib.rc_context():
        yield
    plt.close("all")


def points(ax):
    """(x, y) of all points, in the order in which they were drawn."""
    return [tuple(map(float, xy)) for line in lines(ax) for xy in zip(*line.get_data(), strict=True)]


def lines(ax):
    """Lines and their points, without what belongs to intervals: caps, and a line that is not seen."""
    own = [line for line in ax.get_lines() if line.get_marker() not in ("|", "_")]
    return [line for line in own if (line.get_marker(), line.get_linestyle()) != ("None", "None")]


def intervals(ax):
    return [sorted({*map(tuple, ends)}) for bars in ax.collections for ends in bars.get_segments()]


def test_points_and_their_intervals_are_the_frames_in_order_from_the_top():
    fig = plot_intervals(DATA[:3], "method", xlim=(0, 1))
    (ax,) = fig.axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["random", r"cheap \$5 or \$6", "oracle"]
    assert ax.yaxis_inverted() and fig.legends == [] and ax.get_xlim() == pytest.approx((-0.02, 1.02))
    assert points(ax) == [(0.1, 0), (0.2, 1), (0.9, 2)]
    expected = [[(0.05, 0), (0.15, 0)], [(0.15, 1), (0.22, 1)], [(0.85, 2), (0.95, 2)]]
    assert np.array(intervals(ax)) == pytest.approx(np.array(expected)), "the very ends of ours"
    assert points(plot_intervals(DATA[3:4], "method").axes[0]) == [(0, 0)], "a point without an interval"


def test_hues_stand_side_by_side_and_a_legend_names_them():
    fig = plot_intervals(DATA, "method", hue="type")
    measured = points(fig.axes[0])
    assert len({y for _, y in measured}) == len(measured) == len(DATA) - 1  # one has no mean
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["search", "recommend"]


def test_a_method_has_one_colour_and_a_seed_one_marker():
    methods, seeds = ["SFT", "SFT", "GRPO", "GRPO"], ["seed 0", "seed 1"] * 2
    data = pd.DataFrame({"method": methods, "seed": seeds, "mean": [0.1, 0.2, 0.3, 0.4]})
    data = data.assign(low=data["mean"], high=data["mean"])
    ax = plot_intervals(data, "method", hue="seed", color="method").axes[0]
    looks = {line.get_xdata()[0]: (line.get_color(), line.get_marker()) for line in lines(ax)}
    assert [looks[mean][0] for mean in data["mean"]] == [COLORS[method] for method in methods]
    assert looks[0.1][1] == looks[0.3][1] != looks[0.2][1] == looks[0.4][1]


def test_a_task_has_the_same_colour_in_every_figure():
    some, all_ = assign_colors(["review", "instructions"]), assign_colors(["search", "recommend", "review"])
    assert some["review"] == all_["review"] and some["instructions"] != some["review"]
    assert len(set(assign_colors([f"variant {i}" for i in range(len(PALETTE))]).values())) == len(PALETTE)


@pytest.mark.parametrize("color", PALETTE)
def test_colours_stand_out_from_white(color):
    rgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]  # WCAG 2, relative luminance
    assert 1.05 / (luminance + 0.05) >= 3


@pytest.mark.parametrize("stacked", [False, True])
def test_bars_keep_the_order_of_the_frame(stacked):
    fig = plot_bars(DATA, "method", "mean", hue="type", stacked=stacked, ylabel="accuracy")
    (ax,) = fig.axes
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["search", "recommend"]
    assert [text.get_text().split()[0] for text in ax.get_xticklabels()] == ["random", "cheap", "oracle"]
    bars = {tone: [b for b in ax.patches if b.get_facecolor() == tone] for tone in map(rgba, DATA["type"])}
    first, second = bars.values()
    assert [bar.get_height() for bar in first] == pytest.approx([0.1, 0.2, 0.9])
    assert second[1].get_height() == pytest.approx(0.03) and ax.get_ylabel() == "accuracy"
    above = {round(bar.get_y(), 6) for bar in (*first[:2], *second[:2])} - {0}
    assert bool(above) == stacked


def rgba(task):
    return matplotlib.colors.to_rgba(COLORS[task])


def test_a_line_a_hue_and_a_panel_a_value_with_one_look_in_all():
    data = pd.concat([LINES, LINES[:4].assign(part="third")])
    fig = plot_lines(data, "step", "value", hue="run", panel="part", columns=2, xlabel="step")
    left, right = fig.axes[:2]
    assert [ax.get_title() for ax in fig.axes] == ["left", "right", "third"]
    assert [ax.get_xlabel() for ax in fig.axes] == ["", "step", "step"], "the lowest of each column"
    assert points(left) == [(0, 1), (10, 2), (0, 3)] and points(right) == [(0, 5), (10, 6), (0, 7), (10, 8)]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["a", "b"]
    looks, same = (
        [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines(ax)]
        for ax in (left, right)
    )
    assert looks == same and all(one != other for one, other in zip(*looks, strict=True))


def test_lines_of_one_colour_have_different_dashes():
    runs = ["GRPO, seed 0", "GRPO, seed 1", "PPO, seed 0"]
    data = pd.DataFrame({"run": runs * 2, "method": [run[:4].strip(",") for run in runs] * 2})
    (ax,) = plot_lines(
        data.assign(step=[0] * 3 + [1] * 3, value=0.5), "step", "value", hue="run", color="method"
    ).axes
    colors, dashes = zip(*((line.get_color(), line.get_linestyle()) for line in ax.get_lines()), strict=True)
    assert colors == (COLORS["GRPO"], COLORS["GRPO"], COLORS["PPO"])
    assert dashes[0] == dashes[2] != dashes[1]


def test_intervals_of_lines_stand_beside_each_other_and_a_missing_one_keeps_the_order():
    data = LINES[:3].assign(low=[np.nan, 1.5, 2.5], high=[np.nan, 2.25, 3.25])
    (ax,) = plot_lines(data, "step", "value", hue="run").axes
    (at_a, _), (at_10, _), (at_b, _) = points(ax)
    assert at_a < 0 < at_b == -at_a < 0.5 and at_10 > 9
    assert [(low[1], high[1]) for low, high in (each for each in intervals(ax) if len(each) == 2)] == [
        (1.5, 2.25), (2.5, 3.25)
    ]  # fmt: skip


def test_a_long_line_has_no_markers_and_what_it_smooths_is_faint():
    data = pd.DataFrame({"run": "a", "step": range(50), "value": 0.5, "each": [0.0, 1.0] * 25})
    (ax,) = plot_lines(data, "step", "value", hue="run", faint="each").axes
    faint, line = ax.get_lines()
    assert faint.get_alpha() < 1 and set(faint.get_ydata()) == {0, 1} and set(line.get_ydata()) == {0.5}
    assert line.get_marker() in ("None", None)


@pytest.mark.parametrize("word", ["run", "a name that is as long as half of the figure is wide, or so"])
def test_a_legend_of_long_names_lies_within_the_figure(word):
    names = [f"{n:,} {word}" for n in (100, 200, 400, 800, 1600)]
    runs = [name for name in names for _ in range(2)]
    fig = plot_lines(
        pd.DataFrame({"step": [0, 1] * 5, "loss": range(10), "run": runs}), "step", "loss", hue="run"
    )
    fig.canvas.draw()
    assert [text.get_text() for text in fig.legends[0].get_texts()] == names
    box = fig.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= fig.bbox.width


def test_a_level_is_named_beside_the_panel():
    (ax,) = plot_lines(LINES[:4], "step", "value", hue="run").axes
    mark_level(ax, 0.7, "teacher")
    assert list(ax.get_lines()[-1].get_ydata()) == [0.7, 0.7]
    assert [text.get_text() for text in ax.texts] == ["teacher"]
