"""What a benchmark holds: its statistics below the paper's, and one user to be read."""

import matplotlib
import pandas as pd
import pytest

from pwagents.benchmark import describe

matplotlib.use("Agg")


def test_statistics_count_what_an_agent_may_see(world):
    benchmark = world.benchmark
    table = describe.benchmark_statistics(benchmark)
    lengths = [len(benchmark.train_period(user)) for user in {t.user_id for t in benchmark.tasks["test"]}]
    assert table.loc["Avg. behavior length", "test"] == pytest.approx(sum(lengths) / len(lengths))
    assert table.loc["Avg. behavior length", "train"] < table.loc["Avg. behavior length", "test"]
    assert table.loc["Instructions", "test"] == len(benchmark.tasks["test"])
    instructions = describe.instruction_statistics(benchmark).set_index("task")
    assert instructions["instructions"].sum() == len(list(benchmark.all_tasks()))
    assert instructions["mean_tokens"].idxmin() == "recommend"


def test_history_table_ends_with_the_latest_behaviour(world):
    user = next(iter(world.benchmark.behaviors))
    table = describe.history_table(world.benchmark, user, 3)
    assert list(table["review"]) == [b.review.text for b in world.benchmark.train_period(user)[-3:]]


def test_the_last_year_holds_purchases_and_the_tasks_about_them(world):
    user = next(iter(world.benchmark.behaviors))
    year = describe.last_year(world.benchmark, user)
    own = [task for task in world.benchmark.tasks["test"] if task.user_id == user]
    assert (year["event"] != "bought").sum() == len(own) and set(year["event"]) > {"bought"}
    assert year["date"].is_monotonic_increasing and (year["date"].iloc[-1] - year["date"].iloc[0]).days <= 365
    asked = year[year["event"] != "bought"]
    assert set(asked["product"]) <= set(year.loc[year["event"] == "bought", "product"])
    (ax,) = describe.plot_year(year).axes
    assert len(ax.collections) == 4 and len(ax.get_yticks()) == year["section"].nunique()


def test_statistics_stand_below_the_papers_in_rows_of_their_own(world):
    table = describe.statistics_below_paper(world.benchmark, "embedded world")
    paper, here = table.loc["PersonalWAB, Table 2"], table.loc["here, embedded world"]
    assert paper["Products"].tolist() == [8236, 8236] and len(table) == 4
    assert here.loc["test", "Users"] == len({t.user_id for t in world.benchmark.tasks["test"]})
    assert here["Avg. profile tokens"].isna().all() and paper["Avg. profile tokens"].notna().all()
    assert paper["Products that are a target"].isna().all()


def test_bars_of_instructions_hold_their_number():
    statistics = pd.DataFrame(
        [("search", 1200, 18.0), ("review", 90, 20.0)], columns=["task", "instructions", "mean_tokens"]
    )
    ax = describe.plot_instructions(statistics).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [18, 20]
    assert [text.get_text() for text in ax.texts] == ["n = 1,200", "n = 90"]


def test_the_benchmark_at_hand_is_a_row_of_table_1():
    table = describe.comparison_table("amazon")
    assert list(table.index[-3:]) == ["PersonalWAB", "Persona2Web", "here (amazon)"]
    assert table.notna().all(axis=None)
    assert (table["source of the row"] == "PersonalWAB, Table 1").sum() == len(table) - 2


def test_tasks_of_a_user_tell_what_instructions_leave_out_where_that_is_known(world):
    benchmark, truth = world.benchmark, world.truth
    user = benchmark.tasks["test"][0].user_id
    known, unknown = (describe.task_table(benchmark, user, 4, given) for given in (truth, None))
    assert list(unknown) == ["task", "instruction", "really bought"]
    assert known["instruction"].tolist() == unknown["instruction"].tolist() and len(known) <= 4
    assert (known["kind"].isna() == (known["task"] == "review")).all()
