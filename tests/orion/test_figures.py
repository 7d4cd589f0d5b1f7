"""Figures of trainings: what they show, and that they can be written."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.notebook.figures import write_figure
from pwagents.orion.figures import plot_by_ambiguity, plot_curves, plot_scaling

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def plain_matplotlib():
    with matplotlib.rc_context():
        yield
    plt.close("all")


def curves():
    steps = np.arange(1, 11)
    runs = [
        pd.DataFrame({"run": run, "step": steps, "reward": steps / 10 + shift, "kl": 0.0, "grad_norm": 1.0})
        for run, shift in (("GRPO", 0.0), ("PPO", 0.1))
    ]
    first = pd.DataFrame({"run": ["GRPO", "PPO"], "step": 0, "eval_result_final": [0.5, 0.6]})
    return pd.concat([first, *runs], ignore_index=True)


def summary(**columns):
    frame = pd.DataFrame(columns)
    return frame.assign(low=frame["mean"] - 0.1, high=frame["mean"] + 0.1)


def test_a_panel_a_number_that_the_log_has():
    figure = plot_curves(curves(), window=2, columns=2)
    shown = {ax.get_title(): ax for ax in figure.axes if ax.get_visible()}
    assert set(shown) == {"reward of an episode", "result accuracy, held out", "gradient norm"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GRPO", "PPO"]
    thin, thick = shown["reward of an episode"].lines[:2]
    assert thin.get_ydata().tolist() == pytest.approx([i / 10 for i in range(1, 11)])
    assert thick.get_ydata()[1] == pytest.approx(0.15)
    assert [line.get_ydata().tolist() for line in shown["result accuracy, held out"].lines] == [[0.5], [0.6]]


def test_scaling_has_a_line_a_type_of_task_and_levels_beside():
    rows = summary(trajectories=[100, 400] * 2, type=["search"] * 2 + ["mean"] * 2, mean=[0.3, 0.5, 0.2, 0.4])
    ax = plot_scaling(rows, {"teacher": 0.7}).axes[0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["100", "400"]
    assert [container[0].get_ydata().tolist() for container in ax.containers] == [[0.3, 0.5], [0.2, 0.4]]
    assert [text.get_text() for text in ax.texts] == ["teacher"]


def test_ambiguity_goes_along_the_axis_in_the_order_of_the_rows(tmp_path):
    rows = summary(
        method=["SFT", "SFT", "RL", "RL"] * 2,
        fitting=["1 to 3", "4 to 12"] * 4,
        metric=["asks"] * 4 + ["result_final"] * 4,
        mean=[1.0, 1.0, 0.0, 2.0, 0.5, 0.4, 0.6, 0.6],
    )
    metrics = {"asks": "questions", "result_final": "result accuracy"}
    figure = plot_by_ambiguity(rows, "fitting", "products that fit", metrics)
    left, right = figure.axes
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["1 to 3", "4 to 12"]
    lines = [line for line in left.get_lines() if line.get_linestyle() != "None"]
    assert [line.get_ydata().tolist() for line in lines] == [[1.0, 1.0], [0.0, 2.0]]
    assert (left.get_ylabel(), right.get_ylabel()) == ("questions", "result accuracy")
    write_figure(figure, tmp_path / "asks.svg")
    assert (tmp_path / "asks.svg").stat().st_size > 1000
