"""Settings: every group of every notebook, one line a field, and how presets fill them.

A preset is a file of ``params/``. Its section ``all`` is for every notebook that has such a group, a section
such as ``03_benchmark`` for one; later sections change earlier ones. ``laptop.yaml`` is complete, other
presets say what differs, and a notebook's parameters cell comes last.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from pwagents.errors import SettingsError
from pwagents.schema import Protocol

_LIBRARY = Path(__file__).resolve().parent
IS_CHECKOUT = (_LIBRARY.parents[1] / "params").is_dir()  # a wheel has them inside the package
ROOT = _LIBRARY.parents[1] if IS_CHECKOUT else Path.cwd()
PARAMS = (ROOT if IS_CHECKOUT else _LIBRARY) / "params"
COMPLETE = "laptop"  # the preset that every other one differs from
Pair = tuple[int, int]  # least and most
_FLAT = {"source": "data", "data_dir": "data"}  # parameters of a cell that belong to a group


def _least(lowest: int):
    def check(pair: Pair) -> Pair:
        if not lowest <= pair[0] <= pair[1]:
            raise ValueError(f"expected two whole numbers [least, most], {lowest} <= least <= most")
        return pair

    return AfterValidator(check)


def _player(*words: str):
    def check(name: str) -> str:
        if name not in words and not name.startswith(("openai:", "local:", "replay:")):
            raise ValueError(
                f"found {name!r}; expected {', '.join(words)}, openai:NAME, local:FOLDER or replay:NAME"
            )
        return name

    return AfterValidator(check)


Share = Annotated[float, Field(ge=0, le=1)]


def S(default: Any, meaning: str) -> Any:
    """Return the default and the meaning of a setting."""
    return Field(default, description=meaning)


class Group(BaseModel):
    """A group of settings: typed, immutable, and without names that there are not."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WorldSettings(Group):
    """The size and the difficulty of a synthetic world."""

    n_users: PositiveInt = S(300, "Users.")
    n_products: PositiveInt = S(3000, "Products.")
    history: Annotated[Pair, _least(3)] = S((5, 80), "Least and most behaviors of a user.")
    lengths: Literal["log-normal", "uniform"] = S("log-normal", "How history lengths are distributed.")
    interests: Annotated[Pair, _least(1)] = S((2, 15), "Least and most interests of a user.")
    drift: Share = S(0.5, "Probability that an interest's preferences change during the history.")
    completeness: Share = S(0.2, "Probability that an instruction names an attribute of the target.")
    repurchase: Share | None = S(None, "Probability of a repeat purchase; none: as habits have it.")


class DataSettings(WorldSettings):
    """Where the data come from."""

    source: Literal["synthetic", "amazon", "personalwab"] = S("synthetic", "Source of the data.")
    data_dir: str = S("", "Folder of the source's files; the synthetic world has none.")
    population: NonNegativeInt = S(0, "Further people, who only train the recommender.")
    categories: tuple[str, ...] = S((), "Categories to read; none: all (amazon).")

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
        return ROOT / Path(self.data_dir).expanduser()


class SasRecSettings(Group):
    """Shape and training of SASRec; the defaults are PersonalWAB's."""

    hidden: PositiveInt = S(50, "Width of the transformer.")
    blocks: PositiveInt = S(2, "Layers of the transformer.")
    heads: PositiveInt = S(2, "Attention heads of a layer.")
    max_length: PositiveInt = S(30, "Most recent items that the model sees.")
    dropout: Annotated[float, Field(ge=0, lt=1)] = S(0.5, "Dropout.")
    epochs: PositiveInt = S(1000, "Passes over the training sequences.")
    batch_size: PositiveInt = S(128, "Windows of purchases a step.")
    learning_rate: PositiveFloat = S(0.001, "Of Adam.")
    loss: Literal["bce", "cross_entropy"] = S("bce", "bce, as published, or cross_entropy over all items.")
    negatives: PositiveInt = S(1, "Sampled items a position, for bce.")


class ShopSettings(Group):
    """What an agent finds in the shop."""

    search_engine: Literal["bm25", "pyserini"] = S("bm25", "Lucene's ranking in Python, or Lucene.")
    observation: Literal["full", "compact"] = S("compact", "How much of a product a result shows.")
    max_tokens: PositiveInt = S(256, "Tokens of a text that are embedded.")
    rec_dates: PositiveInt = S(4, "Recommenders, each trained on purchases before another date.")
    recommender: SasRecSettings = S(SasRecSettings(), "Shape and training of SASRec.")


