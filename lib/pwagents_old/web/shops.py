"""The shops that tasks are played in: which recommender each task's user may be given.

Beside its data PersonalWAB published its recommender: SASRec trained on 19,005 Amazon users and 104,284
items, whose answers are restricted to the 35,772 products of ``1000_ids.json``. It was trained on the
benchmark itself (3.2.3): published protocol alone.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from pwagents.errors import DataError
from pwagents.schema import Benchmark, Protocol, Task
from pwagents_old.data.settings import DataSettings
from pwagents.embedding import Embedder
from pwagents_old.project import file_hash
from pwagents_old.web.functions import Shop
from pwagents_old.web.recommender import Recommender, RecommendersByTime
from pwagents.shop.search import build_search_engine
from pwagents_old.web.settings import SasRecSettings, ShopSettings

CHECKPOINT, ITEM_NUMBERS = "pwab.pth", "1000_ids.json"


class Shops:
    """A shop for each task: search engine and catalogue are shared, recommenders differ.

    Leak-free, a user gets the latest recommender that knows nothing from their first test task on. As
    published, everybody gets the recommender published with PersonalWAB, where its files are there: it was
    trained on the benchmark itself.

    Attributes:
        recommenders: by date, trained on strangers and on the benchmark's train periods.
        published: the shop with the published recommender; None where there is none.
    """

    def __init__(
        self, benchmark: Benchmark, settings: ShopSettings, data: DataSettings, seed: int, cache_dir: Path
    ):
        self.settings = settings
        self.engine = build_search_engine(benchmark.products, settings.search_engine, cache_dir)
        self.embedder = Embedder(cache_dir, max_tokens=512)  # as long as the published scorer reads a review
        self.recommenders = RecommendersByTime.fit(
            benchmark, settings.recommender, seed, settings.rec_dates, cache_dir
        )
        all_knowing = self.recommenders.at(float("inf"))
        latest = Shop(benchmark, self.engine, all_knowing, self.embedder, settings.observation)
        self._of_user = {
            user: replace(latest, recommender=self.recommenders.at(benchmark.first_task(user)))
            for user in {task.user_id for task in benchmark.tasks["test"]}
        }
        files = find_published(data.folder) if data.source == "personalwab" else None
        self.published, self._hashes = None, []
        if files is not None:
            self.published = replace(latest, recommender=load_published(*files, products=benchmark.products))
            self._hashes = [file_hash(file) for file in files]

    def of(self, task: Task, protocol: Protocol = "leak_free") -> Shop:
        """Return the shop that the task's user visits."""
        return (protocol == "published" and self.published) or self._of_user[task.user_id]

    def recommender_name(self, protocol: Protocol) -> str:
        """Return what tables say of the recommender."""
        if protocol == "leak_free":
            return f"SASRec trained here, {self.settings.recommender.loss} loss"
        return "the published checkpoint" if self.published else "as leak-free (no published checkpoint)"

    def params(self, protocol: Protocol) -> dict[str, Any]:
        """Return what tells runs with a published recommender from others, for the keys of records."""
        return {"published": self._hashes} if self.published and protocol == "published" else {}


def find_published(data_dir: Path | str) -> tuple[Path, Path] | None:
    """Find checkpoint and item numbers in a folder of downloads or a clone; None where either is missing."""
    folder, clone = Path(data_dir), Path(data_dir, "PersonalWAB/envs/pwab/functions/recommender")
    for checkpoint, numbers in ((folder, folder), (clone / "checkpoint", clone / "data")):
        if (checkpoint / CHECKPOINT).exists() and (numbers / ITEM_NUMBERS).exists():
            return checkpoint / CHECKPOINT, numbers / ITEM_NUMBERS
    return None


def load_published(checkpoint: Path, numbers: Path, products: Collection[str]) -> Recommender:
    """Load the published recommender, restricted to those of its products that are among ``products``.

    An earlier state of the code put the first id three times before fewer than four known ids; the latest, as
    here, does not. Departure: equal scores are ordered by id.

    Raises:
        DataError: a file that is no such checkpoint (no code of it is run), weights of another shape, or item
            numbers that the checkpoint does not have.
    """
    import torch

    from pwagents_old.web.sasrec import sasrec_from

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
