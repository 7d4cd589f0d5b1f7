"""The service behind ``get_recommendations_by_history``: SASRec over product ids, trained once and cached."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pwagents.errors import DataError
from pwagents.web import sasrec
from pwagents.web.sasrec import SasRec, pad, train_sasrec
from pwagents.web.settings import SasRecSettings

BATCH = 256  # sequences scored at once: bounds memory, changes no result


class Recommender:
    """Recommends products to follow a sequence of products. Holds no mutable state: threads may share it.

    Args:
        model: a trained SasRec.
        index: product id -> the model's item number. PersonalWAB's checkpoint comes with such a map.
        candidates: ids that may be recommended, None for all of ``index``; ids not in ``index`` are ignored.

    Raises:
        DataError: an item number the model does not have, or no candidate is known.
    """

    def __init__(
        self,
        model: SasRec,
        index: Mapping[str, int],
        candidates: Iterable[str] | None = None,
    ):
        n_items = model.item_emb.num_embeddings - 1
        for product, item in index.items():
            if not 1 <= item <= n_items:
                raise DataError("recommender", product, "index", item, f"a number from 1 to {n_items}")
        chosen = index.keys() if candidates is None else index.keys() & set(candidates)
        if not chosen:
            raise DataError(
                "recommender", "all", "candidates", "no known product", "products seen in training"
            )
        self.model = model.eval()
        self.index = dict(index)
        self._candidates = sorted(chosen)  # so that equal scores are ordered by id
        with torch.inference_mode():
            self._embeddings = model.item_emb(torch.tensor([self.index[i] for i in self._candidates]))

    @classmethod
    def fit(
        cls,
        sequences: Mapping[str, Sequence[str]],
        config: SasRecSettings,
        seed: int,
        cache_dir: Path | None = None,
        candidates: Iterable[str] | None = None,
    ) -> "Recommender":
        """Train on user -> product ids, oldest first, or load the same training's weights from ``cache_dir``.

        Candidates are by default all products of ``sequences``. The order of the users does not matter.

        Raises:
            DataError: an id that is not a text, fewer than two products, or no sequence of two.
        """
        ordered = [sequences[user] for user in sorted(sequences)]
        index = number_items(ordered)
        rows = [[index[item] for item in sequence] for sequence in ordered]
        model = load_or_train(rows, len(index), config, seed, cache_dir)
        return cls(model, index, candidates)

    def recommend(self, product_sequence: Sequence[str], k: int = 10) -> list[str]:
        """The ``k`` products most likely to follow, best first; ties go to the lower id.

        ``product_sequence`` is oldest first; its last ``max_length`` (30) known ids count, unknown ones are
        ignored, and no known id gives an empty list. Products of the sequence itself may be recommended
        again, as published: people do buy things twice.
        """
        known = self._known(product_sequence)
        if not known:
            return []
        with torch.inference_mode():
            last = self.model(pad([known], self.model.max_length))[:, -1]
            (scores,) = (last @ self._embeddings.T).numpy()
        return [self._candidates[i] for i in top_k(scores, k)]

    def _known(self, product_sequence: Sequence[str]) -> list[int]:
        return [self.index[p] for p in product_sequence if isinstance(p, str) and p in self.index]


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Indices of the ``k`` highest scores, highest first, ties by index: (n,) -> (min(k, n),)."""
    k = min(k, len(scores))
    if k < 1:
        return np.empty(0, dtype=int)
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    contenders = np.flatnonzero(scores >= threshold)
    return contenders[np.argsort(-scores[contenders], kind="stable")][:k]


def number_items(sequences: Sequence[Sequence[str]]) -> dict[str, int]:
    """Every id that occurs -> 1, 2, ... in the ids' order, whatever the order of the sequences."""
    for row, sequence in enumerate(sequences):
        for item in sequence:
            if not isinstance(item, str) or not item:
                raise DataError(
                    "training sequences", row, "product id", repr(item), "a text that is not empty"
                )
    return {item: i for i, item in enumerate(sorted({i for s in sequences for i in s}), start=1)}


def load_or_train(
    rows: Sequence[Sequence[int]],
    n_items: int,
    config: SasRecSettings,
    seed: int,
    cache_dir: Path | None,
) -> SasRec:
    """:func:`train_sasrec`, its weights kept in ``cache_dir`` under the hash of all that they follow from.

    A cached file that cannot be read is replaced.
    """
    if cache_dir is None:
        return train_sasrec(rows, n_items, config, seed)
    path = Path(cache_dir) / f"sasrec-{training_hash(rows, n_items, config, seed)}.safetensors"
    if path.exists():
        with suppress(SafetensorError, RuntimeError):  # damaged, or not the weights of this shape
            return load_sasrec(path, n_items, config)
    model = train_sasrec(rows, n_items, config, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}.part")
    save_file(model.state_dict(), aside)
    os.replace(aside, path)
    return model


def load_sasrec(path: Path, n_items: int, config: SasRecSettings) -> SasRec:
    """The model whose weights lie at ``path``, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):  # building the model draws initial weights
        model = SasRec(n_items, config)
    model.load_state_dict(load_file(path))
    return model.eval()


def training_hash(rows: Sequence[Sequence[int]], n_items: int, config: SasRecSettings, seed: int) -> str:
    """16 hex digits over data, configuration, seed, torch's version and the source of the model."""
    source = Path(sasrec.__file__).read_bytes()
    facts = [list(map(list, rows)), n_items, asdict(config), seed, torch.__version__]
    return hashlib.sha256(json.dumps(facts).encode() + source).hexdigest()[:16]
