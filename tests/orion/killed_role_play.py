"""A role-play to be killed."""

import os
import time

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.orion.reward import Success
from pwagents.orion.role_play import play_roles
from pwagents.profiles.catalogue import Catalogue

from .world import SPLIT, make_setting, make_teacher


def play(store, file_of_calls):
    """``file_of_calls`` gets a line an episode."""
    benchmark = make_world(WorldConfig(n_users=12, n_products=400), seed=3).benchmark
    catalogue = Catalogue(benchmark.products)
    setting = make_setting(benchmark, catalogue)
    calls = os.open(file_of_calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(task):
        os.write(calls, f"{task.task_id}\n".encode())
        time.sleep(0.01)
        return setting.start(task)

    play_roles(
        benchmark,
        benchmark.tasks[SPLIT],
        start,
        lambda number: make_teacher(setting, catalogue, seed=number),
        store,
        n=30,
        success=Success(review_success=0.15),
        params={},
        workers=2,
    )
