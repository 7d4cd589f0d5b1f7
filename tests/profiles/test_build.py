"""All profiles of all users: complete, from the given behaviours alone, and the same at every run."""

import json
import pickle

import pytest

from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import category_clusters, profile_users
from pwagents.profiles.llm import LlmProfiler
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.types import MicroProfile


class Noting(OfflineProfiler):
    """Notes what it is given."""

    def __init__(self, catalogue):
        super().__init__(catalogue)
        self.parts = []

    def write_micro(self, parts):
        self.parts += parts
        return super().write_micro(parts)


@pytest.fixture(scope="module")
def build(histories, benchmark, embedder, catalogue):
    def run(profiler=None, histories=histories, seed=0, **fields):
        profiler = profiler or OfflineProfiler(catalogue)
        return profile_users(histories, benchmark.products, embedder, profiler, seed, **fields)

    return run


def test_every_user_has_a_global_profile_and_long_histories_have_clusters(build, histories):
    profiles = build()
    assert list(profiles) == list(histories)
    for user, own in profiles.items():
        assert own.user_id == user and len(own.micro) == len(own.clusters)
        members = sorted(i for cluster in own.clusters for i in cluster.members)
        assert members == (list(range(len(histories[user]))) if len(histories[user]) > 15 else [])


def test_micro_profiles_see_few_behaviours_of_their_own_cluster(build, histories, benchmark, catalogue):
    noting = Noting(catalogue)
    profiles = build(noting, l_c=3)
    clusters = [(user, cluster) for user, own in profiles.items() for cluster in own.clusters]
    assert len(noting.parts) == len(clusters)
    for (name, behaviors), (user, cluster) in zip(noting.parts, clusters, strict=True):
        members = [histories[user][i] for i in cluster.members]
        assert name == cluster.name and len(behaviors) == min(3, len(members))
        assert [b for b in members if b in behaviors] == list(behaviors)  # oldest first


@pytest.mark.usefixtures("each_text_is_embedded_again")
def test_two_runs_are_the_same_to_the_byte(histories, benchmark):
    runs = [
        profile_users(
            histories,
            benchmark.products,
            Embedder(max_tokens=48, batch_size=32),
            OfflineProfiler(Catalogue(benchmark.products)),
            seed=0,
        )
        for _ in range(2)
    ]
    told = [
        json.dumps([(own.whole.model_dump_json(), [m.model_dump_json() for m in own.micro],
                     [(c.name, c.members, c.centre.tobytes().hex()) for c in own.clusters])
                    for own in run.values()])
        for run in runs
    ]  # fmt: skip
    assert told[0] == told[1]


def test_a_users_profiles_do_not_depend_on_other_users(build, histories):
    everybody = build()
    some = sorted(histories)[:5]
    alone = build(histories={user: histories[user] for user in some})
    for user in some:
        assert alone[user].whole == everybody[user].whole and alone[user].micro == everybody[user].micro
        assert [c.members for c in alone[user].clusters] == [c.members for c in everybody[user].clusters]


def test_the_seed_chooses_the_sample(build):
    def samples(seed):
        return [own.micro for own in build(seed=seed, l_c=2).values()]

    assert samples(0) != samples(1)


def test_short_histories_get_no_clusters(build, histories):
    alpha = sorted(map(len, histories.values()))[len(histories) // 2]
    profiles = build(alpha=alpha)
    for user, history in histories.items():
        assert bool(profiles[user].clusters) == bool(profiles[user].micro) == (len(history) > alpha)


def test_another_bucketing(build, histories, benchmark):
    profiles = build(cluster=category_clusters)
    user = max(histories, key=lambda user: len(histories[user]))
    categories = {benchmark.products[b.parent_asin].category for b in histories[user]}
    assert {cluster.name for cluster in profiles[user].clusters} == categories


def test_no_users(build):
    assert build(histories={}) == {}


def test_no_behaviour_for_a_micro_profile(build):
    with pytest.raises(ValueError, match="l_c is 0"):
        build(l_c=0)


def test_a_language_model_takes_the_profilers_place(build, histories, benchmark, scripted):
    model = scripted(lambda request: '{"Domain Recommendations": ["color: navy"], "Domain Avoidances": []}')
    profiles = build(LlmProfiler(model, benchmark.products))
    n_micro = sum(len(own.micro) for own in profiles.values())
    micro = MicroProfile(recommendations=("color: navy",))
    assert n_micro and all(m == micro for own in profiles.values() for m in own.micro)
    assert len(model.requests) == n_micro + 2 * len(histories)  # global replies are not readable, twice


def test_real_users(amazon, embedder):
    histories = {u: h for u in sorted(amazon.behaviors) if len(h := amazon.train_period(u)) > 15}
    histories = {user: histories[user] for user in list(histories)[:8]}
    profiler = OfflineProfiler(Catalogue(amazon.products))
    profiles = profile_users(histories, amazon.products, embedder, profiler, seed=0)
    assert all(own.clusters for own in profiles.values())
    sizes = [len(c.members) for own in profiles.values() for c in own.clusters]
    assert min(sizes) >= 2 and sum(sizes) == sum(map(len, histories.values()))
    assert pickle.loads(pickle.dumps(profiles)).keys() == profiles.keys()
