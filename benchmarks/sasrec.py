"""Speed, memory and, with ``--quality``, accuracy of the recommender on made-up purchases.

python benchmarks/sasrec.py            about a minute on one core
python benchmarks/sasrec.py --quality  about five minutes
"""

import argparse
import resource
import time
from dataclasses import replace

import numpy as np
import torch

from pwagents.portable import one_core
from pwagents.web.leave_one_out import evaluate_leave_one_out
from pwagents.web.recommender import Recommender
from pwagents.web.sasrec import SasRec, train_epoch, training_windows
from pwagents.web.settings import SasRecSettings

# Schedules that learn from a few hundred users; the published one takes thousands of small steps.
PUBLISHED = SasRecSettings(epochs=200)
SMALL = SasRecSettings(batch_size=32, learning_rate=0.003)
SCHEDULES = {
    "bce, published rates": PUBLISHED,
    "bce": replace(SMALL, epochs=60),
    "gbce": replace(SMALL, loss="gbce", negatives=64, gbce_t=0.75, epochs=60),
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


def measure_sasrec(n_users: int = 1000, n_items: int = 36_000, mean_length: int = 30) -> dict:
    """Seconds an epoch for each loss, median milliseconds a recommendation, the process's peak memory in MiB.

    Every loss sees the same batches of 32 windows; 128 of them would take gigabytes for the softmax over
    36,000 items.
    """
    sequences = made_up_sequences(n_users, n_items, mean_length, seed=0)
    rows = [[int(item[1:]) + 1 for item in sequence] for sequence in sequences]
    windows = training_windows(rows, SMALL.max_length)
    seconds = {}
    for config in (SMALL, replace(SMALL, loss="gbce", negatives=64), replace(SMALL, loss="cross_entropy")):
        seconds[config.loss] = seconds_per_epoch(windows, n_items, config)
    recommender = Recommender(SasRec(n_items, SMALL), {f"p{i:06d}": i + 1 for i in range(n_items)})
    single = [seconds_of(recommender.recommend, s) for s in sequences[:200]]
    return {
        "seconds_per_epoch": seconds,
        "ms_per_recommend": 1000 * float(np.median(single)),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def seconds_per_epoch(windows: torch.Tensor, n_items: int, config: SasRecSettings) -> float:
    """Of training on one core, after a first batch that warms up."""
    model = SasRec(n_items, config).train()
    optimizer = torch.optim.Adam(model.parameters())
    with one_core():
        train_epoch(model, optimizer, windows[: config.batch_size], config)
        return seconds_of(train_epoch, model, optimizer, windows, config)


def seconds_of(function, *args) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def measure_quality(n_users: int = 300, n_items: int = 3000, mean_length: int = 30, worlds: int = 3) -> dict:
    """HR@10 and NDCG@10 of each schedule and of the floors, mean over worlds, with seconds of training."""
    results: dict[str, list[dict]] = {}
    for seed in range(worlds):
        sequences = made_up_sequences(n_users, n_items, mean_length, seed)
        for name, config in SCHEDULES.items():
            start = time.perf_counter()
            scores = evaluate_leave_one_out(sequences, config, seed)
            row = {**scores.pop("sasrec"), "seconds": time.perf_counter() - start}
            results.setdefault(f"sasrec, {name}", []).append(row)
        for floor, row in scores.items():
            results.setdefault(floor, []).append({**row, "seconds": 0.0})
    return {
        name: {m: float(np.mean([r[m] for r in rows])) for m in rows[0]} for name, rows in results.items()
    }


def print_speed() -> None:
    measured = measure_sasrec()
    for loss, seconds in measured.pop("seconds_per_epoch").items():
        print(f"{'seconds per epoch, ' + loss:<34}{seconds:8.2f}")
    for name, value in measured.items():
        print(f"{name.replace('_', ' '):<34}{value:8.2f}")


def print_quality() -> None:
    print(f"{'':<30}   HR@10  NDCG@10  seconds")
    for name, row in measure_quality().items():
        print(f"{name:<30}{row['HR@10']:8.3f}{row['NDCG@10']:9.3f}{row['seconds']:9.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quality", action="store_true", help="accuracy of each loss instead of its speed")
    (print_quality if parser.parse_args().quality else print_speed)()


if __name__ == "__main__":
    main()
