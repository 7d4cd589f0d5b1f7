"""Interest clusters: a user's behaviours in buckets by category (Orion, section 4.1)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import section
from pwagents.profiles.types import Cluster
from pwagents.schema import Behavior, Product

LEAST = 2  # behaviours that a bucket needs to stay by itself: one purchase is no interest
_DESCRIPTION = 200  # characters


def item_text(product: Product) -> str:
    """What stands for a product when clusters are compared with instructions: title, category, description.

    Features are left out: they say how a product is made, not what it is for, and with them the nearest
    cluster is the right one less often.
    """
    description = " ".join(product.description)[:_DESCRIPTION]
    return f"{product.title}. {product.category}. {description}".strip()


def embed_items(
    histories: Iterable[Sequence[Behavior]],
    products: Mapping[str, Product],
    embedder: Embedder,
    show_progress: bool = False,
) -> dict[str, np.ndarray]:
    """The (384,) vectors of all products in some histories, by id; each text is embedded once."""
    asins = sorted({behavior.parent_asin for history in histories for behavior in history})
    vectors = embedder.encode([item_text(products[asin]) for asin in asins], show_progress)
    return dict(zip(asins, vectors, strict=True))


def adaptive_clusters(
    history: Sequence[Behavior],
    products: Mapping[str, Product],
    vectors: Mapping[str, np.ndarray],
    least: int = LEAST,
) -> tuple[Cluster, ...]:
    """Buckets by the finest category that pages name, the small ones merged into their neighbours.

    The paper calls its bucketing adaptive and does not say how. This is ours: while a bucket has fewer than
    ``least`` behaviours, the smallest one (ties: first by name) joins the one whose centre is nearest (ties:
    first by name).

    Args:
        history: oldest first, not empty.
        products: the catalogue.
        vectors: of the history's products (:func:`embed_items`).

    Returns:
        Clusters that share out all behaviours, sorted by name.
    """
    clusters = _by(section, history, products, vectors)
    while len(clusters) > 1:
        smallest = min(clusters, key=lambda cluster: (len(cluster.members), cluster.name))
        if len(smallest.members) >= least:
            break
        others = [cluster for cluster in clusters if cluster is not smallest]
        likeness = {other.name: round(float(other.centre @ smallest.centre), 6) for other in others}
        nearest = min(others, key=lambda other: (-likeness[other.name], other.name))
        name = " + ".join(sorted([*nearest.name.split(" + "), *smallest.name.split(" + ")]))
        merged = _cluster(name, [*nearest.members, *smallest.members], history, vectors)
        kept = [cluster for cluster in others if cluster is not nearest]
        clusters = sorted([*kept, merged], key=lambda cluster: cluster.name)
    return tuple(clusters)


def category_clusters(
    history: Sequence[Behavior],
    products: Mapping[str, Product],
    vectors: Mapping[str, np.ndarray],
) -> tuple[Cluster, ...]:
    """One bucket a category, however small: for comparison."""
    return tuple(_by(lambda product: product.category, history, products, vectors))


def kmeans_clusters(
    history: Sequence[Behavior],
    products: Mapping[str, Product],
    vectors: Mapping[str, np.ndarray],
) -> tuple[Cluster, ...]:
    """As many clusters as :func:`adaptive_clusters` finds, by k-means alone: for comparison."""
    from sklearn.cluster import KMeans

    k = len(adaptive_clusters(history, products, vectors))
    items = np.stack([vectors[b.parent_asin] for b in history])
    k = min(k, len(np.unique(items, axis=0)))
    labels = KMeans(k, n_init=4, random_state=0).fit_predict(items)
    found = [np.flatnonzero(labels == label).tolist() for label in range(k)]
    found.sort(key=lambda members: members[0])
    return tuple(_cluster(f"cluster {i}", members, history, vectors) for i, members in enumerate(found))


def _by(
    kind: Callable[[Product], str],
    history: Sequence[Behavior],
    products: Mapping[str, Product],
    vectors: Mapping[str, np.ndarray],
) -> list[Cluster]:
    """One cluster for each value of ``kind(product)``, sorted by name."""
    buckets: dict[str, list[int]] = defaultdict(list)
    for position, behavior in enumerate(history):
        buckets[kind(products[behavior.parent_asin])].append(position)
    return [_cluster(name, buckets[name], history, vectors) for name in sorted(buckets)]


def _cluster(
    name: str, members: Sequence[int], history: Sequence[Behavior], vectors: Mapping[str, np.ndarray]
) -> Cluster:
    """The cluster of some positions of a history, with its centre."""
    members = sorted(members)
    mean = np.mean([vectors[history[i].parent_asin] for i in members], axis=0)
    norm = np.linalg.norm(mean)  # 0 only where vectors cancel out
    return Cluster(name, tuple(members), (mean / norm if norm else mean).astype(np.float32))