class Players(Group):
    """Who plays the agent, and who answers it."""

    policy: Annotated[str, _player("offline")] = S("offline", "Model of all prompting methods.")
    more_policies: tuple[Annotated[str, _player()], ...] = S((), "Further models, in rows of their own.")
    user: Annotated[str, _player("none", "rules")] = S("rules", "Who answers in the multi-turn track.")
    base_url: str = S("", "OpenAI-compatible endpoint; empty: OPENAI_BASE_URL, else OpenAI's.")
    endpoint: str = S("", "What records call the endpoint; empty: its URL.")
    sampling: dict[str, Any] = S({}, "Changes to what is sent with every request.")
    budget_usd: PositiveFloat = S(5.0, "US dollars at which a run stops.")
    budget_tokens: PositiveInt = S(20_000_000, "Tokens at which a run stops.")
    workers: PositiveInt = S(1, "Calls or episodes at a time.")


class PlaySettings(Group):
    """Which tasks are played, and how."""

    memory_length: PositiveInt = S(50, "Behaviors that a rule-based agent's memory recalls.")
    max_tasks: NonNegativeInt = S(0, "Test tasks, drawn at random; 0: all.")
    method_tasks: NonNegativeInt = S(600, "Tasks that the prompting methods play; 0: all.")
    noise_seeds: PositiveInt = S(3, "Seeds of one method, to measure seed noise.")
    worlds: tuple[NonNegativeInt, ...] = S((), "Seeds of further synthetic worlds.")
    protocols: tuple[Protocol, ...] = S(("leak_free",), "What agents may know, a row each.")
    published_items: tuple[NonNegativeInt, ...] = S((0,), "Remembered items as published; 0: the paper's.")
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    functions_file: str = S("", "JSON of instruction -> function, by PUMA's fine-tuned model.")


class NotebookSettings(Group):
    """What every notebook has."""

    preset: str = S(..., "The file of params/ that values come from.")
    output_dir: Path = S(..., "Where results go.")
    seed: NonNegativeInt = S(0, "Of data, sampling and training.")
    stored_runs_only: bool = S(False, "Play and train nothing; what is not stored is an error.")
    portable: bool = S(True, "Compute with AVX2 on one thread: the same numbers on other machines.")
    engine: Literal["local", "ray", "dask"] = S("local", "Where independent work runs.")
    data: DataSettings


class BenchmarkNotebook(NotebookSettings):
    """Notebook 03."""

    shop: ShopSettings
    players: Players
    play: PlaySettings


NOTEBOOKS: dict[str, type[NotebookSettings]] = {"03_benchmark": BenchmarkNotebook}


def load_settings(notebook: str, parameters: Mapping[str, Any]) -> Any:
    """Return the settings of a notebook: the preset's, changed by its parameters.

    Args:
        parameters: what the parameters cell assigns; an empty value leaves the preset's.

    Raises:
        SettingsError: a name, type or range is wrong; a line each, with notebook and setting.
    """
    kind, preset = NOTEBOOKS[notebook], parameters.get("preset") or COMPLETE
    presets = sorted(file.stem for file in PARAMS.glob("*.yaml"))
    if preset not in presets:
        raise SettingsError(f"{notebook}, preset: found {preset!r}; expected one of {', '.join(presets)}")
    values: dict[str, Any] = {"output_dir": "outputs/interactive"}
    for name in dict.fromkeys([COMPLETE, preset]):
        file = yaml.safe_load((PARAMS / f"{name}.yaml").read_text("utf-8"))
        shared = {key: value for key, value in file.get("all", {}).items() if key in kind.model_fields}
        values = _merge(_merge(values, shared), file.get(notebook, {}))
    for name, value in parameters.items():
        if value not in (None, "", {}):
            values = _merge(values, {_FLAT[name]: {name: value}} if name in _FLAT else {name: value})
    try:
        settings = kind(**values | {"preset": preset})
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            place = ".".join(map(str, problem["loc"]))
            lines.append(f"{notebook}, {place}: {problem['msg']} (found {problem['input']!r})")
        raise SettingsError("\n".join(lines)) from None
    return settings.model_copy(update={"output_dir": ROOT / settings.output_dir.expanduser()})


def rows(group: Group, name: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """Yield (group, setting, value, meaning) of all settings."""
    for field, info in type(group).model_fields.items():
        value = getattr(group, field)
        if isinstance(value, Group):
            yield from rows(value, f"{name}.{field}".lstrip("."))
        else:
            yield name, field, value, info.description or ""


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``old`` with the values of ``new``, groups merged name by name."""
    merged = dict(old)
    for name, value in new.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged
