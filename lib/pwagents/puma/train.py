"""PUMA's trainings from data to model folders, each made once and found again by what it was made from.

models = PumaModels(settings, base, worlds.learned.content_hash)
identifier = models.identifier(tasks)                        step 1: instruction -> function
writer = models.fine_tuned("PUMA", examples)                 step 2: on pseudo-labels
pairs, counts = models.pairs(writer, items, ...)             its own samples, best and worst
writer = models.preferred("PUMA", writer, pairs)             step 2: DPO
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.agents.conversation import assistant
from pwagents.cache import cached, hash_of
from pwagents.embedding import Embedder
from pwagents.llm.folder import ADAPTER, read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.lm.card import write_card
from pwagents.lm.dpo import prefer
from pwagents.lm.fit import Plan, require_fit
from pwagents.lm.launch import launch
from pwagents.lm.load import merge
from pwagents.lm.settings import SftSettings, deciding
from pwagents.lm.sft import fine_tune
from pwagents.project import code_hash, write_aside
from pwagents.puma.agent import identify_messages, parameter_tools
from pwagents.puma.labels import Example, PumaTask
from pwagents.puma.pairs import (
    Candidate,
    Pair,
    make_pairs,
    pair_rows,
    sample_parameters,
    score_parameters,
)
from pwagents.puma.settings import PumaNotebook
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import FUNCTION_OF, Task
from pwagents.settings import plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAIRS = "pairs.json"
# The rooms that decide, beside data and settings, what comes out.
CODE = (
    "puma",
    "agents",
    "web",
    "profiles",
    "lm",
    "llm",
    "embedding",
    "schema",
    "seeds",
    "evaluation/metrics",
)


@dataclass(frozen=True)
class PumaModels:
    """Makes the models of a run, or finds them in ``<output_dir>/models``.

    With ``stored_runs_only`` a model that is not there is a ``DataError``.

    Args:
        settings: of the notebook.
        base: the folder of the model that all trainings start from.
        data: the content hash of what is learned from, for model cards.
    """

    settings: PumaNotebook
    base: Path
    data: str

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        return read_tokenizer(self.base)

    def count(self, text: str) -> int:
        """The number of tokens of a text, for :class:`pwagents.puma.agent.TaskMemory`."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def base_name(self) -> str:
        """The base model's folder and a hash of what is in it."""
        return LocalModel(self.base).name

    def name_of(self, folder: Path) -> str:
        """What a model is called in records; a trained one's folder is named by what it was made from."""
        return self.base_name if folder == self.base else folder.name

    def require_fit(self) -> list[str]:
        """What the trainings need of this machine, a line each.

        Raises:
            DoesNotFitError: it does not fit; the message says what would help.
        """
        trainings = {"Fine-tuning": self.settings.sft, "DPO": self.settings.dpo}
        return [
            f"{name}: {require_fit(self.base, Plan(tuning, tuning.trainer['max_length']))}"
            for name, tuning in trainings.items()
        ]

    def identifier(self, tasks: Sequence[Task]) -> Path:
        """Step 1: fine-tuned on instruction -> function."""
        conversations = [
            [*identify_messages(task.instruction), assistant(FUNCTION_OF[task.type])] for task in tasks
        ]
        rows = [{"messages": messages} for messages in conversations]
        what = "Names the web function that an instruction asks for: step 1 of PUMA."
        return self._fine_tuned("puma-function", what, rows, self.settings.identify)

    def fine_tuned(self, variant: str, examples: Sequence[Example]) -> Path:
        """Step 2, before DPO: fine-tuned on pseudo-labels.

        Args:
            variant: the agent's name in tables, for the model's card and folder.
        """
        rows = [
            {"messages": each.conversation, "tools": parameter_tools(each.item.function)} for each in examples
        ]
        what = (
            f"Writes the parameters of a web function from instruction and memory: PUMA's step 2 ({variant})."
        )
        return self._fine_tuned(_folder("puma-sft", variant), what, rows, self.settings.sft)

    def pairs(
        self,
        writer: Path,
        items: Sequence[PumaTask],
        start: StartEpisode,
        embedder: Embedder,
        shop: Mapping[str, Any],
    ) -> tuple[list[Pair], Counter]:
        """A model's answers to train tasks, sampled, scored and paired: the best with the worst.

        Args:
            writer: the folder of the model.
            start: begins the episodes that score; ``shop`` names what they run on, as JSON values.

        Returns:
            The pairs, and counts of tasks as of :func:`pwagents.puma.pairs.make_pairs`.
        """
        study, config = self.settings.study, self.settings.dpo

        def make(folder: Path) -> None:
            model = LocalModel(writer, batch_size=study.batch_size)
            sampled = sample_parameters(model, items, config, study.max_call_tokens)
            write_aside(folder / PAIRS, json.dumps(score_parameters(items, sampled, start, embedder)))

        parts = {
            "writer": self.name_of(writer),
            "inputs": hash_of([item.messages for item in items]),
            "tasks": [item.task.task_id for item in items],
            "sampling": [config.candidates, config.temperature, study.max_call_tokens, config.seed],
            "shop": dict(shop),
        }
        folder = self._cached("puma-samples", parts, make)
        candidates = json.loads((folder / PAIRS).read_text("utf-8"))
        return make_pairs(items, [[Candidate(*each) for each in many] for many in candidates])

    def preferred(self, variant: str, writer: Path, pairs: Sequence[Pair]) -> Path:
        """Step 2: DPO from the model of ``writer``, the reference; without pairs that model itself."""
        if not pairs:
            return writer
        config, name = self.settings.dpo.training, _folder("puma-dpo", variant)
        facts = {"data": self._data, "pairs": len(pairs), "from": writer.name}
        what = f"Writes the parameters of a web function: PUMA after DPO ({variant})."

        def make(folder: Path) -> None:
            whole = writer
            if (writer / ADAPTER).exists():
                parts = {"writer": self.name_of(writer)}
                whole = self._cached("puma-merged", parts, lambda made: merge(writer, made))
            given = {"model": whole, "rows": pair_rows(self.tokenizer, pairs), "settings": config}
            launch(prefer, given | {"folder": folder}, config.n_gpus, config.sharding)
            write_card(folder, name, what, facts, plain(config), base=str(self.base), tags=("puma", "dpo"))

        told = [[pair.conversation(pair.best), pair.conversation(pair.worst)] for pair in pairs]
        parts = {"writer": self.name_of(writer), "pairs": hash_of(told), "settings": deciding(config)}
        return self._cached(name, parts, make)

    @property
    def _data(self) -> str:
        return f"{self.settings.data.source}, {self.data}"

    def _fine_tuned(
        self, name: str, what: str, rows: Sequence[Mapping[str, Any]], config: SftSettings
    ) -> Path:
        facts = {"data": self._data, "examples": len(rows)}

        def make(folder: Path) -> None:
            given = {"base": self.base, "rows": rows, "settings": config, "folder": folder}
            launch(fine_tune, given, config.n_gpus, config.sharding)
            write_card(folder, name, what, facts, plain(config), base=str(self.base), tags=("puma", "sft"))

        return self._cached(name, {"examples": hash_of(list(rows)), "settings": deciding(config)}, make)

    def _cached(self, name: str, parts: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
        facts = {"base": self.base_name, "code": code_hash(*CODE), **parts}
        only = self.settings.stored_runs_only
        return cached(self.settings.output_dir / "models", name, facts, make, stored_only=only)


def _folder(kind: str, variant: str) -> str:
    """A name for a folder: "w/o SFT" becomes "puma-dpo-w-o-sft"."""
    return f"{kind}-{re.sub(r'[^a-z0-9]+', '-', variant.lower())}"
