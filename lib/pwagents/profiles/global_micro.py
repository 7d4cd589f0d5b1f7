"""Global and micro-profiles, from a history to the profile for one instruction (Orion, section 4.1).

The paper's definitions, one function each:

- *interest clusters* C = {c_1, ..., c_N} with centers e_i: :mod:`pwagents.profiles.clusters`;
- *profiles* P_u = (p_global, P_micro), with alpha and l_c: :func:`profile_users`;
- *retrieval* c* = argmax_i sim(e_q, e_i): :func:`nearest_clusters`;
- *contextual profile* P_ctx,0 = concat(rho-_global, rho+_micro): :func:`contextual_profiles`.

How P_ctx,t changes in a conversation is in :mod:`pwagents.profiles.update`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from pwagents import engine
from pwagents.embedding import Embedder
from pwagents.profiles.clusters import History, adaptive_clusters, embed_items
from pwagents.profiles.contextual import ContextualProfile, ProfileLine
from pwagents.profiles.types import GlobalProfile, MicroProfile, UserProfiles
from pwagents.schema import Product
from pwagents.seeds import rng

ALPHA = 15  # a user with at most so many behaviors gets no clusters (Orion, 5.1)
L_C = 6  # behaviors that a micro-profile is made from, at most (Orion, 5.1)
_TEMPERATURE = 0.05  # of the clusters' weights, a softmax; low, because cosines differ little


class Profiler(Protocol):
    """Makes profiles: by statistics (:mod:`pwagents.profiles.offline`) or a model (``profiles.llm``)."""

    def write_global(self, histories: Sequence[History]) -> list[GlobalProfile]:
        """Return p_global of each history (oldest first)."""

    def write_micro(self, samples: Sequence[tuple[str, History]]) -> list[MicroProfile]:
        """Return p_micro of each sample: a cluster's name and behaviors of it, oldest first."""


class NearCluster(NamedTuple):
    """A cluster near an instruction: its position among the user's clusters, and its weight (0 to 1)."""

    cluster: int
    weight: float


def profile_users(
    histories: Mapping[str, History],
    products: Mapping[str, Product],
    embedder: Embedder,
    profiler: Profiler,
    seed: int,
    alpha: int = ALPHA,
    l_c: int = L_C,
) -> dict[str, UserProfiles]:
    """Return P_u of each user_id: global profile, interest clusters and micro-profiles.

    The profiler gets all users at once, so that a language model can have many calls in flight.

    Args:
        histories: user_id -> the behaviors that the protocol reveals, oldest first. Nothing else of a user is
            read.
        seed: chooses the behaviors that micro-profiles are made from.
        alpha, l_c: as :data:`ALPHA` and :data:`L_C`.

    Raises:
        InfrastructureError: the profiler's language model cannot be reached.
    """
    long = {user: history for user, history in histories.items() if len(history) > alpha}
    vectors = embed_items(long.values(), products, embedder)
    clusters = {user: adaptive_clusters(history, products, vectors) for user, history in long.items()}
    samples = []  # of each cluster at most l_c behaviors, oldest first
    for user, own in clusters.items():
        for each in own:
            order = rng(seed, "micro", user, each.name).permutation(len(each.members))
            chosen = sorted(each.members[i] for i in order[:l_c])
            samples.append((each.name, tuple(histories[user][i] for i in chosen)))

    def write(write_all: Callable[[Sequence], list], units: Sequence) -> list:
        # In this process all at once, on a cluster of machines one unit at a time.
        at_work = engine.remote(lambda unit: write_all([unit])[0])
        return [each for part in at_work(units) for each in part] if at_work else write_all(units)

    micro = iter(write(profiler.write_micro, samples))
    whole = write(profiler.write_global, list(histories.values()))
    profiles = {}
    for user, profile in zip(histories, whole, strict=True):
        own = clusters.get(user, ())
        profiles[user] = UserProfiles(profile, own, tuple(next(micro) for _ in own))
    return profiles


def contextual_profile(instruction: str, profiles: UserProfiles, embedder: Embedder) -> ContextualProfile:
    """Return P_ctx,0 for one instruction, from the nearest cluster."""
    return contextual_profiles([profiles], nearest_clusters([instruction], [profiles], embedder))[0]


def nearest_clusters(
    instructions: Sequence[str], profiles: Sequence[UserProfiles], embedder: Embedder, m: int = 1
) -> list[list[NearCluster]]:
    """Return c* = argmax_i sim(e_q, e_i) for each instruction and its user's profiles, or the ``m`` best.

    They come best first (ties: the earlier one) with weights that sum to 1; a user without clusters has none.
    Departure: the search is exact (faiss), not approximate, since a user has a few dozen clusters at most.
    """
    import faiss

    asking = [i for i, user in enumerate(profiles) if user.clusters]
    vectors = embedder.encode([instructions[i] for i in asking])
    near: list[list[NearCluster]] = [[] for _ in profiles]
    for i, vector in zip(asking, vectors, strict=True):
        clusters = profiles[i].clusters
        index = faiss.IndexFlatIP(len(vector))
        index.add(np.stack([cluster.center for cluster in clusters]))
        cosines, places = index.search(vector[None], len(clusters))
        # Rounded, so that the last bits of an embedding cannot decide a tie: the earlier cluster comes first.
        ranked = sorted(zip(np.round(-cosines[0], 6).tolist(), places[0].tolist(), strict=True))[:m]
        weights = np.exp([(ranked[0][0] - distance) / _TEMPERATURE for distance, _ in ranked])
        weights /= weights.sum()
        near[i] = [NearCluster(place, float(w)) for (_, place), w in zip(ranked, weights, strict=True)]
    return near


def contextual_profiles(
    profiles: Sequence[UserProfiles], near: Sequence[Sequence[NearCluster]]
) -> list[ContextualProfile]:
    """Return P_ctx,0 = concat(rho-_global, rho+_micro) for users and the clusters near their instructions.

    Of several clusters, the nearest counts. A line that the user avoids everywhere is not a wish here. For a
    user without clusters the global profile gives the wishes.
    """
    contexts = []
    for user, clusters in zip(profiles, near, strict=True):
        wanted = user.micro[clusters[0].cluster].recommendations if clusters else user.whole.positive
        avoided = dict.fromkeys(user.whole.negative, False)
        texts = {text: True for text in wanted if text not in avoided} | avoided
        lines = [ProfileLine.of(text, is_wanted, "history") for text, is_wanted in texts.items()]
        contexts.append(ContextualProfile(lines=tuple(lines)))
    return contexts
