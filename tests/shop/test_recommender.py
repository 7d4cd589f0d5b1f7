"""The recommender: the published forward pass, the losses, the service's edges, PersonalWAB's checkpoint."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pwagents.errors import DataError
from pwagents.settings import SasRecSettings
from pwagents.shop import sasrec
from pwagents.shop.sasrec import (
    Recommender,
    SasRec,
    find_published,
    load_published,
    sequence_loss,
    train_sasrec,
    training_windows,
)

BRIEF = SasRecSettings(dropout=0.5, epochs=2)
LEARNS = SasRecSettings(dropout=0.1, epochs=60, learning_rate=0.01)


@pytest.fixture(autouse=True)
def seeded():
    """The same draws at every run: redraws of a negative are limited, so a few seeds give an owned one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def random_model(n_items=7):
    """Every parameter random, layer norms and biases too, so that a wrong one shows."""
    model = SasRec(n_items, dropout=0.5).eval()
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


# --- the published forward pass of SASRec, written again in plain NumPy ---


def _layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-8) * weight + bias


def _attention(query, keys, w, heads):
    """Causal, every key of the past, padding too; the keys and values are not normalised."""
    (wq, wk, wv), (bq, bk, bv) = np.split(w["in_proj_weight"], 3), np.split(w["in_proj_bias"], 3)
    q, k, v = query @ wq.T + bq, keys @ wk.T + bk, keys @ wv.T + bv
    size = q.shape[1] // heads
    out = np.zeros_like(q)
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        for t in range(len(q)):
            weights = np.exp(q[t, part] @ k[: t + 1, part].T / math.sqrt(size))
            out[t, part] = weights / weights.sum() @ v[: t + 1, part]
    return out @ w["out_proj.weight"].T + w["out_proj.bias"]


def published_forward(state, items, blocks, heads):
    """(length,) items, zeros in front -> (length, hidden)."""
    w = {name: tensor.double().numpy() for name, tensor in state.items()}

    def module(prefix):
        return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}

    hidden = w["item_emb.weight"].shape[1]
    x = np.stack(
        [w["item_emb.weight"][i] * math.sqrt(hidden) + w["pos_emb.weight"][t + 1] if i else np.zeros(hidden)
         for t, i in enumerate(items)]
    )  # fmt: skip
    for b in range(blocks):
        query = _layer_norm(x, **module(f"attention_layernorms.{b}."))
        x = query + _attention(query, x, module(f"attention_layers.{b}."), heads)
        x = _layer_norm(x, **module(f"forward_layernorms.{b}."))
        ff = module(f"forward_layers.{b}.")
        inner = np.maximum(x @ ff["conv1.weight"][:, :, 0].T + ff["conv1.bias"], 0)
        x = x + inner @ ff["conv2.weight"][:, :, 0].T + ff["conv2.bias"]
    return _layer_norm(x, **module("last_layernorm."))


# --- training ---


def test_windows_and_losses_by_hand(monkeypatch):
    """One position (item 1, then 2); items so few that every negative has to be the one that is left."""

    def loss(model, loss):
        return sequence_loss(model, windows, loss).item()

    monkeypatch.setattr(sasrec, "MAX_LENGTH", 3)
    made = training_windows([[1, 2, 3, 4, 5, 6], [7], [8, 9]])
    monkeypatch.undo()
    assert made.tolist() == [[3, 4, 5, 6], [0, 1, 2, 3], [0, 0, 8, 9]]  # each but the first a target once
    windows = torch.tensor([[0, 0, 0, 0, 1, 2]])
    with torch.inference_mode():
        model = random_model(n_items=3)
        s = (model(windows[:, :-1])[0, -1] @ model.item_emb.weight[1:4].T).double().numpy()
        positive, negative = math.log1p(math.exp(-s[1])), math.log1p(math.exp(s[2]))
        assert loss(model, "bce") == pytest.approx(positive + negative, rel=1e-5)
        softmax = math.log(np.exp(s).sum()) - s[1]
        assert loss(model, "cross_entropy") == pytest.approx(softmax, rel=1e-5)


@pytest.mark.parametrize("loss", ["bce", "cross_entropy"])
def test_each_loss_learns_who_follows_whom(loss, tmp_path):
    users = cycles()
    known = {user: sequence[:-1] for user, sequence in users.items()}
    fitted = Recommender.fit(known, LEARNS.changed(loss=loss), 0, tmp_path)
    shown = [fitted.recommend(known[user]) for user in users]
    k = 1 if loss == "cross_entropy" else 10  # the sampled loss hardly tells the next item from neighbours
    hits = [users[user][-1] in ids[:k] for user, ids in zip(users, shown, strict=True)]
    assert sum(hits) / len(hits) > 0.95


def test_training_is_bit_identical_and_leaves_torch_as_it_was():
    sequences, before = [[1, 2, 3], [2, 3, 4, 5, 6, 7]], torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = train_sasrec(sequences, 7, BRIEF, seed=1)
    assert torch.equal(torch.rand(3), expected) and torch.get_num_threads() == before
    torch.manual_seed(99)
    second = train_sasrec(sequences, 7, BRIEF, seed=1)
    other = train_sasrec(sequences, 7, BRIEF, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.item_emb.weight, other.item_emb.weight)
    assert not first.training and not first.item_emb.weight[0].any()


@pytest.mark.parametrize("sequences", [{}, {"u": []}, {"u": ["a"], "v": ["b"]}, {"u": ["a", "a"]}])
def test_fit_refuses_what_nothing_can_be_learned_from(sequences, tmp_path):
    with pytest.raises(DataError, match="training sequences"):
        Recommender.fit(sequences, BRIEF, 0, tmp_path)


# --- the service ---


