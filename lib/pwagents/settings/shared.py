"""Settings of all notebooks but Orion's: groups that several have, and those of 02 to 04 and 09."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from pwagents.schema import Protocol
from pwagents.settings.group import (
    Group,
    LabelKind,
    Names,
    Numbers,
    Pair,
    Players,
    S,
    Seeds,
    Share,
    Shares,
    Variants,
    Worlds,
    at_least,
    player,
    project_path,
    values_of,
    variants_of,
)
from pwagents.settings.training import BaseSettings, DpoSettings, SftSettings


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
    baselines: Annotated[str, player("")] = S("", "Plays all multi-turn methods but PUMA; none: the policy.")
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
        (0,), "Remembered items, published: 10 as released; 0: as the paper has it (PUMA: 50, 20 multi-turn)."
    )
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    functions_file: str = S("", "JSON of instruction -> PUMA's function, seen from the output folder.")


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

    @model_validator(mode="after")
    def _check_dtype(self) -> Self:
        if self.portable and getattr(getattr(self, "players", None), "dtype", "") == "bfloat16":
            why = "portable holds torch to AVX2, where bfloat16 takes five times as long"
            raise ValueError(f"players.dtype: bfloat16 wants portable: false, as {why}; expected float32")
        return self


class ProfilesNotebook(NotebookSettings):
    """Notebook 02."""

    players: ProfilePlayers
    profiles: ProfileSettings


class BenchmarkNotebook(NotebookSettings):
    """Notebook 03."""

    shop: ShopSettings
    players: MethodPlayers
    play: PlaySettings


class PumaPlayers(Players):
    """Who plays a part beside the agent."""

    label_writer: Annotated[str, player("offline")] = S("openai:gpt-4o-mini", "Writes labels; or offline.")


class PumaStudySettings(Group):
    """Who is trained on, which variants, what is remembered, what is tested."""

    protocol: Protocol = S("published", "What may be known: published, all before a task; or leak_free.")
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    training_users: NonNegativeInt = S(0, "Further users to train on; the paper: 0, the benchmark's own.")
    train_tasks: NonNegativeInt = S(0, "Train tasks, drawn at random; 0 takes all.")
    labels: LabelKind = S("published", "What all rows but one learn from; the other has a row of its own.")
    pad_counts: bool = S(True, "Fill labels up and learn the padding, as published; a row has the other way.")
    # Few: PUMA, PUMA+ and PUMA without DPO. All: also each switch and each ablation by itself, other lengths
    # of the memory, and all seeds, all of which are trained.
    variants: Literal["few", "all"] = S("all", "few: PUMA, PUMA+, PUMA without DPO; all: also ablations.")
    seeds: Seeds = S((0,), "Of whole trainings, among all variants; data stay.")
    worlds: tuple[NonNegativeInt, ...] = S((), "Seeds of further synthetic worlds, among all variants.")
    memory_tokens: PositiveInt = S(768, "Tokens that a memory is cut to. The paper's best: 768.")
    memory_lengths: Numbers = S((256, 512), "Other lengths, among all variants. The paper's: 256 and 512.")
    max_new_tokens: PositiveInt = S(256, "Tokens of a parameter, at most.")
    test_tasks: NonNegativeInt = S(0, "Test tasks, drawn at random; 0 takes all.")
    timed_tasks: PositiveInt = S(100, "Tasks that are timed one by one. The paper's: 100.")
    batch_size: PositiveInt = S(8, "Prompts that are completed at once.")


# What variants of DPO may differ in: all else decides which pairs there are.
_OF_THE_TRAINING = {"name", "pairs", "trainer", "lora", "modules_to_save"}


class PreferenceSettings(DpoSettings):
    """DPO, and how the model's own parameters are sampled that it learns from."""

    train_tasks: NonNegativeInt = S(0, "Train tasks whose parameters are sampled; 0 takes all.")
    candidates: PositiveInt = S(10, "Beams, all of which are candidates.")
    independent: bool = S(False, "Independent samples in the place of sampled beams; vLLM knows no others.")
    temperature: PositiveFloat = S(1.5, "At which beams are sampled.")
    pairs: Literal["every_task", "differing"] = S("every_task", "differing: only of two that differ.")
    held_out: Share = S(0.0, "Share of these tasks whose pairs choose among the variants, not trained on.")
    variants: Variants = S((), "Other preferences to choose from, two at most: a name, and what differs.")

    @property
    def training(self) -> DpoSettings:
        """Return the settings of the training alone."""
        return DpoSettings(**values_of(DpoSettings, self))

    @property
    def varied(self) -> dict[str, Self]:
        """Return the name of each variant -> its settings, these first."""
        own = self.changed(variants=()) if self.variants else self
        return {"as set": own, **variants_of(self)}

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        if len(self.varied) > 3:  # raises where one is no change of this group
            raise ValueError("expected two variants at most: the best of many may be best by chance")
        others = {name for variant in self.variants for name in variant} - _OF_THE_TRAINING
        if others:
            raise ValueError(
                f"expected variants judged by the same pairs; they differ in {', '.join(others)}"
            )
        if self.variants and not self.held_out:
            raise ValueError("expected held_out above 0, as variants are chosen on tasks that are held out")
        return self


