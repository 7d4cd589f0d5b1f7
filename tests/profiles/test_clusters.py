"""Interest clusters: who gets them, what they hold, and how small buckets are merged."""

import numpy as np
import pytest

from pwagents.profiles.global_micro import (
    adaptive_clusters,
    category_clusters,
    embed_items,
    item_text,
    kmeans_clusters,
)

METHODS = (adaptive_clusters, category_clusters, kmeans_clusters)


@pytest.fixture(scope="module")
def shop(product_of):
    """Twenty products in four categories: of 9, 8, 2 and 1."""
    categories = ["a"] * 9 + ["b"] * 8 + ["c"] * 2 + ["d"]
    return {p.parent_asin: p for p in (product_of(n, category=c) for n, c in enumerate(categories))}


@pytest.fixture(scope="module")
def history(shop, bought):
    return tuple(bought(product, day=day) for day, product in enumerate(shop.values(), start=1))


@pytest.fixture(scope="module")
def vectors(shop):
    """Unit vectors: categories a and d lie close together, so do b and c."""
    axes = {"a": (1.0, 0.0), "d": (0.98, 0.2), "b": (0.0, 1.0), "c": (0.3, 0.95)}
    return {
        asin: np.array(axes[product.category], np.float32) / np.linalg.norm(axes[product.category])
        for asin, product in shop.items()
    }


@pytest.mark.parametrize("method", METHODS)
def test_clusters_share_out_all_behaviours(method, shop, history, vectors):
    clusters = method(history, shop, vectors)
    assert sorted(i for cluster in clusters for i in cluster.members) == list(range(20))
    assert all(list(cluster.members) == sorted(cluster.members) for cluster in clusters)
    for cluster in clusters:
        mean = np.mean([vectors[history[i].parent_asin] for i in cluster.members], axis=0)
        np.testing.assert_allclose(cluster.centre, mean / np.linalg.norm(mean), atol=1e-6)


def test_the_smallest_bucket_joins_the_nearest_until_all_are_large_enough(shop, history, vectors):
    assert [c.name for c in category_clusters(history, shop, vectors)] == ["a", "b", "c", "d"]
    assert [c.name for c in adaptive_clusters(history, shop, vectors)] == ["a + d", "b", "c"]
    assert [c.name for c in adaptive_clusters(history, shop, vectors, least=3)] == ["a + d", "b + c"]
    assert [c.name for c in adaptive_clusters(history, shop, vectors, least=99)] == ["a + b + c + d"]


def test_ties_are_broken_by_name(shop, history):
    same = dict.fromkeys(shop, np.array([1.0, 0.0], np.float32))
    assert [c.name for c in adaptive_clusters(history, shop, same)] == ["a + d", "b", "c"]


def test_departments_are_finer_categories(shop, history, vectors):
    halves = {
        asin: p.model_copy(update={"details": {"Department": "x" if int(asin[1:]) % 2 else "y"}})
        for asin, p in shop.items()
    }
    names = [c.name for c in adaptive_clusters(history, halves, vectors, least=4)]
    assert any(name.startswith("a > x") for name in names) and any("a > y" in name for name in names)


def test_kmeans_makes_as_many_clusters(shop, history, vectors):
    assert len(kmeans_clusters(history, shop, vectors)) == len(adaptive_clusters(history, shop, vectors))


def test_kmeans_of_one_product_bought_often(shop, history, vectors):
    often = (history[0],) * 16
    assert [len(c.members) for c in kmeans_clusters(often, shop, vectors)] == [16]


def test_vectors_that_cancel_out_leave_a_centre_of_zeros(shop, history):
    opposite = {asin: np.array([(-1.0) ** int(asin[1:])], np.float32) for asin in shop}
    (cluster,) = adaptive_clusters(history, shop, opposite, least=99)
    assert np.isfinite(cluster.centre).all()


def test_items_are_embedded_once_and_by_their_text(shop, history):
    class Noting:
        def encode(self, texts, show_progress=False):
            self.texts = list(texts)
            return np.zeros((len(texts), 2), np.float32)

    noting = Noting()
    vectors = embed_items([history, history[:3]], shop, noting)
    assert sorted(vectors) == sorted(shop) and len(noting.texts) == len(shop)
    assert noting.texts[0] == item_text(shop["B000"])


def test_item_text_is_title_category_and_the_beginning_of_the_description(product_of):
    product = product_of(
        1, title="Lamp", category="Home", description=("A light.", "x" * 500), features=("F",)
    )
    text = item_text(product)
    assert text.startswith("Lamp. Home. A light. xxx") and len(text) < 230 and "F" not in text
