"""What data a notebook works on: which source, how much of it, and how hard the embedded world is."""

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt

from pwagents_old.data.synthetic.world import WorldConfig
from pwagents_old.project import project_path
from pwagents_old.settings import Names, settings, values_of

Source = Literal["synthetic", "amazon", "personalwab"]

_LABELS = {"synthetic": "embedded world", "amazon": "Amazon reviews", "personalwab": "PersonalWAB's files"}
_FILES = {
    "amazon": "reviews.jsonl.gz and meta.jsonl.gz, or the raw release's two files a category",
    "personalwab": "user_profiles.json, user_history_part_*.json, all_products_part_*.json and "
    "user_instructions.json",
}


@settings
class DataSettings(WorldConfig):
    """A source, and how much of it to take."""

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
    def world(self) -> WorldConfig:
        """Take the size and difficulty of the embedded world."""
        return WorldConfig(**values_of(WorldConfig, self))

    @property
    def folder(self) -> Path:
        """Find the folder of the source's files."""
        return project_path(self.data_dir)

    def require_files(self) -> None:
        """Check that the source's files are there; none is opened.

        Raises:
            ValueError: one line that names ``data_dir`` and the files that were expected there.
        """
        if self.source == "synthetic":
            return
        if not self.data_dir:
            needed = f"source {self.source!r} needs the folder of its files: {_FILES[self.source]}"
            raise ValueError(f"data_dir is empty; {needed}")
        if self.source == "amazon":
            from pwagents_old.data.amazon import find_files
        else:
            from pwagents_old.data.personalwab import find_files
        find_files(self.folder)
