"""How well a recommender foretells the last product of each sequence, ranked among all products.

SASRec stands beside two rules that learn nothing and a ceiling. Nothing is sampled: a ranking among a few
sampled products would flatter every method (Krichene & Rendle, KDD 2020).

There are two protocols. In full, the products of the sequence itself are ranked too: people buy things twice,
and the shop recommends them again. As published with SASRec, they are left out of the ranking, except the
target. Where the target was bought before, that makes it easy to find.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from pwagents.web.recommender import BATCH, load_or_train, number_items
from pwagents.web.sasrec import SasRec, pad
from pwagents.web.settings import SasRecSettings

SEEN_OUT = ", seen products left out"  # ends the names of the published protocol's metrics


def evaluate_leave_one_out(
    sequences: Sequence[Sequence[str]],
    config: SasRecSettings,
    seed: int,
    ks: Sequence[int] = (10,),
    cache_dir: Path | None = None,
) -> dict[str, dict[str, float]]:
    """HR@k and NDCG@k of each method of :func:`leave_one_out_ranks`: method -> metric -> value.

    Metrics of the published protocol end with :data:`SEEN_OUT`.
    """
    full, published = leave_one_out_ranks(sequences, config, seed, cache_dir)
    return {method: _metrics(full[method], ks) | _metrics(published[method], ks, SEEN_OUT) for method in full}


def _metrics(ranks: np.ndarray, ks: Sequence[int], ending: str = "") -> dict[str, float]:
    hits = {f"HR@{k}{ending}": hit_rate(ranks, k) for k in ks}
    return hits | {f"NDCG@{k}{ending}": ndcg(ranks, k) for k in ks}


def hit_rate(ranks: np.ndarray, k: int) -> float:
    """Share of held-out items ranked among the first ``k``; ranks count from 1."""
    return float((ranks <= k).mean())


def ndcg(ranks: np.ndarray, k: int) -> float:
    """Mean of 1 / log2(rank + 1) where the rank is at most ``k``, else 0: NDCG with one relevant item."""
    return float(np.where(ranks <= k, 1 / np.log2(ranks + 1), 0).mean())


def leave_one_out_ranks(
    sequences: Sequence[Sequence[str]],
    config: SasRecSettings,
    seed: int,
    cache_dir: Path | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The rank of each sequence's last item among all items that occur: method -> (sequences,), float.

    First in full, then without the other items of the sequence itself (the published protocol).

    - ``sasrec``, trained on what comes before the last items;
    - ``popularity``, by how often an item occurs there;
    - ``repeat_last``: the sequence's own earlier items, most recent first, and no others (rank infinite);
    - ``ceiling``: rank 1 for an item that occurs in what is left for training, infinite for others, which
      nobody can learn from sequences alone.

    Ties go to the lower item number. Sequences of fewer than two items are left out.

    Raises:
        DataError: as :meth:`Recommender.fit`.
    """
    index = number_items(sequences)
    rows = [[index[item] for item in sequence] for sequence in sequences if len(sequence) > 1]
    known, targets = [row[:-1] for row in rows], np.array([row[-1] for row in rows], dtype=int)
    model = load_or_train(known, len(index), config, seed, cache_dir)
    counts = np.bincount([item for row in known for item in row], minlength=len(index) + 1)[1:]
    popular = np.broadcast_to(counts.astype(float), (len(rows), len(index)))
    own = np.array([repeat_rank(row, t) for row, t in zip(known, targets, strict=True)])
    ceiling = np.where(counts[targets - 1] > 0, 1.0, np.inf)
    full = {
        "sasrec": sasrec_ranks(model, known, targets),
        "popularity": target_ranks(popular, targets),
        "repeat_last": own,
        "ceiling": ceiling,
    }
    published = {
        "sasrec": sasrec_ranks(model, known, targets, seen_out=True),
        "popularity": target_ranks(without_seen(popular, known, targets), targets),
        "repeat_last": np.where(np.isfinite(own), 1.0, np.inf),  # nothing else of its own is left
        "ceiling": ceiling,
    }
    return full, published


def sasrec_ranks(
    model: SasRec, known: Sequence[Sequence[int]], targets: np.ndarray, seen_out: bool = False
) -> np.ndarray:
    """The rank, from 1, that the model gives the item ``targets[i]`` after ``known[i]``: (len(known),).

    Args:
        seen_out: leave the items of ``known[i]`` out of the ranking, except the target.
    """
    items = torch.arange(1, model.item_emb.num_embeddings)
    ranks = []
    for start in range(0, len(known), BATCH):
        part = slice(start, start + BATCH)
        with torch.inference_mode():
            scores = model.score(pad(known[part], model.max_length), items).numpy()
        if seen_out:
            scores = without_seen(scores, known[part], targets[part])
        ranks.append(target_ranks(scores, targets[part]))
    return np.concatenate(ranks)


def without_seen(scores: np.ndarray, known: Sequence[Sequence[int]], targets: np.ndarray) -> np.ndarray:
    """A copy of ``scores`` (n, items) in which the items of ``known[i]`` come last, the target excepted."""
    scores = np.array(scores)
    for row, items, target in zip(scores, known, targets, strict=True):
        row[[item - 1 for item in set(items) - {int(target)}]] = -np.inf
    return scores


def target_ranks(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Rank, from 1, of item ``targets[i]`` under ``scores[i]``, ties by item: (n, items), (n,) -> (n,)."""
    target = np.take_along_axis(scores, (targets - 1)[:, None], axis=1)
    earlier = np.arange(1, scores.shape[1] + 1) < targets[:, None]
    return 1.0 + ((scores > target) | ((scores == target) & earlier)).sum(axis=1)


def repeat_rank(known: Sequence[int], target: int) -> float:
    """The place of ``target`` among the known items, most recent first; infinite where it is not there."""
    newest_first = list(dict.fromkeys(reversed(known)))
    return newest_first.index(target) + 1.0 if target in newest_first else np.inf
