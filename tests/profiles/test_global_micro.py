"""Clusters, profiles and contextual profiles (Orion, 4.1): complete, leak-free, the same at every run."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.clusters import Cluster, adaptive_clusters
from pwagents.profiles.global_micro import contextual_profile, nearest_clusters, profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.types import GlobalProfile, MicroProfile, UserProfiles
from pwagents.schema import UserProfile

from .conftest import bought, lamp

# Products in four categories: of 9, 8, 2 and 1. Categories a and d lie close together, so do b and c.
SHOP = {p.parent_asin: p for p in (lamp(n, category=c) for n, c in enumerate("aaaaaaaaabbbbbbbbccd"))}
HISTORY = tuple(bought(product, day=day) for day, product in enumerate(SHOP.values(), start=1))
AXES = {"a": (1.0, 0.0), "d": (0.98, 0.2), "b": (0.0, 1.0), "c": (0.3, 0.95)}
VECTORS = {
    asin: np.array(AXES[product.category], np.float32) / np.linalg.norm(AXES[product.category])
    for asin, product in SHOP.items()
}


@pytest.mark.parametrize(
    ("least", "names"), [(1, "a, b, c, d"), (2, "a + d, b, c"), (3, "a + d, b + c"), (99, "a + b + c + d")]
)
def test_the_smallest_bucket_joins_the_nearest_until_all_are_large_enough(least, names):
    clusters = adaptive_clusters(HISTORY, SHOP, VECTORS, least)
    assert ", ".join(cluster.name for cluster in clusters) == names
    for cluster in clusters:
        mean = np.mean([VECTORS[HISTORY[i].parent_asin] for i in cluster.members], axis=0)
        np.testing.assert_allclose(cluster.center, mean / np.linalg.norm(mean), atol=1e-6)


def test_a_centre_is_finite_where_vectors_cancel_out():
    opposite = {asin: np.array([(-1.0) ** int(asin[1:])], np.float32) for asin in SHOP}
    (cluster,) = adaptive_clusters(HISTORY, SHOP, opposite, least=99)
    assert np.isfinite(cluster.center).all()


class Noting(OfflineProfiler):
    def write_micro(self, samples):
        self.samples = samples  # what micro-profiles are made of
        return super().write_micro(samples)


@pytest.fixture(scope="module")
def build(histories, benchmark, embedder, catalogue):
    def run(profiler=None, histories=histories, seed=0, **fields):
        profiler = profiler or OfflineProfiler(catalogue)
        return profile_users(histories, benchmark.products, embedder, profiler, seed, **fields)

    return run


def test_every_user_has_a_global_profile_and_histories_above_alpha_have_clusters(build, histories, alpha=15):
    profiles = build(alpha=alpha)
    assert list(profiles) == list(histories)
    for user, own in profiles.items():
        assert len(own.micro) == len(own.clusters)
        members = sorted(i for cluster in own.clusters for i in cluster.members)
        assert members == (list(range(len(histories[user]))) if len(histories[user]) > alpha else [])


def test_micro_profiles_see_at_most_l_c_behaviours_of_their_own_cluster(build, histories, catalogue):
    noting = Noting(catalogue)
    clusters = [(user, c) for user, own in build(noting, l_c=3).items() for c in own.clusters]
    assert len(noting.samples) == len(clusters)
    for (name, behaviors), (user, cluster) in zip(noting.samples, clusters, strict=True):
        members = [histories[user][i] for i in cluster.members]
        assert name == cluster.name and len(behaviors) == min(3, len(members))
        assert [b for b in members if b in behaviors] == list(behaviors)  # oldest first
    other = Noting(catalogue)
    build(other, seed=1, l_c=3)
    assert other.samples != noting.samples  # the seed draws them


def as_bytes(own):
    clusters = [(c.name, c.members, c.center.tobytes().hex()) for c in own.clusters]
    return json.dumps([own.whole.model_dump_json(), [m.model_dump_json() for m in own.micro], clusters])


@pytest.mark.usefixtures("each_text_is_embedded_again")
def test_two_runs_are_the_same_to_the_byte(histories, benchmark):
    one, other = (
        profile_users(histories, shop, Embedder(max_tokens=48), OfflineProfiler(Catalogue(shop)), seed=0)
        for shop in 2 * [benchmark.products]
    )
    assert [*map(as_bytes, one.values())] == [*map(as_bytes, other.values())]


def test_a_users_profiles_do_not_depend_on_other_users(build, histories):
    everybody, some = build(), sorted(histories)[:5]
    alone = build(histories={user: histories[user] for user in some})
    for user in some:
        assert alone[user].whole == everybody[user].whole and alone[user].micro == everybody[user].micro
        assert [c.members for c in alone[user].clusters] == [c.members for c in everybody[user].clusters]
    assert build(histories={}) == {}


class Axes:
    """Embeds a few known words."""

    def encode(self, texts, show_progress=False):
        places = {"lamp": (1.0, 0.0), "tea": (0.0, 1.0), "both": (0.8, 0.6)}
        return np.array([places[text] for text in texts], np.float32).reshape(len(texts), 2)


FACTS = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
LAMPS, DRINKS = (Cluster(n, (0,), np.array(c, np.float32)) for n, c in (("lamps", (1, 0)), ("tea", (0, 1))))
ANN = UserProfiles(
    GlobalProfile(facts=FACTS, positive=("brand: Lumo",), negative=("color: red", "material: wool")),
    (LAMPS, DRINKS),
    (
        MicroProfile(recommendations=("color: navy", "style: retro"), avoidances=("style: bold",)),
        MicroProfile(recommendations=("flavor: mint", "style: retro"), avoidances=("flavor: rose",)),
    ),
)
SHORT = replace(ANN, clusters=(), micro=())


def lines(instruction, user):
    profile = contextual_profile(instruction, user, Axes())
    assert {line.provenance for line in profile.lines} == {"history"}
    wanted = [line.text for line in profile.lines if line.positive]
    return wanted, [line.text for line in profile.lines if not line.positive]


def test_the_global_negatives_and_the_positives_of_the_nearest_cluster():
    avoided = ["color: red", "material: wool"]
    assert lines("tea", ANN) == (["flavor: mint", "style: retro"], avoided)
    assert lines("tea", SHORT) == (["brand: Lumo"], avoided)  # without clusters: the global positives
    contrary = replace(ANN, whole=ANN.whole.model_copy(update={"negative": ("flavor: mint",)}))
    assert lines("tea", contrary) == (["style: retro"], ["flavor: mint"])
    ((first, second),) = nearest_clusters(["both"], [ANN], Axes(), m=2)
    assert (first.cluster, second.cluster) == (0, 1) and first.weight + second.weight == pytest.approx(1)
