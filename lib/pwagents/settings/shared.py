"""Groups that several notebooks have, and the settings of notebooks 00 to 03."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from pwagents.schema import Protocol
from pwagents.settings.group import (
    Group,
    Names,
    Pair,
    Players,
    S,
    Share,
    Worlds,
    at_least,
    player,
    project_path,
)


class WorldSettings(Group):
    """The size and the difficulty of a synthetic world."""

    n_users: PositiveInt = S(300, "Users; amazon and personalwab may have fewer.")
    n_products: PositiveInt = S(3000, "Products; of other sources, what users bought and more.")
    history: Annotated[Pair, at_least(3)] = S((5, 80), "Least and most behaviors of a user.")
    lengths: Literal["log-normal", "uniform"] = S("log-normal", "How history lengths are distributed.")
    interests: Annotated[Pair, at_least(1)] = S((2, 15), "Least and most interests of a user.")
    drift: Share = S(0.5, "Probability that an interest's preferences change during the history.")
    completeness: Share = S(0.2, "Probability that an instruction names an attribute of the target.")
    repurchase: Share | None = S(None, "Probability of a repeat purchase; none: follows each user's habits.")


class DataSettings(WorldSettings):
    """Where the data come from."""

    source: Literal["synthetic", "amazon", "personalwab"] = S("synthetic", "Source of the data.")
    data_dir: str = S("", "Folder of the source's files; the synthetic world has none.")
    population: NonNegativeInt = S(0, "Further people, who only train the recommender.")
    categories: Names = S((), "Categories to read; none: all (amazon).")

    @property
    def label(self) -> str:
        """Return what tables call the source."""
        others = {"amazon": "Amazon reviews", "personalwab": "PersonalWAB's files"}
        return others.get(self.source, "embedded world")

    @property
    def folder(self) -> Path:
        """Return the folder of the source's files, seen from the project's root."""
        return project_path(self.data_dir)


class SasRecSettings(Group):
    """Training of SASRec; the defaults are PersonalWAB's."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = S(0.5, "Dropout.")
    epochs: PositiveInt = S(1000, "Passes over the training sequences.")
    learning_rate: PositiveFloat = S(0.001, "Learning rate of Adam.")
    loss: Literal["bce", "cross_entropy"] = S("bce", "bce, as published, or cross_entropy over all items.")


class ShopSettings(Group):
    """What an agent finds in the shop."""

    search_engine: Literal["bm25", "pyserini"] = S("bm25", "Lucene's ranking in Python, or Lucene.")
    observation: Literal["full", "compact"] = S("compact", "How much of a product a result shows.")
    max_tokens: PositiveInt = S(256, "Tokens of a text that are embedded.")
    rec_dates: PositiveInt = S(4, "Recommenders, each trained on purchases before another date.")
    recommender: SasRecSettings = S(SasRecSettings(), "Training of SASRec.")


class MethodPlayers(Players):
    """Who plays the agent, and who answers it."""

    policy: Annotated[str, player("offline")] = S("offline", "Plays all prompting methods; offline: rules.")
    more_policies: tuple[Annotated[str, player()], ...] = S((), "Further models, in rows of their own.")
    user: Annotated[str, player("none", "rules")] = S("rules", "Who answers in the multi-turn track.")


class ProfilePlayers(Players):
    """Who makes, updates and judges profiles; offline: statistics and rules. Both papers: gpt-4o-mini."""

    profiler: Annotated[str, player("offline")] = S("offline", "Writes profiles.")
    updater: Annotated[str, player("offline")] = S("offline", "Updates profiles in a conversation.")
    writer: Annotated[str, player("offline")] = S("offline", "Writes instructions from profiles.")
    judge: Annotated[str, player("offline")] = S("offline", "Judges profiles; offline: MiniLM.")


class ProfileSettings(Group):
    """How profiles are made."""

    max_tokens: PositiveInt = S(256, "Tokens of an item or instruction that are embedded (MiniLM: 256).")


class PlaySettings(Group):
    """Which tasks are played, and how."""

    max_tasks: NonNegativeInt = S(0, "Test tasks, drawn at random; 0: all.")
    method_tasks: NonNegativeInt = S(600, "Tasks that the prompting methods play; 0: all.")
    worlds: Worlds = S((), "Seeds of further synthetic worlds.")
    protocols: Annotated[tuple[Protocol, ...], Field(min_length=1)] = S(
        ("leak_free",), "Protocols to play: leak_free, published. Each is a row."
    )
    published_items: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = S(
        (0,), "Remembered items under the published protocol; 0: the paper's number."
    )
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    functions_file: str = S("", "JSON of instruction -> function, by PUMA's fine-tuned model.")


class NotebookSettings(Group):
    """What every notebook has."""

    SECTION: ClassVar[str] = ""  # of the presets, beside "all" and the notebook's own
    FOLLOWS: ClassVar[Mapping[str, str]] = {}  # setting -> the one that it equals unless it is given

    preset: str = S(..., "The file of params/ that values come from.")
    output_dir: Path = S(..., "Where results go.")
    seed: NonNegativeInt = S(..., "Random seed of data, sampling and training.")
    stored_runs_only: bool = S(False, "Play and train nothing; what is not stored is an error.")
    portable: bool = S(True, "Compute with AVX2 on one thread: the same numbers on other machines.")
    engine: Literal["local", "ray", "dask"] = S("local", "Where independent work runs: here or on a cluster.")
    data: DataSettings


class ProfilesNotebook(NotebookSettings):
    """Notebook 02."""

    players: ProfilePlayers
    profiles: ProfileSettings


class BenchmarkNotebook(NotebookSettings):
    """Notebook 03."""

    shop: ShopSettings
    players: MethodPlayers
    play: PlaySettings