@pytest.fixture(scope="module")
def recommender(tmp_path_factory):
    settings = LEARNS.changed(loss="cross_entropy")
    return Recommender.fit(cycles(), settings, seed=0, cache_dir=tmp_path_factory.mktemp("cache"))


def test_odd_sequences(recommender):
    plain = recommender.recommend(["p03", "p04", "p05"])
    assert len(plain) == 10 and recommender.recommend(["p03", "p04", "p05"], k=3) == plain[:3]
    assert recommender.recommend([]) == recommender.recommend(["?", ""]) == []
    assert recommender.recommend([None, 7, ["p01"], "?", "p03", "nobody's", "p04", "p05", "?"]) == plain
    assert recommender.recommend(["p01"], k=0) == [] and len(recommender.recommend(["p03"] * 50, k=99)) == 24
    recent = [f"p{i % 24:02d}" for i in range(sasrec.MAX_LENGTH)]
    assert recommender.recommend(["p20", "p21"] * 30 + recent) == recommender.recommend(recent)


def test_cache_trains_once_and_gives_the_same_answers(tmp_path, monkeypatch):
    users = cycles(n_users=6)

    def fit(sequences=users, config=BRIEF, seed=0):
        return Recommender.fit(sequences, config, seed, tmp_path)

    query = ["p01", "p02", "p03"]
    first = fit().recommend(query)
    with monkeypatch.context() as patch:
        patch.setattr(sasrec, "train_sasrec", lambda *args: pytest.fail("trained again"))
        assert fit().recommend(query) == first
        assert fit(dict(reversed(users.items()))).recommend(query) == first  # users in another order
    fit(seed=1)
    fit(config=BRIEF.changed(epochs=3))
    fit({**users, "new": ["p01", "p09"]})
    assert len(list(tmp_path.glob("sasrec-*"))) == 4


# --- PersonalWAB's checkpoint: read safely, ranked as the published code ranks ---

N_ITEMS = 104_284  # as published


@pytest.fixture(scope="module")
def state():
    """Weights of the published shape: random, and large enough that they tell the items apart."""
    torch.manual_seed(0)
    return {name: w.clone() for name, w in SasRec(N_ITEMS, dropout=0.5).state_dict().items()}


@pytest.fixture(scope="module")
def numbers():
    drawn = np.random.default_rng(0).choice(np.arange(1, N_ITEMS + 1), size=2000, replace=False)
    return {f"B{i:09d}": int(item) for i, item in enumerate(drawn)}


@pytest.fixture(scope="module")
def files(state, numbers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    torch.save(state, folder / "pwab.pth")
    (folder / "1000_ids.json").write_text(json.dumps(numbers))
    return folder


def test_ranks_as_the_published_code(files, tmp_path, state, numbers):
    """The published inference in plain NumPy: score all items, keep those of the map, best ten."""
    place = tmp_path / "PersonalWAB/envs/pwab/functions/recommender"  # of a clone
    for name in ("checkpoint/pwab.pth", "data/1000_ids.json"):
        assert find_published(tmp_path) is None
        (place / name).parent.mkdir(parents=True)
        (place / name).symlink_to(files / Path(name).name)
    recommender = load_published(*find_published(tmp_path), products=numbers)
    for length in (1, 3, 30, 31, 45):
        drawn = np.random.default_rng(length).integers(0, len(numbers), length)
        sequence = [sorted(numbers)[i] for i in drawn]
        items = [numbers[asin] for asin in sequence][-30:]
        last = published_forward(state, [0] * (30 - len(items)) + items, blocks=2, heads=2)[-1]
        scores = state["item_emb.weight"].double().numpy() @ last
        expected = sorted(numbers, key=lambda asin: (-scores[numbers[asin]], asin))[:10]
        assert recommender.recommend([*sequence[:1], "not in the map", *sequence[1:]]) == expected
    some = sorted(numbers)[:25]
    recommender = load_published(*find_published(files), products=[*some, "a product of other data"])
    assert set(recommender.recommend(sorted(numbers)[30:40], k=100)) == set(some)


class Malicious:
    def __reduce__(self):
        return (print, ("code of the checkpoint was run",))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: {**s, "head": Malicious()}, "the weights of PersonalWAB's SASRec"),
        (lambda s: {**s, "pos_emb.weight": s["pos_emb.weight"][:21]}, "pos_emb.weight"),
        (lambda s: {**s, "user_emb.weight": torch.zeros(3)}, "user_emb.weight"),
        (lambda s: b"<html>not found</html>", "the weights of PersonalWAB's SASRec"),
    ],
)
def test_another_checkpoint_is_refused_and_runs_no_code(state, tmp_path, capsys, spoil, message):
    spoiled, path = spoil(state), tmp_path / "pwab.pth"
    if isinstance(spoiled, bytes):
        path.write_bytes(spoiled)
    else:
        torch.save(spoiled, path)
    (tmp_path / "1000_ids.json").write_text('{"B1": 1}')
    with pytest.raises(DataError) as caught:
        load_published(*find_published(tmp_path), products=["B1"])
    assert message in str(caught.value) and "pwab.pth" in str(caught.value)
    assert "was run" not in capsys.readouterr().out


@pytest.mark.parametrize("content", ["{", "[1]", '{"B1": true}', '{"B1": 0}', '{"B1": 104285}'])
def test_wrong_item_numbers_are_named(files, tmp_path, content):
    (tmp_path / "pwab.pth").symlink_to(files / "pwab.pth")
    (tmp_path / "1000_ids.json").write_text(content)
    with pytest.raises(DataError, match=r"1000_ids\.json.*a number from 1 to 104284") as caught:
        load_published(*find_published(tmp_path), products=["B1"])
    assert ("B1" in str(caught.value)) == ("B1" in content)
