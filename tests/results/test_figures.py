"""What the plots show: the numbers of the frame, each once, in one style."""

import numpy as np
import pandas as pd
import pytest

from pwagents.results.figures import plot_bars, plot_curves, plot_intervals, plot_lines
from pwagents.results.style import COLORS

DATA = pd.DataFrame(
    {
        "method": ["random", "cheap $5 or $6", "oracle"] * 2,
        "type": ["search"] * 3 + ["recommend"] * 3,
        "mean": [0.1, 0.2, 0.9, 0.0, 0.03, np.nan],
        "low": [0.05, 0.15, 0.85, np.nan, 0.01, np.nan],
        "high": [0.15, 0.22, 0.95, np.nan, 0.05, np.nan],
    }
)
VALUES = {"left": [1.0, 2.0, 3.0, np.nan], "right": [5.0, 6.0, 7.0, 8.0], "third": [1.0, 2.0, 3.0, 4.0]}
LINES = pd.concat(
    pd.DataFrame({"run": list("aabb"), "step": [0, 10] * 2, "value": values, "part": part})
    for part, values in VALUES.items()
)


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
    assert ax.yaxis_inverted() and fig.legends == []
    assert points(ax) == [(0.1, 0), (0.2, 1), (0.9, 2)]
    expected = [[(0.05, 0), (0.15, 0)], [(0.15, 1), (0.22, 1)], [(0.85, 2), (0.95, 2)]]
    assert np.array(intervals(ax)) == pytest.approx(np.array(expected)), "the very ends of ours"
    assert points(plot_intervals(DATA[3:4], "method").axes[0]) == [(0, 0)], "a point without an interval"
    fig = plot_intervals(DATA, "method", hue="type")
    beside = points(fig.axes[0])
    assert len({y for _, y in beside}) == len(beside) == len(DATA) - 1  # one has no mean
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["search", "recommend"]


def test_intervals_in_panels_share_their_lines_and_a_mean_over_part_of_its_tasks_is_hollow():
    rows = DATA.assign(n_missing=[0, 1, 0, 0, 0, 0])
    fig = plot_intervals(rows, "method", panel="type", color="type")
    assert [ax.get_title() for ax in fig.axes] == ["search", "recommend"]
    assert [sorted(points(ax)) for ax in fig.axes] == [[(0.1, 0), (0.2, 1), (0.9, 2)], [(0, 0), (0.03, 1)]]
    assert {line.get_color() for line in lines(fig.axes[1])} == {COLORS["recommend"]}
    hollow = [line for line in lines(fig.axes[0]) if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata().tolist() for line in hollow] == [[0.2]]


def test_bars_keep_the_order_of_the_frame():
    fig = plot_bars(DATA.assign(mean=100 * DATA["mean"]), "method", "mean", panel="type", xlabel="accuracy")
    left, right = fig.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["random", r"cheap \$5 or \$6", "oracle"]
    assert [bar.get_width() for bar in left.containers[0]] == pytest.approx([10, 20, 90])
    assert [text.get_text() for text in left.texts] == ["10", "20", "90"] and left.yaxis_inverted()
    assert (right.get_title(), right.get_xlabel()) == ("recommend", "accuracy")


def test_curves_have_a_panel_a_number_that_the_log_has():
    rows = pd.DataFrame({"run": "PPO", "step": range(4), "reward": [0.0, 1.0, 2.0, 4.0], "kl": 0.0})
    rows = rows.assign(eval_return=[0.5, *[np.nan] * 3], eval_error=[0.1, *[np.nan] * 3])
    curves = plot_curves(rows.assign(informative_search=[0, 1, 1, 2], drawn_search=2))
    panels = {ax.get_title(): ax for ax in curves.axes}
    taught = "groups that teach something: search"
    assert set(panels) == {"reward of an episode", "return, validation", taught}
    assert panels[taught].lines[0].get_ydata().tolist() == [0, 0.5, 0.5, 1]
    thin, thick = (line.get_ydata().tolist() for line in panels["reward of an episode"].lines[:2])
    assert thin == [0, 1, 2, 4] and thick == [0, 0.5, 1, 1.75]
    assert points(panels["return, validation"]) == [(0, 0.5)]
    (bar,) = (line for line in panels["return, validation"].collections)
    assert bar.get_segments()[0][:, 1].tolist() == pytest.approx([0.304, 0.696])


def test_lines_over_doublings_with_levels_to_compare_with():
    rows = pd.DataFrame({"type": "search", "n": [100, 400], "mean": [0.3, 0.5], "low": 0.1, "high": 0.6})
    (ax,) = plot_lines(rows, "n", "mean", hue="type", doublings=True, levels={"teacher": 0.7}).axes
    assert ax.containers[0][0].get_ydata().tolist() == [0.3, 0.5]
    assert ax.get_xticks().tolist() == pytest.approx(np.log2([100, 400]).tolist())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["100", "400"]
    assert [text.get_text() for text in ax.texts] == ["teacher"]


def test_a_line_a_hue_and_a_panel_a_value_with_one_look_in_all():
    fig = plot_lines(LINES, "step", "value", hue="run", panel="part", columns=2, xlabel="step")
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
