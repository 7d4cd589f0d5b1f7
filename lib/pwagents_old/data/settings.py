"""What data a notebook works on: which source, how much of it, and how hard the embedded world is."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, NonNegativeInt, PositiveInt, Strict

from pwagents.data import require_files
from pwagents.settings import WorldSettings
from pwagents_old.project import project_path
from pwagents_old.settings import Names, Share, settings

Source = Literal["synthetic", "amazon", "personalwab"]

_LABELS = {"synthetic": "embedded world", "amazon": "Amazon reviews", "personalwab": "PersonalWAB's files"}


def _check_pair(pair: tuple[int, int], lowest: int) -> tuple[int, int]:
    if not lowest <= pair[0] <= pair[1]:
        raise ValueError(f"expected two whole numbers [least, most], {lowest} <= least <= most")
    return pair


Pair = Annotated[tuple[int, int], Strict(False)]  # least and most; a list in YAML
# A history is split in three (the past, train and test), and each part needs a purchase.
History = Annotated[Pair, AfterValidator(partial(_check_pair, lowest=3))]
Interests = Annotated[Pair, AfterValidator(partial(_check_pair, lowest=1))]


@settings
class DataSettings:
    """A source, and how much of it to take."""

    n_users: PositiveInt = 300
    """Users; amazon and personalwab may have fewer."""

    n_products: PositiveInt = 3000
    """Products; with amazon and personalwab, others fill up what the users bought to this number."""

    history: History = (5, 80)
    """Least and most behaviours of a user, train and test purchases included; amazon heeds the least alone,
    personalwab neither."""

    lengths: Literal["log-normal", "uniform"] = "log-normal"
    """How many behaviours users have between these two (synthetic): most few and some many, or any alike."""

    interests: Interests = (2, 15)
    """Least and most interests of a user (synthetic); longer histories have more."""

    drift: Share = 0.5
    """Probability that an interest's preferences change during the history (synthetic)."""

    completeness: Share = 0.2
    """Probability that an instruction names an attribute of what is wanted (synthetic)."""

    repurchase: Share | None = None
    """Probability that a purchase repeats an earlier one, all others being of products new to the user
    (synthetic); 0: nothing is bought twice, as a negative control; none: as habits have it."""

    source: Source
    """synthetic (the embedded world), amazon (raw Amazon Reviews 2023) or personalwab (as published)."""

    data_dir: str = ""
    """Folder of the source's files, seen from the project's root; the embedded world has none."""

    population: NonNegativeInt = 0
    """Strangers to the benchmark, whose earlier purchases train the recommender beside those of its users;
    amazon: at most so many users who were not sampled; personalwab has none."""

    categories: Names = ()
    """Categories to take users and products from; none takes all (amazon)."""

    @property
    def label(self) -> str:
        """Name the data for tables."""
        return _LABELS[self.source]

    @property
    def world(self) -> WorldSettings:
        """Take the size and difficulty of the synthetic world."""
        return WorldSettings(**{name: getattr(self, name) for name in WorldSettings.model_fields})

    @property
    def folder(self) -> Path:
        """Find the folder of the source's files."""
        return project_path(self.data_dir)

    def require_files(self) -> None:
        """Check that the source's files are there; none is opened.

        Raises:
            ValueError: one line that names ``data_dir`` and the files that were expected there.
        """
        require_files(self)
