"""The recommender: the published forward pass, the losses, the service's edges."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError
from pwagents.web import recommender as service
from pwagents.web.leave_one_out import evaluate_leave_one_out
from pwagents.web.recommender import Recommender, top_k
from pwagents.web.sasrec import (
    SasRec,
    gbce_beta,
    pad,
    sample_others,
    sample_unowned,
    sequence_loss,
    train_sasrec,
    training_windows,
)
from pwagents.web.settings import SasRecSettings

TINY = SasRecSettings(hidden=4, blocks=2, heads=2, max_length=5, dropout=0.5, epochs=2, batch_size=4)
LEARNS = SasRecSettings(
    hidden=16, max_length=6, dropout=0.1, epochs=30, batch_size=20, learning_rate=0.01, negatives=4
)


@pytest.fixture(autouse=True)
def seeded():
    """The same draws at every run: redraws of a negative are limited, so a few seeds give an owned one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def random_model(n_items=7, config=TINY):
    """Every parameter random, layer norms and biases too, so that a wrong one shows."""
    model = SasRec(n_items, config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        model.item_emb.weight[0] = 0
        model.pos_emb.weight[0] = 0
    return model


def cycles(n_users=40, n_items=24, length=7):
    """Users walk round the same circle from different places: the last item tells the next."""
    return {f"u{u}": [f"p{(u * 5 + i) % n_items:02d}" for i in range(length)] for u in range(n_users)}


@pytest.mark.parametrize("items", [[0, 0, 0, 0, 3], [0, 0, 2, 5, 2], [1, 2, 3, 4, 7]])
def test_forward_pass_agrees_with_the_published_one(items, published_forward):
    model = random_model()
    expected = published_forward(model.state_dict(), items, TINY.blocks, TINY.heads)
    with torch.inference_mode():
        assert np.allclose(model(torch.tensor([items]))[0], expected, atol=1e-5)
        scores = model.score(torch.tensor([items]), torch.arange(1, 8))[0]
    assert np.allclose(scores, model.item_emb.weight[1:].detach().double().numpy() @ expected[-1], atol=1e-5)


def test_parameters_have_the_published_names_and_shapes():
    shapes = {name: tuple(t.shape) for name, t in SasRec(100, SasRecSettings(blocks=1)).state_dict().items()}
    norm = {"weight": (50,), "bias": (50,)}
    assert shapes == {
        "item_emb.weight": (101, 50),
        "pos_emb.weight": (31, 50),
        **{f"attention_layernorms.0.{k}": v for k, v in norm.items()},
        "attention_layers.0.in_proj_weight": (150, 50),
        "attention_layers.0.in_proj_bias": (150,),
        "attention_layers.0.out_proj.weight": (50, 50),
        "attention_layers.0.out_proj.bias": (50,),
        **{f"forward_layernorms.0.{k}": v for k, v in norm.items()},
        **{f"forward_layers.0.conv{i}.weight": (50, 50, 1) for i in (1, 2)},
        **{f"forward_layers.0.conv{i}.bias": (50,) for i in (1, 2)},
        **{f"last_layernorm.{k}": v for k, v in norm.items()},
    }


def test_later_items_do_not_change_earlier_outputs():
    model = random_model()
    with torch.inference_mode():
        a, b = model(torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 7, 6]]))
    assert torch.allclose(a[:3], b[:3], atol=1e-6)
    assert not torch.allclose(a[3:], b[3:], atol=1e-2)


def test_neighbours_in_a_batch_and_padding_do_not_change_a_sequence():
    model = random_model()
    with torch.inference_mode():
        alone = model(pad([[3, 4]], 5))[0]
        beside = model(pad([[3, 4], [1, 2, 3, 4, 5, 6, 7]], 5))[0]
    assert torch.allclose(alone, beside, atol=1e-6)


# --- training ---


def test_windows_make_every_item_but_the_first_a_target_once():
    windows = training_windows([[1, 2, 3, 4, 5, 6], [7], [8, 9]], max_length=3)
    assert windows.tolist() == [[3, 4, 5, 6], [0, 1, 2, 3], [0, 0, 8, 9]]


def test_gbce_beta_by_hand():
    # 1,001 items and 10 negatives: rate 0.01; t = 0.75: 0.01 * (0.75 * (1 - 100) + 100) = 0.2575
    assert gbce_beta(1001, 10, 0.75) == pytest.approx(0.2575)
    assert gbce_beta(1001, 10, 0.0) == pytest.approx(1.0)  # plain BCE
    assert gbce_beta(1001, 10, 1.0) == pytest.approx(0.01)  # the sampling rate: fully calibrated


