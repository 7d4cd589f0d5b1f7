"""PUMA's trainings from data to model folders, each made once and found again by what it was made from.

identifier = fit_identifier(recipe, tasks)                        step 1: instruction -> function
writer = fit_parameters(recipe, "full", examples)                 step 2: fine-tuned on pseudo-labels
pairs, counts = sample_pairs(recipe, "full", writer, items, ...)  its own samples, best and worst
writer = fit_preferences(recipe, "full", writer, pairs)           step 2: DPO
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.agents.conversation import assistant
from pwagents.embedding import Embedder
from pwagents.errors import DataError
from pwagents.llm.local_model import LocalModel
from pwagents.lm.cache import cached_model, write_card
from pwagents.lm.dpo import tokenize_pairs
from pwagents.lm.launch import launch
from pwagents.lm.settings import DpoSettings, SftSettings, deciding
from pwagents.lm.tokens import tokenize_conversation
from pwagents.project import code_hash, write_aside
from pwagents.puma.agent import identify_messages, parameter_tools
from pwagents.puma.labels import Example, PumaTask
from pwagents.puma.pairs import (
    Candidate,
    Diversity,
    Pair,
    make_pairs,
    sample_parameters,
    score_parameters,
)
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import Task
from pwagents.web.functions import FUNCTION_OF

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

PAIRS = "pairs.json"
# What decides, beside data and settings, what comes out.
CODE = (
    "orion/agent",
    "puma/agent",
    "agents/replies",
    "embedding",
    "llm",
    "lm/tokens",
    "lm/load",
    "lm/dpo",
    "puma/pairs",
    "lm/settings",
    "lm/sft",
    "web",
)


@dataclass(frozen=True)
class PumaRecipe:
    """What all trainings of a run share.

    Args:
        base: the folder of the base model.
        identifying, labelled: fine-tuning of step 1 and of step 2.
        diversity, preferences: of DPO.
        models: where the trained models go.
        data: the name of the data, for model cards.
        batch_size: samples at once.
        n_gpus: to train on; each holds all of the model ("ddp"), as only adapters are trained.
        stored_only: train nothing; every model must be there.
    """

    base: Path
    identifying: SftSettings
    labelled: SftSettings
    diversity: Diversity
    preferences: DpoSettings
    models: Path
    data: str
    batch_size: int = 64
    n_gpus: int = 1
    stored_only: bool = False

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.base, local_files_only=True)

    @cached_property
    def base_name(self) -> str:
        """The base model's folder and a hash of what is in it."""
        return LocalModel(self.base).name

    def name_of(self, folder: Path) -> str:
        """What a model is called in records; a trained one's folder is named by what it was made from."""
        return self.base_name if folder == self.base else folder.name

    def count(self, text: str) -> int:
        """The number of tokens of a text, for :class:`pwagents.puma.agent.TaskMemory`."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def fit_identifier(recipe: PumaRecipe, tasks: Sequence[Task]) -> Path:
    """Step 1: fine-tune on instruction -> function."""
    conversations = [
        [*identify_messages(task.instruction), assistant(FUNCTION_OF[task.type])] for task in tasks
    ]
    examples = [tokenize_conversation(recipe.tokenizer, messages) for messages in conversations]
    what = "Names the web function that an instruction asks for: step 1 of PUMA."
    return _fine_tuned(recipe, "puma-function", what, examples, recipe.identifying)


def fit_parameters(recipe: PumaRecipe, name: str, examples: Sequence[Example]) -> Path:
    """Step 2, before DPO: fine-tune on pseudo-labels. ``name`` says which."""
    tokens = [
        tokenize_conversation(recipe.tokenizer, e.conversation, parameter_tools(e.item.function))
        for e in examples
    ]
    what = f"Writes the parameters of a web function from instruction and memory: step 2 of PUMA ({name})."
    return _fine_tuned(recipe, f"puma-sft-{name}", what, tokens, recipe.labelled)


def _fine_tuned(recipe: PumaRecipe, name: str, what: str, examples, config: SftSettings) -> Path:
    facts = {"data": recipe.data, "examples": len(examples)}

    def make(folder: Path) -> None:
        given = {"model": str(recipe.base), "examples": examples, "config": asdict(config)}
        given["out_folder"] = str(folder)
        launch("pwagents.lm.sft:train_on_plain", given, recipe.n_gpus, "ddp")
        write_card(folder, name, what, facts, asdict(config), base=str(recipe.base), tags=("puma", "sft"))

    parts = {"examples": _digest(examples)} | _settings(recipe, config)
    return _cached(recipe, name, parts, make)


def sample_pairs(
    recipe: PumaRecipe,
    name: str,
    writer: Path,
    items: Sequence[PumaTask],
    start: StartEpisode,
    embedder: Embedder,
    shop: Mapping[str, Any],
) -> tuple[list[Pair], Counter]:
    """Let a model answer train tasks in different ways, score the answers, and pair the best with the worst.

    Args:
        writer: the folder of the model to be improved.
        start: begins the episodes that score; ``shop`` names what they run on, as JSON values.

    Returns:
        The pairs, and counts of tasks as of :func:`pwagents.puma.pairs.make_pairs`.
    """

    def make(folder: Path) -> None:
        model = LocalModel(writer, batch_size=recipe.batch_size)
        sampled = sample_parameters(model, items, recipe.diversity)
        candidates = score_parameters(items, sampled, start, embedder)
        rows = [
            {"task_id": item.task.task_id, "candidates": many}
            for item, many in zip(items, candidates, strict=True)
        ]
        write_aside(folder / PAIRS, json.dumps(rows))

    parts = {
        "writer": recipe.name_of(writer),
        "inputs": _digest([item.messages for item in items]),
        "tasks": [item.task.task_id for item in items],
        "diversity": asdict(recipe.diversity),
        "shop": dict(shop),
    }
    folder = _cached(recipe, f"puma-samples-{name}", parts, make)
    rows = json.loads((folder / PAIRS).read_text("utf-8"))
    return make_pairs(items, [[Candidate(*each) for each in row["candidates"]] for row in rows])


def fit_preferences(recipe: PumaRecipe, name: str, writer: Path, pairs: Sequence[Pair]) -> Path:
    """Step 2: DPO from the model of ``writer``, which is the reference."""
    config = recipe.preferences
    facts = {"data": recipe.data, "pairs": len(pairs), "from": writer.name}
    what = f"Writes the parameters of a web function: PUMA after DPO ({name})."

    def make(folder: Path) -> None:
        tokens = tokenize_pairs(recipe.tokenizer, pairs, config.max_length)
        given = {"model": str(writer), "tokens": tokens, "config": asdict(config), "out_folder": str(folder)}
        launch("pwagents.lm.dpo:train_on_plain", given, recipe.n_gpus, "ddp")
        title = f"puma-dpo-{name}"
        write_card(folder, title, what, facts, asdict(config), base=str(recipe.base), tags=("puma", "dpo"))

    parts = {
        "writer": recipe.name_of(writer),
        "pairs": _digest([[p.conversation(p.best), p.conversation(p.worst)] for p in pairs]),
    }
    return _cached(recipe, f"puma-dpo-{name}", parts | _settings(recipe, config), make)


def training_logs(folders: Mapping[str, Path]) -> "pd.DataFrame":
    """What trainings logged: ``training`` (the key), ``step``, ``loss`` and more."""
    import pandas as pd

    logs = [
        pd.read_csv(folder / "log.csv").assign(training=name)
        for name, folder in folders.items()
        if (folder / "log.csv").exists()  # a base model that was not trained here has none
    ]
    return pd.concat(logs, ignore_index=True)


def not_falling(logs: "pd.DataFrame") -> list[str]:
    """Trainings that did not learn: over the last third of its rows the loss is not below the first row's.

    A log of a single row, of a training of a few steps, says nothing and is passed over.
    """
    idle = []
    for name, log in logs.groupby("training", sort=False):
        last = log["loss"].tail(max(1, len(log) // 3))
        if len(log) > 1 and not last.mean() < log["loss"].iloc[0]:
            idle.append(name)
    return idle


def _settings(recipe: PumaRecipe, config: SftSettings | DpoSettings) -> dict[str, Any]:
    """What of a configuration decides the weights."""
    return {"settings": deciding(config)} | ({"gpus": recipe.n_gpus} if recipe.n_gpus > 1 else {})


def _cached(recipe: PumaRecipe, name: str, parts: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
    def refuse(folder: Path) -> None:
        expected = "all trainings stored; run once with stored_runs_only=False, same params, same data"
        raise DataError(recipe.models, name, "model", "nothing", expected)

    facts = {"base": recipe.base_name, "code": code_hash(*CODE), **parts}
    return cached_model(recipe.models, name, facts, refuse if recipe.stored_only else make)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
