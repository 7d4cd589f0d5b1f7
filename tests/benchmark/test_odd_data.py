"""What notebooks 01 and 03 show of data that lack something: reviews, prices, all users but one."""

from dataclasses import replace

import pytest

from pwagents.benchmark.profile_agreement import profiles_compared
from pwagents.benchmark.references import product_references, review_references
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.web.search import build_search_engine


def without_texts(thing):
    return thing.model_copy(update={"review": thing.review.model_copy(update={"title": "", "text": ""})})


def bare(benchmark):
    """The benchmark without reviews' texts and without prices."""
    return replace(
        benchmark,
        products={a: p.model_copy(update={"price": None}) for a, p in benchmark.products.items()},
        behaviors={u: tuple(map(without_texts, past)) for u, past in benchmark.behaviors.items()},
        tasks={
            split: tuple(without_texts(task) for task in tasks if task.type != "review")
            for split, tasks in benchmark.tasks.items()
        },
    )


@pytest.mark.parametrize("n_users", [1, 6])
def test_without_reviews_and_prices_there_are_references_and_profiles(n_users):
    config = WorldConfig(n_users=n_users, n_products=120, history=(10, 15))
    benchmark = bare(make_world(config, seed=0).benchmark)
    tasks, engine = benchmark.tasks["test"], build_search_engine(benchmark.products)
    products = product_references(benchmark, engine, tasks, seed=0)
    assert set(products["task_id"]) == {task.task_id for task in tasks}
    assert review_references(benchmark, Embedder(), tasks, seed=0).empty
    histories = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    embedder, profiler = (
        Embedder(max_tokens=48, batch_size=64),
        OfflineProfiler(Catalogue(benchmark.products)),
    )
    profiles = profile_users(histories, benchmark.products, embedder, profiler, seed=0)
    assert not any(own.clusters for own in profiles.values())
    told = profiles_compared(histories, profiles, benchmark.products, truth=None)
    assert all(texts for made in told.values() for texts in made.values())
