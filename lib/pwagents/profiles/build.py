"""All profiles of all users."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from pwagents import engine
from pwagents.embedding import Embedder
from pwagents.profiles.clusters import adaptive_clusters, embed_items
from pwagents.profiles.types import Cluster, GlobalProfile, MicroProfile, UserProfiles
from pwagents.schema import Behavior, Product
from pwagents.seeds import rng

ALPHA = 15  # behaviours up to which a user gets no clusters (Orion, 5.1)
L_C = 6  # behaviours that a micro-profile is made from, at most (Orion, 5.1)

History = tuple[Behavior, ...]  # oldest first


class Profiler(Protocol):
    """Makes profiles: :class:`pwagents.profiles.offline.OfflineProfiler` or
    :class:`pwagents.profiles.llm.LlmProfiler`."""

    def whole(self, histories: Sequence[History]) -> list[GlobalProfile]:
        """The global profile of each history."""

    def micro(self, parts: Sequence[tuple[str, History]]) -> list[MicroProfile]:
        """The micro-profile of each part: the name of a cluster, and behaviours of it."""


def profile_users(
    histories: Mapping[str, History],
    products: Mapping[str, Product],
    embedder: Embedder,
    profiler: Profiler,
    seed: int,
    alpha: int = ALPHA,
    l_c: int = L_C,
    cluster: Callable[..., tuple[Cluster, ...]] = adaptive_clusters,
) -> dict[str, UserProfiles]:
    """The global profile, interest clusters and micro-profiles of each user (Orion, section 4.1).

    The profiler is asked for the profiles of all users at once, so that one with a language model can have
    many calls under way; on a cluster (:mod:`pwagents.engine`), for those of one user after another. Items
    are embedded here, in batches that the engine does not change.

    Args:
        histories: user_id -> what the protocol lets be known, oldest first. Nothing else of a user is read.
        products: the catalogue.
        embedder: of item texts, and later of instructions.
        seed: chooses the behaviours that micro-profiles are made from.
        alpha: no clusters for histories of at most so many behaviours.
        l_c: a micro-profile is made from at most so many behaviours of its cluster, drawn at random.
        cluster: the bucketing; another of :mod:`pwagents.profiles.clusters` for comparison.

    Raises:
        ValueError: ``l_c`` is below 1.
    """
    if l_c < 1:
        raise ValueError(f"l_c is {l_c}; a micro-profile needs at least one behaviour")
    long = [history for history in histories.values() if len(history) > alpha]
    vectors = embed_items(long, products, embedder, show_progress=True)
    fixed = {"products": products, "profiler": profiler, "seed": seed, "alpha": alpha, "l_c": l_c}
    build = partial(_build, **fixed, cluster=cluster)
    at_work = engine.remote(build)
    if at_work is None:
        return build((histories, vectors))
    alone = []
    for user, history in histories.items():
        products_of = {b.parent_asin for b in history} & vectors.keys()
        alone.append(({user: history}, {asin: vectors[asin] for asin in sorted(products_of)}))
    return {user: own for built in at_work(alone) for profiles in built for user, own in profiles.items()}


def _build(
    users: tuple[Mapping[str, History], Mapping[str, np.ndarray]],
    products: Mapping[str, Product],
    profiler: Profiler,
    seed: int,
    alpha: int,
    l_c: int,
    cluster: Callable[..., tuple[Cluster, ...]],
) -> dict[str, UserProfiles]:
    """The profiles of some users.

    Args:
        users: their histories, and the vectors of the products in those of more than ``alpha`` behaviours.
    """
    histories, vectors = users
    clusters = {
        user: cluster(history, products, vectors) if len(history) > alpha else ()
        for user, history in histories.items()
    }
    parts = [
        (found.name, _sample(user, found, histories[user], seed, l_c))
        for user, own in clusters.items()
        for found in own
    ]
    micro = iter(profiler.micro(parts))
    whole = profiler.whole(list(histories.values()))
    return {
        user: UserProfiles(user, profile, own, tuple(next(micro) for _ in own))
        for (user, own), profile in zip(clusters.items(), whole, strict=True)
    }


def _sample(user: str, cluster: Cluster, history: History, seed: int, l_c: int) -> History:
    """At most ``l_c`` behaviours of a cluster, oldest first."""
    order = rng(seed, "micro", user, cluster.name).permutation(len(cluster.members))
    chosen = sorted(cluster.members[i] for i in order[:l_c])
    return tuple(history[i] for i in chosen)
