"""What notebooks 05 to 08 show, by hand: tables, figures, pages."""

from functools import partial

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from pwagents_old.orion import views
from pwagents_old.orion.control import FOREIGN, NONE, OWN
from pwagents_old.orion.figures import plot_curves, plot_scaling

from pwagents.lm.tokens import Example
from pwagents.results.seeds import by_seed, format_seeds, means_by_seed
from pwagents.results.statistics import trained_differences
from pwagents.results.tables import format_differences

from .test_settings import load

matplotlib.use("Agg")


def frame(values, **more):
    """Rows of (method, user, task) -> result accuracy; all else is 1."""
    keys = ["method", "user_id", "task_id"]
    rows = [dict(zip(keys, key, strict=True)) | {"result_final": value} for key, value in values.items()]
    return pd.DataFrame(rows).assign(type="search", step_accuracy=1.0, steps=2.0, **more)


def test_policies_are_compared_under_own_and_other_profiles():
    results = {
        OWN: {"SFT": (0.4, 0.6), "RL": (0.8, 1.0)},
        FOREIGN: {"SFT": (0.3, 0.5), "RL": (0.4, 0.6)},
        NONE: {"SFT": (0.1,), "RL": (0.3,)},  # on fewer tasks, which count for nothing but themselves
    }
    rows = [
        frame({(m, f"u{i}", f"t{i}"): value for m, own in runs.items() for i, value in enumerate(own)})
        for runs in results.values()
    ]
    played = pd.concat(each.assign(profiles=name) for each, name in zip(rows, results, strict=True))
    effect = views.profile_effect(played, "SFT", "RL", "result_final")
    assert effect["difference"].tolist() == pytest.approx([0.1, 0.4, 0.4, 0.0, 0.1, 0.3])
    assert set(effect["n_tasks"]) == {2} and "p" not in effect
    worth = views.worth_of_profiles(played, "result_final").set_index("comparison")["difference"]
    expected = {("SFT", FOREIGN): 0.1, ("SFT", NONE): 0.3, ("RL", FOREIGN): 0.4, ("RL", NONE): 0.5}
    expected = {f"{method}: {OWN} - {other}": value for (method, other), value in expected.items()}
    assert worth.to_dict() == pytest.approx(expected)


def test_the_return_stands_beside_accuracy_row_by_row_uncut():
    values = {("SFT", "u", "a"): 0.5, ("SFT", "v", "b"): 0.5, ("RL", "u", "a"): 0.75, ("RL", "v", "b"): 0.25}
    played = frame(values, **{"return": [-2.0, 0.0, 2.0, np.nan]})
    pairs = {"RL - SFT": ("RL", "SFT"), "SFT - RL": ("SFT", "RL")}
    table, shown = views.with_return(partial(trained_differences, played, pairs), format_differences)
    assert table["difference"].tolist() == [0, 0] and table["n_tasks"].tolist() == [2, 2]
    assert table["return"].tolist() == [4, -4] and table["return_low"].isna().all()
    assert shown["return"].tolist() == ["4.000", "-4.000"] and not {"low", "return_low"} & {*shown}
    assert (
        views.tell_difference(table, comparison="SFT - RL") == "result accuracy 0.000 ±3.177, return -4.000"
    )
    seeds = pd.concat([played.assign(seed=0), played.assign(seed=1)])
    over, _ = views.with_return(lambda metric: by_seed(means_by_seed(seeds, metric)), format_seeds)
    rows = over[["method", "mean", "return", "return_high"]].to_numpy().tolist()
    assert rows == [["SFT", 0.5, -1.0, -1.0], ["RL", 0.5, 2.0, 2.0]]