def test_losses_by_hand():
    """One position (item 1, then 2); three items, so that every unowned negative has to be item 3."""
    model, windows = random_model(n_items=3), torch.tensor([[0, 0, 0, 0, 1, 2]])
    with torch.inference_mode():
        s = model.score(windows[:, :-1], torch.arange(1, 4))[0].double().numpy()

        def loss(name):
            config = SasRecSettings(loss=name, negatives=2, gbce_t=0.5)
            return sequence_loss(model, windows, config).item()

        positive, negative = math.log1p(math.exp(-s[1])), 2 * math.log1p(math.exp(s[2]))
        assert loss("bce") == pytest.approx(positive + negative, rel=1e-5)
        assert loss("cross_entropy") == pytest.approx(math.log(np.exp(s).sum()) - s[1], rel=1e-5)


def test_gbce_by_hand():
    """Two items, so that every negative has to be item 1."""
    model, windows = random_model(n_items=2), torch.tensor([[0, 0, 0, 0, 1, 2]])
    config = SasRecSettings(
        loss="gbce", negatives=4, gbce_t=0.5
    )  # rate 4, beta 4 * (0.5 * 0.75 + 0.25) = 2.5
    with torch.inference_mode():
        s = model.score(windows[:, :-1], torch.arange(1, 3))[0].double().numpy()
        loss = sequence_loss(model, windows, config).item()
    expected = 2.5 * math.log1p(math.exp(-s[1])) + 4 * math.log1p(math.exp(s[0]))
    assert loss == pytest.approx(expected, rel=1e-5)


def test_negatives_avoid_the_window_and_end_when_nothing_is_left():
    windows = torch.tensor([[0, 1, 2, 3], [4, 4, 5, 6]])
    drawn = sample_unowned(windows, 50, n_items=30)
    assert drawn.shape == (2, 3, 50) and drawn.min() >= 1 and drawn.max() <= 30
    assert not np.isin(drawn[0], [1, 2, 3]).any() and not np.isin(drawn[1], [4, 5, 6]).any()
    assert np.isin(drawn[0], [4, 5, 6]).any()  # rows do not disturb each other
    assert sample_unowned(torch.tensor([[1, 2, 1]]), 3, n_items=2).shape == (1, 2, 3)


def test_gbce_negatives_are_all_items_but_the_target():
    drawn = sample_others(torch.tensor([1, 3, 4]), 200, n_items=4)
    assert [sorted(set(row.tolist())) for row in drawn] == [[2, 3, 4], [1, 2, 4], [1, 2, 3]]


@pytest.mark.parametrize("loss", ["bce", "cross_entropy", "gbce"])
def test_each_loss_learns_who_follows_whom(loss):
    config = replace(LEARNS, loss=loss)
    scores = evaluate_leave_one_out(list(cycles().values()), config, 0, ks=(1, 10))
    assert scores["sasrec"]["HR@10"] > 0.95
    if loss == "cross_entropy":  # the sampled losses hardly tell the next item from its neighbours
        assert scores["sasrec"]["HR@1"] > 0.95
    assert scores["popularity"]["HR@10"] < 0.7 and scores["repeat_last"]["HR@10"] == 0
    assert scores["ceiling"]["HR@10"] == 1


def test_training_is_bit_identical_and_leaves_torch_as_it_was():
    sequences, before = [[1, 2, 3], [2, 3, 4, 5, 6, 7]], torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = train_sasrec(sequences, 7, TINY, seed=1)
    assert torch.equal(torch.rand(3), expected) and torch.get_num_threads() == before
    torch.manual_seed(99)
    second = train_sasrec(sequences, 7, TINY, seed=1)
    other = train_sasrec(sequences, 7, TINY, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.item_emb.weight, other.item_emb.weight)
    assert not first.training and not first.item_emb.weight[0].any()


@pytest.mark.parametrize("sequences", [[[1, 2, 8]], [[0, 1]], [[1], [2]], []])
def test_training_refuses_what_it_cannot_learn_from(sequences):
    with pytest.raises(DataError, match="training sequences"):
        train_sasrec(sequences, 7, TINY, seed=0)


# --- the service ---


@pytest.fixture(scope="module")
def recommender():
    config = replace(LEARNS, loss="cross_entropy")
    return Recommender.fit(cycles(), config, seed=0)


def test_recommends_the_next_product_first_in_order_of_score(recommender):
    result = recommender.recommend(["p03", "p04", "p05", "p06"])
    assert result[0] == "p07" and len(result) == len(set(result)) == 10
    assert recommender.recommend(["p03", "p04", "p05", "p06"], k=3) == result[:3]
    assert len(recommender.recommend(["p03"], k=100)) == 24


