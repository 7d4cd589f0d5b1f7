"""How well SASRec foretells the last product of made-up sequences of purchases, by loss and schedule.

    .venv/bin/python benchmarks/sasrec.py [--users 300]

About five minutes. All products are ranked: a ranking among a few sampled ones would flatter every method
(Krichene & Rendle, KDD 2020). SASRec stands beside two rules that learn nothing and a ceiling, under two
protocols. In full, the products of the sequence itself are ranked too: people buy things twice, and the shop
recommends them again. As published with SASRec, they are left out of the ranking, except the target; where
the target was bought before, that makes it easy to find.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from pwagents.web.sasrec import SasRec, pad, train_sasrec
from pwagents.web.settings import SasRecSettings

BATCH = 256  # sequences scored at once: bounds memory, changes no result
SEEN_OUT = ", seen out"  # ends the names of the published protocol's metrics
# Schedules that learn from a few hundred users; the published one takes thousands of small steps.
PUBLISHED = SasRecSettings(epochs=200)
SMALL = SasRecSettings(batch_size=32, learning_rate=0.003)
SCHEDULES = {
    "bce, published rates": PUBLISHED,
    "bce": replace(SMALL, epochs=60),
    "cross_entropy": replace(SMALL, loss="cross_entropy", epochs=25),
}


def made_up_sequences(
    n_users: int, n_items: int, mean_length: int, seed: int, repeats: float = 0.25, n_interests: int = 60
) -> list[list[str]]:
    """Users who shop in 2 to 6 interests, some time in each; a share of purchases repeats a recent one."""
    rng = np.random.default_rng(seed)
    interests = np.array_split(rng.permutation(n_items), n_interests)
    return [one_user(rng, interests, mean_length, repeats) for _ in range(n_users)]


def one_user(
    rng: np.random.Generator, interests: list[np.ndarray], mean_length: int, repeats: float
) -> list[str]:
    mine = rng.choice(len(interests), size=rng.integers(2, 7), replace=False)
    interest, sequence = mine[0], []
    for _ in range(int(np.clip(rng.poisson(mean_length * rng.uniform(0.3, 1.7)), 5, 80))):
        if sequence and rng.random() < repeats:
            sequence.append(sequence[-min(int(rng.geometric(0.25)), len(sequence))])
            continue
        if rng.random() < 0.5:
            interest = rng.choice(mine)
        items = interests[interest]
        popularity = 1 / np.arange(1, len(items) + 1) ** 0.8
        sequence.append(f"p{rng.choice(items, p=popularity / popularity.sum()):06d}")
    return sequence


def measure_quality(n_users: int = 300, n_items: int = 3000, mean_length: int = 30, worlds: int = 3) -> dict:
    """HR@10 and NDCG@10 of each schedule and of the floors, mean over worlds, with seconds of training."""
    results: dict[str, list[dict]] = {}
    for seed in range(worlds):
        sequences = made_up_sequences(n_users, n_items, mean_length, seed)
        for name, config in SCHEDULES.items():
            start = time.perf_counter()
            full, published = leave_one_out_ranks(sequences, config, seed)
            scores = {m: metrics(full[m]) | metrics(published[m], SEEN_OUT) for m in full}
            row = {**scores.pop("sasrec"), "seconds": time.perf_counter() - start}
            results.setdefault(f"sasrec, {name}", []).append(row)
        for floor, row in scores.items():
            results.setdefault(floor, []).append({**row, "seconds": 0.0})
    return {
        name: {m: float(np.mean([r[m] for r in rows])) for m in rows[0]} for name, rows in results.items()
    }


def metrics(ranks: np.ndarray, ending: str = "", k: int = 10) -> dict[str, float]:
    """HR@k, the share of last items ranked among the first ``k``, and NDCG@k, which weighs them by rank."""
    hits = ranks <= k
    gains = np.where(hits, 1 / np.log2(ranks + 1), 0)
    return {f"HR@{k}{ending}": float(hits.mean()), f"NDCG@{k}{ending}": float(gains.mean())}


def leave_one_out_ranks(
    sequences: Sequence[Sequence[str]],
    config: SasRecSettings,
    seed: int,
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
        DataError: as :func:`train_sasrec`.
    """
    index = {item: i for i, item in enumerate(sorted({i for s in sequences for i in s}), start=1)}
    rows = [[index[item] for item in sequence] for sequence in sequences if len(sequence) > 1]
    known, targets = [row[:-1] for row in rows], np.array([row[-1] for row in rows], dtype=int)
    model = train_sasrec(known, len(index), config, seed)
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
            states = model(pad(known[part], model.max_length))[:, -1]
            scores = (states @ model.item_emb(items).T).numpy()
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=300)
    n_users = parser.parse_args().users
    table = pd.DataFrame(measure_quality(n_users, 10 * n_users)).T
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
