"""Profiles judged by the truth of the synthetic world."""

from pwagents.data.synthetic import make_world
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.results.profiles import judge_retrieval
from pwagents.settings import WorldSettings


def test_the_right_interest_is_found_mostly_and_never_where_it_is_unknown(embedder):
    world = make_world(WorldSettings(n_users=30, n_products=400, history=(10, 60)), seed=0)
    benchmark, tasks = world.benchmark, world.benchmark.tasks["test"]
    histories = {task.user_id: benchmark.history(task, "test") for task in tasks}
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    profiles = profile_users(histories, benchmark.products, embedder, profiler, 0)
    table = judge_retrieval(world.truth, profiles, histories, tasks, embedder).set_index("behaviors")
    assert table["tasks"].sum() == sum(task.type != "review" for task in tasks)
    short, long = table.loc[["up to 15"]], table.drop(index="up to 15")
    assert short["nearest"].isna().all() and (short["clusters"] == 0).all()
    assert long["nearest"].min() > 0.7 and (long["holds"] <= long["known"]).all()
    assert table[["precision", "recall"]].stack().between(0, 1).all()