def test_our_rows_stand_below_the_papers_for_what_was_played():
    smoke = load("05_orion_sft")
    results = {"SFT": 0.5, "GRPO": 1.0, "PPO": 1.0, "new": 0.0}
    played = frame({(method, "u", "a"): result for method, result in results.items()}, tokens=900.0, usd=0.0)
    shown = ["SFT", "GRPO", "new"]  # of the last the paper has no row
    table = views.orion_rows(played, "Table 1", shown, smoke)
    printed = [views.PRINTED["Table 1"][name] for name in ("SFT", "GRPO")]
    assert list(table["row"]) == [*printed, *(f"{smoke.base.backbone} ({method})" for method in shown)]
    assert table["source"].tolist() == ["Orion, Table 1"] * 2 + ["here"] * 3
    assert table["data"].tolist()[2:] == ["embedded world"] * 3
    assert table["search", "result accuracy"].tolist() == [55.5, 62.5, 50, 100, 0]
    assert not {"recommend", "review", "overall"} & set(table.columns.get_level_values(0))


def test_what_a_training_began_with_stands_beside_what_it_gained_and_the_noise_of_seeds():
    rows = [("SFT", 0, 0.5), ("SFT", 1, 0.7), ("GRPO", 0, 0.8), ("GRPO", 1, 0.6)]
    means = pd.DataFrame(rows, columns=["method", "seed", "mean"]).assign(type="search")
    steps = [(f"GRPO, seed {seed}", step, 0.1 * step, seed, 0.0) for seed in (1, 0) for step in range(4)]
    curves = pd.DataFrame(steps, columns=["run", "step", "entropy", "asks", "reward_std"])
    table = views.starts_and_gains(means, curves, "SFT", steps=2).set_index("run")
    assert list(table.index) == ["GRPO, seed 1", "GRPO, seed 0"] and list(table["questions"]) == [1, 0]
    assert table.loc["GRPO, seed 0", "entropy"] == pytest.approx(0.15)  # step 0 is before the first
    assert table["SFT: search"].tolist() == [0.7, 0.5]
    assert table["gain: search"].tolist() == pytest.approx([-0.1, 0.3])
    assert views.of_one_seed({"search": 0.14, "overall": 0.0512}).endswith("search 0.14, overall 0.051.")
    assert views.of_one_seed(None).endswith("not measured at this preset.")


def test_figures_have_a_panel_a_number_that_the_log_has_and_levels_beside():
    rows = pd.DataFrame({"run": "PPO", "step": range(4), "reward": [0.0, 1.0, 2.0, 4.0], "kl": 0.0})
    rows = rows.assign(eval_result_final=[0.5, *[np.nan] * 3])
    scaling = pd.DataFrame({"type": "search", "trajectories": [100, 400], "mean": [0.3, 0.5]})
    with matplotlib.rc_context():
        curves = plot_curves(rows, window=2)
        points = plot_scaling(scaling.assign(low=0.1, high=0.6), {"teacher": 0.7}).axes[0]
    plt.close("all")
    panels = {ax.get_title(): ax for ax in curves.axes if ax.get_visible()}
    assert set(panels) == {"reward of an episode", "result accuracy, validation"}
    thin, thick = (line.get_ydata().tolist() for line in panels["reward of an episode"].lines[:2])
    assert thin == [0, 1, 2, 4] and thick[1:] == [0.5, 1.5, 3]
    assert points.containers[0][0].get_ydata().tolist() == [0.3, 0.5]
    assert [text.get_text() for text in points.texts] == ["teacher"]


def test_what_is_learned_from_is_coloured_and_a_card_is_text(tokenizer, tmp_path):
    """That neither runs what it is told: ``notebook/test_hostile_texts.py``."""
    page = views.show_tokens(tokenizer, Example([5, 6, 7], [0, 0, 1])).html
    assert (page.count("#ececec"), page.count("#9fd3f5")) == (1 + 2, 1 + 1)  # beside the legend's
    assert page.index("given: 2") and "learned from: 1" in page and "<style" not in page
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n\n| a | <b> |\n")
    page = views.show_card(tmp_path).html
    assert "# A model" in page and "<h1" not in page and "&lt;b&gt;" in page and "license" not in page
