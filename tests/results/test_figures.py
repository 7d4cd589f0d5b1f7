"""What the plots show: the numbers of the frame, each once, in one style."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.results.figures import plot_bars, plot_intervals, plot_lines, plot_losses
from pwagents.results.style import COLORS

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
VALUES = {"left": [1.0, 2.0, 3.0, np.nan], "right": [5.0, 6.0, 7.0, 8.0], "third": [1.0, 2.0, 3.0, 4.0]}
LINES = pd.concat(
    pd.DataFrame({"run": list("aabb"), "step": [0, 10] * 2, "value": values, "part": part})
    for part, values in VALUES.items()
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
    assert ax.yaxis_inverted() and fig.legends == []
    assert points(ax) == [(0.1, 0), (0.2, 1), (0.9, 2)]
    expected = [[(0.05, 0), (0.15, 0)], [(0.15, 1), (0.22, 1)], [(0.85, 2), (0.95, 2)]]
    assert np.array(intervals(ax)) == pytest.approx(np.array(expected)), "the very ends of ours"
    assert points(plot_intervals(DATA[3:4], "method").axes[0]) == [(0, 0)], "a point without an interval"
    fig = plot_intervals(DATA, "method", hue="type")
    beside = points(fig.axes[0])
    assert len({y for _, y in beside}) == len(beside) == len(DATA) - 1  # one has no mean
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["search", "recommend"]


@pytest.mark.parametrize("stacked", [False, True])
def test_bars_keep_the_order_of_the_frame(stacked):
    fig = plot_bars(DATA, "method", "mean", hue="type", stacked=stacked, ylabel="accuracy")
    (ax,) = fig.axes
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["search", "recommend"]
    assert [text.get_text().split()[0] for text in ax.get_xticklabels()] == ["random", "cheap", "oracle"]
    tones = [matplotlib.colors.to_rgba(COLORS[task]) for task in ("search", "recommend")]
    first, second = ([bar for bar in ax.patches if bar.get_facecolor() == tone] for tone in tones)
    assert [bar.get_height() for bar in first] == pytest.approx([0.1, 0.2, 0.9])
    assert second[1].get_height() == pytest.approx(0.03) and ax.get_ylabel() == "accuracy"
    above = {round(bar.get_y(), 6) for bar in (*first[:2], *second[:2])} - {0}
    assert bool(above) == stacked


def test_losses_of_preferences_have_a_panel_of_their_own_if_there_are_others():
    names = ["SFT: PUMA", "SFT: PUMA", "DPO: PUMA", "DPO: PUMA"]
    losses = pd.DataFrame({"training": names, "step": [1, 10, 1, 5], "loss": [3.0, 1.0, 0.69, 0.6]})
    both, of_pairs = plot_losses(losses, "It falls"), plot_losses(losses[2:])
    left, right = both.axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("loss (nats a token)", "loss (nats a pair)")
    assert [ax.get_title() for ax in both.axes] == ["", ""] and left.get_ylim()[0] == 0
    assert [ax.get_ylabel() for ax in of_pairs.axes] == ["loss (nats a pair)"]


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
