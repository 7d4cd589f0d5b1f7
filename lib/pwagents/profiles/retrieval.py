"""Context-aware retrieval: what of a user's profiles an instruction calls for (Orion, section 4.1)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pwagents.embedding import Embedder
from pwagents.profiles.types import ContextualProfile, ProfileLine, UserProfiles

_TEMPERATURE = 0.05  # of the weights of several clusters; low, because cosines lie close together


class Near(NamedTuple):
    """A cluster found for an instruction: its position among the user's clusters, and its weight."""

    cluster: int
    weight: float


def contextual_profile(
    instruction: str, profiles: UserProfiles, embedder: Embedder, m: int = 1
) -> ContextualProfile:
    """P_ctx,0: the user's global negatives and the positives of the nearest cluster's micro-profile.

    What is to be avoided everywhere is not wanted here. A user without clusters falls back to the global
    profile. With ``m`` above 1, which goes beyond the paper, the ``m`` nearest clusters contribute; a line
    counts the weights of all clusters that have it, and the heaviest stand first.

    Args:
        embedder: the one that the clusters' centres were made with.
    """
    return contextual_profiles([profiles], nearest_clusters([instruction], [profiles], embedder, m))[0]


def contextual_profiles(
    profiles: Sequence[UserProfiles], near: Sequence[Sequence[Near]]
) -> list[ContextualProfile]:
    """:func:`contextual_profile` for many instructions: of each user and the clusters near the instruction.

    Args:
        near: from :func:`nearest_clusters` of the same users.
    """
    return [_compose(user, found) for user, found in zip(profiles, near, strict=True)]


def nearest_clusters(
    instructions: Sequence[str], profiles: Sequence[UserProfiles], embedder: Embedder, m: int = 1
) -> list[list[Near]]:
    """The ``m`` nearest clusters of each instruction's user, best first (ties: the earlier one); weights sum
    to 1. Empty for users without clusters.

    Exact, by faiss: a user has a few dozen clusters at most, where approximate search gains nothing.
    """
    if m < 1:
        raise ValueError(f"m is {m}; expected at least one cluster")
    asking = [i for i, user in enumerate(profiles) if user.clusters]
    vectors = embedder.encode([instructions[i] for i in asking])
    found: list[list[Near]] = [[] for _ in profiles]
    by_user: dict[int, list[int]] = {}  # rows of ``vectors`` whose user is the same
    for row, i in enumerate(asking):
        by_user.setdefault(id(profiles[i]), []).append(row)
    for rows in by_user.values():
        user = profiles[asking[rows[0]]]
        for row, near in zip(rows, _search(user, vectors[rows], m), strict=True):
            found[asking[row]] = near
    return found


def _search(user: UserProfiles, vectors: np.ndarray, m: int) -> list[list[Near]]:
    """The ``m`` nearest clusters of one user for each of the vectors (n, 384)."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.stack([cluster.centre for cluster in user.clusters]))
    similarities, positions = index.search(vectors, len(user.clusters))
    found = []
    for cosines, clusters in zip(similarities, positions, strict=True):
        # Rounded, so that the last bits of an embedding cannot decide a tie: the earlier cluster comes first.
        ranked = sorted(zip(np.round(-cosines, 6).tolist(), clusters.tolist(), strict=True))[:m]
        weights = np.exp([(ranked[0][0] - distance) / _TEMPERATURE for distance, _ in ranked])
        weights /= weights.sum()
        found.append([Near(cluster, float(w)) for (_, cluster), w in zip(ranked, weights, strict=True)])
    return found


def _compose(user: UserProfiles, near: Sequence[Near]) -> ContextualProfile:
    """The wishes of the clusters found, or of the global profile where there are none; then its negatives."""
    weights: dict[str, float] = {}
    for cluster, weight in near:
        for text in user.micro[cluster].recommendations:
            weights[text] = weights.get(text, 0.0) + weight
    wanted = sorted(weights, key=lambda text: -round(weights[text], 9)) if near else user.whole.positive
    unwanted = dict.fromkeys(user.whole.negative)
    lines = [
        *(ProfileLine.of(text, True, "history") for text in dict.fromkeys(wanted) if text not in unwanted),
        *(ProfileLine.of(text, False, "history") for text in unwanted),
    ]
    return ContextualProfile(lines=tuple(lines))
