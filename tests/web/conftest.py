"""A small shop that the tests of the environment and the agents share."""

import math

import numpy as np
import pytest

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.web.functions import Shop
from pwagents.web.recommender import Recommender
from pwagents.web.search import build_search_engine
from pwagents.web.settings import SasRecSettings


class WordOverlap:
    """Stands in for MiniLM where a test is not about embeddings: the share of words in common."""

    def cosine(self, text, other):
        a, b = set(text.lower().split()), set(other.lower().split())
        return len(a & b) / len(a | b)


@pytest.fixture(scope="session")
def world():
    return make_world(WorldConfig(n_users=30, n_products=240), seed=0)


@pytest.fixture(scope="session")
def benchmark(world):
    return world.benchmark


@pytest.fixture(scope="session")
def shop(benchmark):
    sequences = {u: [b.parent_asin for b in benchmark.train_period(u)] for u in benchmark.behaviors}
    recommender = Recommender.fit(sequences, SasRecSettings(epochs=1), seed=0, cache_dir=None)
    return Shop(benchmark, build_search_engine(benchmark.products), recommender, WordOverlap())


@pytest.fixture(scope="session")
def task_of(benchmark):
    """The first test task of each type."""
    return {t.type: t for t in reversed(benchmark.tasks["test"])}


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


def _published_forward(state, items, blocks, heads):
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


@pytest.fixture(scope="session")
def published_forward():
    return _published_forward
