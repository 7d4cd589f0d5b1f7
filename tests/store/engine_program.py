"""What test_engine.py runs with a Python that has Ray and Dask: the same work here and on a cluster of
two machines, of which one is lost while episodes are played. Prints JSON.

    python -m tests.store.engine_program ray|dask FOLDER
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from pwagents import engine
from pwagents.data.synthetic import make_world
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory
from pwagents.settings import WorldSettings
from pwagents.store import episodes

from ..persona2web import worlds

N_TASKS = 48
FACTS = {"code": ["shop.search"]}


@contextmanager
def ray_cluster():
    """Two machines; ``lose`` takes one of them away, as if its power had failed. (What is left has two cores:
    for one, joblib works where it is.)"""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield lambda notes: cluster.remove_node(second, allow_graceful=False)
    ray.shutdown()
    cluster.shutdown()


@contextmanager
def dask_cluster():
    """Two workers; ``lose`` kills the one that noted an episode last."""
    import dask
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
        dask.config.set(scheduler_address=cluster.scheduler_address)  # as DASK_SCHEDULER_ADDRESS

        def lose(notes):
            os.kill(int(notes.read_text().split()[-1]), signal.SIGKILL)

        yield lose


def solve(task, notes):
    with open(notes, "a") as file:
        file.write(f"{task.task_id} {os.getpid()}\n")
    time.sleep(0.05)
    step = Step(action=Action(name="respond"), observation=Observation(text=task.task_id))
    return Trajectory(task_id=task.task_id, user_id=task.user_id, type="search", target="B1", steps=(step,))


def remember(task, memory, notes):
    return solve(task, notes), {"seen": [*memory.get("seen", []), task.task_id]}


def make_tasks():
    common = {"type": "search", "instruction": "a coat", "target": "B1", "review": Review(rating=5)}
    return [Task(task_id=f"t{i}", user_id=f"u{i % 12}", timestamp=1 + i, **common) for i in range(N_TASKS)]


def lose_one(lose, notes):
    """One machine is lost once a third of the episodes have begun."""

    def wait_and_lose():
        while not notes.exists() or len(notes.read_text().splitlines()) < N_TASKS // 3:
            time.sleep(0.01)
        lose(notes)

    threading.Thread(target=wait_and_lose, daemon=True).start()


def play(folder, notes):
    """Records of tasks one by one, and of users' tasks in the order of time."""
    solve_noting, tasks = partial(solve, notes=notes), make_tasks()
    alone = episodes(folder / "alone.jsonl", tasks, solve_noting, FACTS, method="m")
    chained = partial(remember, notes=folder / "chained.txt")
    return alone, episodes(folder / "chained.jsonl", tasks, chained, FACTS, method="m", memory={})


def profile():
    """Profiles of a small shop's users, as JSON."""
    benchmark = make_world(WorldSettings(n_users=8, n_products=120), seed=0).benchmark
    histories = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    words = SimpleNamespace(encode=lambda texts, **_: worlds.Words().encode(texts))
    made = profile_users(histories, benchmark.products, words, profiler, seed=0)
    return [[each.model_dump_json() for each in (own.whole, *own.micro)] for own in made.values()]


def work(folder):
    folder.mkdir(parents=True)
    alone, chained = play(folder, folder / "alone.txt")
    records = [record.model_copy(update={"seconds": 0}).model_dump_json() for record in (*alone, *chained)]
    return records, profile()


def main(name, folder):
    here = work(folder / "local")
    with {"ray": ray_cluster, "dask": dask_cluster}[name]() as lose:
        engine.use(name)
        lose_one(lose, folder / name / "alone.txt")
        there = work(folder / name)
        pids = {line.split()[1] for line in (folder / name / "alone.txt").read_text().splitlines()}
    same = {"records": here[0] == there[0], "profiles": here[1] == there[1]}
    print(json.dumps({**same, "processes": len(pids)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
