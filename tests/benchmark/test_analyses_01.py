"""Notebook 01: statistics below the paper's, one user to be read, and what each kind of knowledge pays."""

import pytest

from pwagents.schema import Behavior, Benchmark, Product, Review, Task
from pwagents_old.benchmark import analyses_01 as analyses


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


def test_how_real_counts_what_was_bought_before_the_first_test_task():
    """A asks for what they bought; B for what nobody had bought, and for what A alone had."""
    review = Review(rating=5, text="so three words")
    bought = {"A": [(1, "p1"), (2, "p2"), (10, "p1")], "B": [(3, "p2"), (11, "p3"), (12, "p1")]}
    behaviors = {
        user: tuple(Behavior(parent_asin=asin, timestamp=time, review=review) for time, asin in own)
        for user, own in bought.items()
    }
    tasks = tuple(
        Task(task_id=f"{user}{time}", user_id=user, type="recommend", timestamp=time, instruction="something",
             target=asin, review=review)
        for user, time, asin in (("A", 10, "p1"), ("B", 11, "p3"), ("B", 12, "p1"))
    )  # fmt: skip
    products = {asin: Product(parent_asin=asin, title=asin, category="c") for asin in ("p1", "p2", "p3")}
    benchmark = Benchmark("small", products, behaviors, {"train": (), "test": tasks})
    values = analyses.realism({"here": benchmark}).set_index("measure")["here"]
    assert values.tolist() == pytest.approx([2, 3, 3, 1 / 3, 2 / 3, 1 / 2, 3])


def test_negative_controls_gain_exactly_nothing(config):
    gains = analyses.knowledge_gains(config, seed=0).set_index(["world", "knowledge"])["gain"]
    assert (gains["as configured"] > 0.05).all()
    assert gains["one interest", "knowing the right interest"] == 0
    assert gains["no drift", "updating the profile"] == 0
    assert gains["complete instructions", "asking the user"] == 0
    assert gains["one interest", "asking the user"] > 0.05 and gains["no drift", "asking the user"] > 0.05