class PumaNotebook(NotebookSettings):
    """Notebook 04."""

    FOLLOWS: ClassVar[Mapping[str, str]] = {"identify.seed": "seed", "sft.seed": "seed", "dpo.seed": "seed"}

    shop: ShopSettings
    players: PumaPlayers
    base: BaseSettings
    study: PumaStudySettings
    identify: SftSettings
    sft: SftSettings
    dpo: PreferenceSettings

    def seeded(self, seed: int) -> Self:
        """Change the seed of all trainings and samples; data loaded with it are those of another world."""
        return self.changed(seed=seed, identify={"seed": seed}, sft={"seed": seed}, dpo={"seed": seed})


class HistorySettings(Group):
    """Browsing histories made offline: how much there is, and how hard preferences are to find in them."""

    n_users: PositiveInt = S(50, "Users. Persona2Web: 50.")
    records: PositiveInt = S(2051, "Records of a user, give or take a tenth. Persona2Web: 102,568 in all.")
    n_domains: Annotated[int, Field(ge=2, le=21)] = S(
        6, "Sub-domains of a user, of 21; half have few events."
    )
    consistency: Share = S(0.62, "Probability that a record shows the preferred value of a facet.")
    site_share: Share = S(0.55, "Probability that an event is on the preferred of a domain's three sites.")
    drift: Share = S(0.35, "Share of preferences against which the last three weeks speak: recency misleads.")
    literal: Share = S(0.0356, "Share of records that name a preferred value as it is. Persona2Web: 3.56%.")


class QuerySettings(Group):
    """Web tasks made of preferences."""

    tasks_per_user: PositiveInt = S(3, "Tasks of a user, each in another sub-domain. Persona2Web: 3.")


class WebDataSettings(Group):
    """Where users, histories and websites come from, and files of the authors to play on."""

    # The authors' files came without the truth to score a visit by: on them, requests are clarified alone.
    source: Literal["synthetic"] = S(..., "synthetic: made here.")
    data_dir: str = S("", "Checkout of the authors' repository, or a folder with queries.jsonl; empty: none.")

    @field_validator("data_dir")
    @classmethod
    def _check_files(cls, folder: str) -> str:
        if folder and not project_path(folder).is_dir():
            raise ValueError(f"data_dir {folder!r} is no folder")
        return folder


class WebPlayers(Players):
    """Who plays, writes and judges beside the offline agent, truth and rules; offline: nobody."""

    policy: Annotated[str, player("offline")] = S("offline", "A language model that plays.")
    more_policies: tuple[Annotated[str, player()], ...] = S((), "Further models, in rows of their own.")
    historian: Annotated[str, player("offline")] = S("offline", "Writes histories (paper: GPT-4o).")
    judge: Annotated[str, player("offline")] = S("offline", "Judges (paper: GPT-5-mini).")


class Dials(Group):
    """Values of what makes preferences hard to find, each tried with all others as in `histories`."""

    consistency: Shares = S(..., "Of how often records show the preferred value.")
    site_share: Shares = S(..., "Of how often events are on the preferred site.")
    drift: Shares = S(..., "Of the share of preferences against which the last weeks speak.")
    literal: Shares = S(..., "Of the share of records that name a preferred value.")


class WebStudySettings(Group):
    """What is played."""

    driver: Literal["html", "chromium"] = S("html", "html: without a browser, reading the same pages.")
    chromium_tasks: NonNegativeInt = S(20, "Tasks that are played once more in Chromium, where it is found.")
    retriever: str = S("minilm", "minilm, bm25, or the folder of a sentence-transformers model.")
    labels: str = S("", "A sheet of episodes that a person labeled, as the notebook writes it; empty: none.")
    max_tokens: PositiveInt = S(64, "Tokens of a record or question that are embedded (MiniLM: 256).")
    runs: PositiveInt = S(3, "Runs of the same episodes while pages fail. Persona2Web: 3, on the open web.")
    judged_tasks: PositiveInt = S(50, "Tasks on which judges are compared.")
    dials: Dials


class WebNotebook(NotebookSettings):
    """Notebook 09."""

    data: WebDataSettings
    histories: HistorySettings
    queries: QuerySettings
    players: WebPlayers
    study: WebStudySettings
