"""Interest clusters of a history: C = {c_1, ..., c_N} with centers e_i (Orion, section 4.1)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pwagents.embedding import Embedder
from pwagents.schema import Behavior, Product

LEAST = 2  # behaviors that a bucket needs to stay by itself: one purchase is no interest
_DESCRIPTION = 200  # characters

History = Sequence[Behavior]  # oldest first


@dataclass(frozen=True)
class Cluster:
    """An interest cluster (c_i) of one user."""

    name: str  # the category, or the categories, that its behaviors share
    members: tuple[int, ...]  # positions in the user's history, ascending
    center: np.ndarray  # (384,) unit vector (e_i): the mean embedding of its items, normalized


def item_text(product: Product) -> str:
    """Return what represents a product when clusters are compared with instructions.

    Features are left out: they say how a product is made, not what it is for, and with them the nearest
    cluster is the right one less often.
    """
    description = " ".join(product.description)[:_DESCRIPTION]
    return f"{product.title}. {product.category}. {description}".strip()


def embed_items(
    histories: Iterable[History], products: Mapping[str, Product], embedder: Embedder
) -> dict[str, np.ndarray]:
    """Embed all products in some histories: id -> (384,)."""
    asins = sorted({behavior.parent_asin for history in histories for behavior in history})
    vectors = embedder.encode([item_text(products[asin]) for asin in asins], show_progress=True)
    return dict(zip(asins, vectors, strict=True))


def adaptive_clusters(
    history: History, products: Mapping[str, Product], vectors: Mapping[str, np.ndarray], least: int = LEAST
) -> tuple[Cluster, ...]:
    """Cluster by the finest category that pages name, the small buckets merged into their neighbors.

    The paper calls its bucketing adaptive and does not say how. Ours: while a bucket has fewer than ``least``
    behaviors, the smallest one joins the one whose center is nearest (ties: first by name).

    Returns:
        Clusters that share out all behaviors, sorted by name.
    """
    buckets: dict[str, list[int]] = defaultdict(list)
    for position, behavior in enumerate(history):
        buckets[section(products[behavior.parent_asin])].append(position)
    clusters = [_cluster(name, buckets[name], history, vectors) for name in sorted(buckets)]
    # A merged bucket has a new center, so the next smallest is compared with that.
    while len(clusters) > 1:
        smallest = min(clusters, key=lambda cluster: (len(cluster.members), cluster.name))
        if len(smallest.members) >= least:
            break
        others = [cluster for cluster in clusters if cluster is not smallest]
        likeness = {other.name: round(float(other.center @ smallest.center), 6) for other in others}
        nearest = min(others, key=lambda other: (-likeness[other.name], other.name))
        name = " + ".join(sorted([*nearest.name.split(" + "), *smallest.name.split(" + ")]))
        merged = _cluster(name, [*nearest.members, *smallest.members], history, vectors)
        rest = [cluster for cluster in others if cluster is not nearest]
        clusters = sorted([*rest, merged], key=lambda cluster: cluster.name)
    return tuple(clusters)


def section(product: Product) -> str:
    """Return the finest category that a page names: its category, and its department if it has one."""
    department = product.flat_details.get("Department", "").strip().lower()
    return f"{product.category} > {department}" if department else product.category


def _cluster(
    name: str, members: Sequence[int], history: History, vectors: Mapping[str, np.ndarray]
) -> Cluster:
    members = sorted(members)
    mean = np.mean([vectors[history[i].parent_asin] for i in members], axis=0)
    norm = np.linalg.norm(mean)  # 0 only if vectors cancel out
    return Cluster(name, tuple(members), (mean / norm if norm else mean).astype(np.float32))
