"""Notebook 01: statistics below the paper's, one user to be read, and what each kind of knowledge pays."""

import pytest

from pwagents.benchmark import analyses_01 as analyses


def test_statistics_count_what_an_agent_may_see_below_the_papers_in_rows_of_their_own(world):
    benchmark = world.benchmark
    table = analyses.statistics_below_paper(benchmark, "embedded world")
    paper, here = table.loc["PersonalWAB, Table 2"], table.loc["here, embedded world"]
    assert paper["Products"].tolist() == [8236, 8236] and len(table) == 4
    assert here["Avg. profile tokens"].isna().all() and paper["Avg. profile tokens"].notna().all()
    assert paper["Products that are a target"].isna().all()
    users = {task.user_id for task in benchmark.tasks["test"]}
    lengths = [len(benchmark.train_period(user)) for user in users]
    assert here["Avg. behavior length"]["test"] == pytest.approx(sum(lengths) / len(lengths))
    assert here["Avg. behavior length"]["train"] < here["Avg. behavior length"]["test"]
    counted = here.loc["test", ["Users", "Instructions"]].tolist()
    assert counted == [len(users), len(benchmark.tasks["test"])]
    instructions = analyses.instruction_statistics(benchmark).set_index("task")
    assert instructions["instructions"].sum() == len(list(benchmark.all_tasks()))
    assert instructions["mean_tokens"].idxmin() == "recommend"


def test_the_last_year_holds_purchases_and_the_tasks_about_them(world):
    user = next(iter(world.benchmark.behaviors))
    year = analyses.last_year(world.benchmark, user)
    own = [task for task in world.benchmark.tasks["test"] if task.user_id == user]
    assert (year["event"] != "bought").sum() == len(own) and set(year["event"]) > {"bought"}
    assert year["date"].is_monotonic_increasing and (year["date"].iloc[-1] - year["date"].iloc[0]).days <= 365
    asked = year[year["event"] != "bought"]
    assert set(asked["product"]) <= set(year.loc[year["event"] == "bought", "product"])
    (ax,) = analyses.plot_year(year).axes
    assert len(ax.collections[0].get_offsets()) == len(year)
    assert len(ax.get_yticks()) == year["section"].nunique()


@pytest.fixture(scope="module")
def ladder(world, engine):
    return analyses.search_ladder(world, engine, world.benchmark.tasks["test"], seed=0)


def test_each_rung_of_the_ladder_stands_higher(ladder):
    means = ladder.groupby("method")["result_accuracy"].mean()
    assert set(means.index) == set(analyses.RUNGS)
    assert max(means["random"], means["popularity"]) < 0.1 < 0.95 < means["oracle query"]
    assert means["instruction alone"] + 0.1 < means["+ right interest, up to date"]
    assert means["+ averaged profile"] + 0.1 < means["+ right interest, up to date"]
    assert means["+ right interest, up to date"] < means["+ the user's answers"]


def test_negative_controls_gain_exactly_nothing(config):
    gains = analyses.knowledge_gains(config, seed=0).set_index(["world", "knowledge"])["gain"]
    assert (gains["as configured"] > 0.05).all()
    assert gains["one interest", "knowing the right interest"] == 0
    assert gains["no drift", "updating the profile"] == 0
    assert gains["complete instructions", "asking the user"] == 0
    assert gains["one interest", "asking the user"] > 0.05 and gains["no drift", "asking the user"] > 0.05
