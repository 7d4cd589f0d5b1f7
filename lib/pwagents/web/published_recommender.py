"""The recommender published with PersonalWAB: its checkpoint, its item numbers, its inference.

SASRec trained on 19,005 Amazon users and 104,284 items (50 hidden, 2 blocks, 2 heads, 30 items long), whose
answers are restricted to the 35,772 products of ``1000_ids.json``. What users bought later, their test
purchases included, was in its training: it belongs to the as-published protocol alone.
"""

import json
from collections.abc import Collection
from pathlib import Path

import torch

from pwagents.errors import DataError
from pwagents.web.recommender import Recommender
from pwagents.web.sasrec import SasRec
from pwagents.web.settings import SasRecSettings

CONFIG = SasRecSettings()  # the shape that was published
CHECKPOINT, ITEM_NUMBERS = "pwab.pth", "1000_ids.json"
# Where a clone of the official repository keeps the two.
_IN_REPOSITORY = Path("PersonalWAB/envs/pwab/functions/recommender")


def find_published(data_dir: Path | str) -> tuple[Path, Path] | None:
    """Checkpoint and item numbers in a folder of downloads or a clone; None where either is missing."""
    folder = Path(data_dir)
    clone = folder / _IN_REPOSITORY
    places = [(folder, folder), (clone / "checkpoint", clone / "data")]
    for checkpoint, numbers in ((a / CHECKPOINT, b / ITEM_NUMBERS) for a, b in places):
        if checkpoint.exists() and numbers.exists():
            return checkpoint, numbers
    return None


def load_published(checkpoint: Path, numbers: Path, products: Collection[str]) -> Recommender:
    """The published recommender, restricted to those of its products that are among ``products``.

    As published: the last 30 known ids count, and products of the sequence may be recommended again. An
    earlier state of the code put the first id three times before fewer than four known ids; the latest does
    not. Departure: equal scores are ordered by id.

    Raises:
        DataError: a file that is no such checkpoint (only weights are read, no code is run), weights of
            another shape, or item numbers that the checkpoint does not have.
    """
    weights = _read_weights(checkpoint)
    n_items = _check_weights(checkpoint, weights)
    with torch.random.fork_rng(devices=[]):  # building the model draws initial weights
        model = SasRec(n_items, CONFIG)
    model.load_state_dict(weights)
    return Recommender(model, _read_numbers(numbers, n_items), candidates=products)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken file makes torch raise nearly anything
        found = f"a file that cannot be read as weights ({str(error).strip().partition(chr(10))[0]})"
        raise DataError(path, "-", "(file)", found, "a PyTorch checkpoint that holds tensors alone") from None
    if not isinstance(weights, dict) or not all(isinstance(w, torch.Tensor) for w in weights.values()):
        raise DataError(path, "-", "(file)", type(weights).__name__, "named tensors (a state dict)")
    return weights


def _check_weights(path: Path, weights: dict[str, torch.Tensor]) -> int:
    """The number of items, after all names and shapes have been compared with the published ones."""
    items = weights.get("item_emb.weight")
    if items is None or items.dim() != 2 or len(items) < 3:
        found = "no such tensor" if items is None else tuple(items.shape)
        raise DataError(path, "item_emb.weight", "shape", found, "an embedding of at least two items")
    n_items = len(items) - 1
    with torch.device("meta"):  # shapes without the numbers
        expected = {name: tuple(w.shape) for name, w in SasRec(n_items, CONFIG).state_dict().items()}
    for name in sorted(expected.keys() | weights.keys()):
        found = tuple(weights[name].shape) if name in weights else "no such tensor"
        if found != expected.get(name):
            raise DataError(path, name, "shape", found, expected.get(name, "no such tensor"))
    return n_items


def _read_numbers(path: Path, n_items: int) -> dict[str, int]:
    """Product id -> item number."""
    expected = "one JSON object {product id: number}"
    try:
        numbers = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(path, "-", "(file)", f"no JSON ({error})", expected) from None
    if not isinstance(numbers, dict):
        raise DataError(path, "-", "(file)", type(numbers).__name__, expected)
    for product, number in numbers.items():
        if type(number) is not int or not 1 <= number <= n_items:
            raise DataError(path, product, "number", repr(number), f"a whole number from 1 to {n_items}")
    return numbers