def test_every_product_is_ranked_by_score():
    model = random_model()
    index = {name: i for i, name in enumerate("abcdefg", start=1)}
    result = Recommender(model, index).recommend(["a", "c", "d"], k=7)
    with torch.inference_mode():
        scores = model.score(pad([[1, 3, 4]], 5), torch.arange(1, 8))[0].tolist()
    assert result == sorted("abcdefg", key=lambda name: (-scores[index[name] - 1], index[name]))


def test_items_of_the_sequence_may_come_again():
    loyal = {f"u{u}": [f"p{u % 12}"] * 6 for u in range(36)}
    config = replace(LEARNS, loss="cross_entropy")
    assert Recommender.fit(loyal, config, 0).recommend(["p3", "p3"])[0] == "p3"


def test_odd_sequences(recommender):
    plain = recommender.recommend(["p03", "p04", "p05"])
    assert recommender.recommend([]) == recommender.recommend(["?", ""]) == []
    assert recommender.recommend(["?", "p03", "nobody's", "p04", "p05", "?"]) == plain
    assert recommender.recommend([None, 7, ["p01"], "p03", "p04", "p05"]) == plain
    assert len(recommender.recommend(["p03"] * 50)) == 10
    assert recommender.recommend(["p01"], k=0) == []


def test_only_the_most_recent_known_items_count(recommender):
    recent = [f"p{i:02d}" for i in range(6)]  # the model's max_length
    assert recommender.recommend(["p20", "p21"] * 30 + recent) == recommender.recommend(recent)
    assert recommender.recommend(["p20", *recent, *["?"] * 50]) == recommender.recommend(recent)


def test_threads_share_one_recommender(recommender):
    sequences = [[f"p{i % 24:02d}", f"p{(i + 1) % 24:02d}"] for i in range(24)]
    expected = [recommender.recommend(s) for s in sequences]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(recommender.recommend, sequences)) == expected


def test_candidates_restrict_the_answer_but_not_the_input(recommender):
    index = recommender.index
    some = Recommender(recommender.model, index, candidates=["p20", "p07", "p01", "unseen"])
    everything = recommender.recommend(["p05", "p06"], k=24)
    assert some.recommend(["p05", "p06"]) == [p for p in everything if p in {"p20", "p07", "p01"}]
    with pytest.raises(DataError, match="candidates"):
        Recommender(recommender.model, index, candidates=["unseen"])
    with pytest.raises(DataError, match="number from 1 to 24"):
        Recommender(recommender.model, {"a": 25, "b": 1})


def test_a_published_map_with_gaps_is_used_as_it_is():
    result = Recommender(random_model(), {"late": 7, "early": 3}).recommend(["late"])
    assert sorted(result) == ["early", "late"]


def test_fit_refuses_a_world_of_one_product():
    with pytest.raises(DataError, match="two products"):
        Recommender.fit({"u": ["a", "a"]}, TINY, 0)


@pytest.mark.parametrize("wrong", [{"loss": "ce"}, {"epochs": 0}, {"dropout": 1.0}, {"gbce_t": 2}])
def test_a_wrong_setting_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SasRecSettings(**wrong)


@pytest.mark.parametrize(
    "sequences",
    [{}, {"u": []}, {"u": ["a"], "v": ["b"]}, {"u": ["a", 3]}, {"u": ["a", ""]}, {"u": [None, "a"]}],
)
def test_fit_refuses_bad_sequences(sequences):
    with pytest.raises(DataError, match="training sequences"):
        Recommender.fit(sequences, TINY, 0)


def test_cache_trains_once_and_gives_the_same_answers(tmp_path, monkeypatch):
    users = cycles(n_users=6)

    def fit(sequences=users, config=TINY, seed=0, cache_dir=tmp_path):
        return Recommender.fit(sequences, config, seed, cache_dir)

    query = ["p01", "p02", "p03"]
    first = fit().recommend(query)
    [file] = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(service, "train_sasrec", lambda *args: pytest.fail("trained again"))
        assert fit().recommend(query) == first
        assert fit(dict(reversed(users.items()))).recommend(query) == first  # users in another order
    assert fit(cache_dir=None).recommend(query) == first
    fit(seed=1)
    fit(config=replace(TINY, epochs=3))
    fit({**users, "new": ["p01", "p09"]})
    assert len(list(tmp_path.iterdir())) == 4
    file.write_bytes(file.read_bytes()[:100])  # a damaged file is replaced
    assert fit().recommend(query) == first and fit().recommend(query) == first


scores_and_k = st.lists(st.integers(-3, 3), min_size=1, max_size=30).flatmap(
    lambda s: st.tuples(st.just(np.array(s, dtype=np.float32)), st.integers(0, 35))
)


@given(scores_and_k)
def test_top_k_agrees_with_a_full_sort(case):
    scores, k = case
    assert top_k(scores, k).tolist() == sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
