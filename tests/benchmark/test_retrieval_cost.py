"""What a retrieval costs."""

from dataclasses import replace

from pwagents.benchmark.retrieval_cost import measure_retrieval
from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler


def test_a_contextual_profile_is_shorter_than_a_memory(world):
    user = next(user for user, own in world.benchmark.behaviors.items() if len(own) > 25)
    tasks = [task for task in world.benchmark.tasks["test"] if task.user_id == user]
    # Of this user alone: the memory embeds all behaviours of the benchmark.
    behaviors = {user: world.benchmark.behaviors[user]}
    benchmark = replace(world.benchmark, behaviors=behaviors, tasks={"train": (), "test": tuple(tasks)})
    embedder = Embedder(max_tokens=48, batch_size=32)
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    profiles = profile_users({user: benchmark.train_period(user)}, benchmark.products, embedder, profiler, 0)
    cost = measure_retrieval(benchmark, profiles, tasks, embedder).set_index("retrieval")
    assert 5 * cost.loc["contextual profile", "tokens"] < cost.loc["PUMA memory", "tokens"]
    assert (cost["median (ms)"] <= cost["99th percentile (ms)"]).all()
