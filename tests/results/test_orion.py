"""What notebooks 05 to 08 show, by hand: tables and curves."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from pwagents.orion.variations import FOREIGN, NONE, OWN
from pwagents.results.orion import cause_of, orion_rows, tell_difference, with_return, worth_of_profiles
from pwagents.results.seeds import by_seed, format_seeds, means_by_seed
from pwagents.results.statistics import trained_differences
from pwagents.results.tables import format_differences
from pwagents.settings import load_settings
from pwagents.users.rules import RuleUser

from ..orion.small_study import call, step


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
    table = worth_of_profiles(played, "result_final").set_index("comparison")
    assert "p" not in table
    expected = {("SFT", FOREIGN): 0.1, ("SFT", NONE): 0.3, ("RL", FOREIGN): 0.4, ("RL", NONE): 0.5}
    expected = {f"{method}: {OWN} - {other}": value for (method, other), value in expected.items()}
    assert table["difference"].to_dict() == pytest.approx(expected)


def test_the_return_stands_beside_accuracy_row_by_row_uncut():
    values = {("SFT", "u", "a"): 0.5, ("SFT", "v", "b"): 0.5, ("RL", "u", "a"): 0.75, ("RL", "v", "b"): 0.25}
    played = frame(values, **{"return": [-2.0, 0.0, 2.0, np.nan]})
    pairs = {"RL - SFT": ("RL", "SFT"), "SFT - RL": ("SFT", "RL")}
    table, shown = with_return(partial(trained_differences, played, pairs), format_differences)
    assert table["difference"].tolist() == [0, 0] and table["n_tasks"].tolist() == [2, 2]
    assert table["return"].tolist() == [4, -4] and table["return_low"].isna().all()
    assert shown["return"].tolist() == ["4.000", "-4.000"] and not {"low", "return_low"} & {*shown}
    told = tell_difference(table, comparison="SFT - RL")
    assert told == "result accuracy 0.000 ±3.177, return -4.000"
    seeds = pd.concat([played.assign(seed=0), played.assign(seed=1)])
    over, _ = with_return(lambda metric: by_seed(means_by_seed(seeds, metric)), format_seeds)
    rows = over[["method", "mean", "return", "return_high"]].to_numpy().tolist()
    assert rows == [["SFT", 0.5, -1.0, -1.0], ["RL", 0.5, 2.0, 2.0]]


def test_our_rows_stand_below_the_papers_for_what_was_played():
    smoke = load_settings("05_orion_sft", {"preset": "smoke"})
    results = {"SFT": 0.5, "GRPO": 1.0, "PPO": 1.0, "new": 0.0}
    played = frame({(method, "u", "a"): result for method, result in results.items()}, tokens=900.0, usd=0.0)
    shown = ["SFT", "GRPO", "new"]  # of the last the paper has no row
    table = orion_rows(played, "Table 1", shown, smoke)
    printed = ["Qwen2.5-7B-Instruct (SFT)", "Orion (Ours)"]
    assert list(table["row"]) == [*printed, *(f"{smoke.base.backbone} ({method})" for method in shown)]
    assert table["source"].tolist() == ["Orion, Table 1"] * 2 + ["here"] * 3
    assert table["data"].tolist()[2:] == ["embedded world"] * 3
    assert table["search", "result accuracy"].tolist() == [55.5, 62.5, 50, 100, 0]
    assert not {"recommend", "review", "overall"} & set(table.columns.get_level_values(0))


def test_who_failed_is_found_by_asking_what_would_have_helped(study):
    cooperative = RuleUser(study.benchmark.products, study.benchmark.profiles)

    class Engine:
        def __init__(self, *found):
            self.found = found

        def search(self, query, k=10):
            return [(asin, 1.0) for asin in self.found]

    question = "What kind of thing is it?"
    task = next(t for t in study.test_tasks if t.type == "search" and cooperative.react(t, (), question)[1])
    told = (cooperative(task, (), question).text, "No idea.")
    helpful, silent = (step(call("ask", question), answer) for answer in told)
    searched, right = step(call("search", "something")), Engine(task.target)
    assert cause_of(task, (helpful, searched), cooperative, Engine()) == "tool"
    assert cause_of(task, (helpful, searched), cooperative, right) == "agent"
    assert cause_of(task, (silent, searched), cooperative, right) == "simulator"
    assert cause_of(task, (searched,), cooperative, right) == "agent"
