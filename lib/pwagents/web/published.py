"""What PersonalWAB published beside its data: its recommender's checkpoint, and its grader.

The recommender is SASRec trained on 19,005 Amazon users and 104,284 items, whose answers are restricted to
the 35,772 products of ``1000_ids.json``. It learned from test purchases, too: as-published protocol alone.

The grader follows the published code. Tables use ours (:mod:`pwagents.evaluation.metrics`), unless they say
this one's name. Where the two differ:

- A call of the right function counts, also with an empty text, or with a text where a list of ids is
  expected; ours wants well-formed parameters. Both give 0 where the function itself fails.
- A target at rank r of n results is worth 1 - (r - 1) / n; ours divides by ten, as in equation 1.
- The target is found by its id within the text of a result, maybe another product's; ours compares ids.
- A review is worth its cosine with the real one, below 0 too; ours is clipped to 0.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from pwagents.errors import DataError
from pwagents.schema import FUNCTION_OF, Action, Task
from pwagents.web.functions import RESULTS, Shop
from pwagents.web.search import product_text
from pwagents.web.settings import SasRecSettings

if TYPE_CHECKING:
    from pwagents.web.recommender import Recommender

CHECKPOINT, ITEM_NUMBERS = "pwab.pth", "1000_ids.json"
GRADER = "PersonalWAB's code 1"  # its name in tables; the number is raised when this file's reading changes


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


class Score(NamedTuple):
    function: float
    result: float


def published_score(shop: Shop, task: Task, action: Action) -> Score:
    """Grade one call as the published environment and its scorer do: function and result accuracy."""
    # Each published function takes one argument, of whatever name.
    if action.name != FUNCTION_OF[task.type] or len(action.arguments) != 1:
        return Score(0.0, 0.0)
    (argument,) = action.arguments.values()
    if not isinstance(argument, str | list if task.type == "recommend" else str):
        return Score(0.0, 0.0)
    if task.type == "review":
        return Score(1.0, shop.embedder.cosine(argument, task.review.text))
    if task.type == "search":
        asins = [asin for asin, _ in shop.search_engine.search(argument, RESULTS)]
    else:
        asins = shop.recommender.recommend(list(argument), RESULTS)  # of a text, its letters
    # It looks for the id in the text of each result, and divides by their number.
    texts = [product_text(shop.benchmark.products[asin]) for asin in asins]
    ranks = [i for i, text in enumerate(texts) if task.target in text]
    return Score(1.0, 1 - ranks[0] / len(texts) if ranks else 0.0)
