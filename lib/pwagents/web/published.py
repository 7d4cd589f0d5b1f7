"""What PersonalWAB published beside its data: its recommender's checkpoint.

The recommender is SASRec trained on 19,005 Amazon users and 104,284 items, whose answers are restricted to
the 35,772 products of ``1000_ids.json``. It was trained on the benchmark itself (3.2.3): published protocol
alone.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter

from pwagents.errors import DataError
from pwagents.web.settings import SasRecSettings

if TYPE_CHECKING:
    from pwagents.web.recommender import Recommender

CHECKPOINT, ITEM_NUMBERS = "pwab.pth", "1000_ids.json"


def find_published(data_dir: Path | str) -> tuple[Path, Path] | None:
    """Find checkpoint and item numbers in a folder of downloads or a clone; None where either is missing."""
    folder, clone = Path(data_dir), Path(data_dir, "PersonalWAB/envs/pwab/functions/recommender")
    for checkpoint, numbers in ((folder, folder), (clone / "checkpoint", clone / "data")):
        if (checkpoint / CHECKPOINT).exists() and (numbers / ITEM_NUMBERS).exists():
            return checkpoint / CHECKPOINT, numbers / ITEM_NUMBERS
    return None


def load_published(checkpoint: Path, numbers: Path, products: Collection[str]) -> "Recommender":
    """Load the published recommender, restricted to those of its products that are among ``products``.

    An earlier state of the code put the first id three times before fewer than four known ids; the latest, as
    here, does not. Departure: equal scores are ordered by id.

    Raises:
        DataError: a file that is no such checkpoint (no code of it is run), weights of another shape, or item
            numbers that the checkpoint does not have.
    """
    import torch

    from pwagents.web.recommender import Recommender
    from pwagents.web.sasrec import sasrec_from

    try:
        weights = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model = sasrec_from(weights, SasRecSettings())  # the shape that was published
    except Exception as error:  # a broken file makes torch raise nearly anything
        expected = "the weights of PersonalWAB's SASRec, and nothing else"
        raise DataError(checkpoint, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    n_items = model.item_emb.num_embeddings - 1
    try:
        number = Annotated[int, Field(ge=1, le=n_items, strict=True)]
        index = TypeAdapter(dict[str, number]).validate_json(numbers.read_bytes())
    except ValueError as error:
        expected = f"one JSON object {{product id: a number from 1 to {n_items}}}"
        raise DataError(numbers, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    return Recommender(model, index, candidates=products)
