"""Profiles judged by the truth of the embedded world."""

import pytest

from pwagents.benchmark.profile_quality import by_length, profile_quality
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(n_users=30, n_products=400, history=(10, 60)), seed=0)


@pytest.fixture(scope="module")
def judge(world):
    """``judge(**options)``: the quality of the offline profiles of all test tasks."""
    benchmark = world.benchmark
    tasks = benchmark.tasks["test"]
    histories = {task.user_id: benchmark.history(task, "test") for task in tasks}
    embedder = Embedder(max_tokens=48, batch_size=32)
    profiler = OfflineProfiler(Catalogue(benchmark.products))

    def run(m=1, **options):
        profiles = profile_users(histories, benchmark.products, embedder, profiler, 0, **options)
        return profile_quality(world, profiles, histories, tasks, embedder, m)

    return run


def test_rows_are_the_tasks_with_a_truth(world, judge):
    quality = judge()
    assert set(quality["task"]) == {t.task_id for t in world.benchmark.tasks["test"] if t.type != "review"}
    assert quality.loc[quality["behaviors"] <= 15, "nearest"].isna().all()
    assert quality.loc[quality["behaviors"] > 15, "nearest"].isin([0, 1]).all()
    assert (quality["right"] <= quality["lines"]).all() and (quality["found"] <= quality["preferences"]).all()


def test_the_right_interest_is_found_mostly_and_never_where_it_is_unknown(judge):
    quality = judge()
    long = quality[quality["clusters"] > 0]
    assert long["nearest"].mean() > 0.7
    assert not long.loc[~long["known"], "holds"].any()


def test_micro_profiles_say_more_that_is_true_than_the_global_profile(judge):
    micro, whole = judge(), judge(alpha=10**6)
    long = micro["behaviors"] > 15
    for truth, base in (("right", "lines"), ("found", "preferences")):
        share = micro.loc[long, truth].sum() / micro.loc[long, base].sum()
        assert share > whole.loc[long, truth].sum() / whole.loc[long, base].sum()


def test_more_clusters_find_more_and_are_less_precise(judge):
    one, three = judge(), judge(m=3)
    assert three["found"].sum() > one["found"].sum()
    assert three["right"].sum() / three["lines"].sum() < one["right"].sum() / one["lines"].sum()


def test_table_by_history_length(judge):
    quality = judge()
    table = by_length(quality)
    assert table["tasks"].sum() == len(quality)
    assert table["precision"].between(0, 1).all() and table["nearest"].iloc[-1] <= 1
