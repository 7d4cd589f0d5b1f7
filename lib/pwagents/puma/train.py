"""PUMA's trainings (PersonalWAB, 5.2), from labels to models; each is made once and found again by its key.

models = PumaModels(study)
identifier = models.identifier()                    step 1: instruction -> function
writer = models.fine_tuned(method)                  step 2: on labels
pairs = models.pairs(writer, method)                its own candidates, best and worst
writer = models.preferred(writer, pairs, ...)       step 2: DPO

Departures from ``PUMA/scripts``: 1. bfloat16 in the place of float16, whose loss overflows without scaling.
2. Step 1 and step 2 are two models, as with the script's ``--train_on`` function and param.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pwagents.cache import cached, hash_of
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.llm.local_model import LocalModel
from pwagents.lm.complete import complete
from pwagents.lm.dpo import evaluate_pairs, prefer
from pwagents.lm.launch import launch
from pwagents.lm.load import merge
from pwagents.lm.settings import SftSettings, deciding
from pwagents.lm.sft import fine_tune
from pwagents.project import code_hash, write_aside
from pwagents.puma.agent import completion_of
from pwagents.puma.labels import Begun
from pwagents.puma.pairs import Pair, choose_pair, score_texts
from pwagents.puma.settings import Method, PreferenceSettings
from pwagents.puma.study import PumaStudy
from pwagents.settings import plain

SCORES = "scores.json"
CODE = ("lm",)  # what decides a training beside its rows
SCORED = ("puma", "web", "embedding", "schema", "evaluation/metrics")  # and a candidate's score
Row = dict[str, str]


class Trained(NamedTuple):
    """The models of one variant: of its two steps, and of step 2 before preferences."""

    identifier: Path
    writer: Path
    before_dpo: Path


@dataclass(frozen=True)
class PumaModels:
    """Makes the models of a run, or finds them in ``<output_dir>/models``.

    With ``stored_runs_only`` a model that is not there is a ``DataError``.
    """

    study: PumaStudy

    @cached_property
    def base_name(self) -> str:
        """The base model's folder and a hash of what is in it."""
        return LocalModel(self.study.base).name

    def name_of(self, folder: Path) -> str:
        """Name a model for records; a trained one's folder is named by what it was made from."""
        return self.base_name if folder == self.study.base else folder.name

    def identifier(self) -> Path:
        """Fine-tune step 1: instruction -> function."""
        prompts = self.study.prompts
        rows = [
            {"prompt": prompts.identify(begun.state.instruction), "completion": begun.function}
            for begun in self.study.begun
        ]
        return self._fine_tuned("puma-function", rows, self.study.settings.identify)

    def rows(self, method: Method) -> list[Row]:
        """Write the labels as prompts and completions; labels that a method cannot say are left out."""
        rows = []
        for label in self.study.labels(method.labels)[0]:
            recall = self.study.recall(label.begun, method)
            completion = completion_of(label.parameter, recall, method)
            if completion.strip():
                rows.append({"prompt": self._prompt(label.begun, method), "completion": completion})
        return rows

    def fine_tuned(self, method: Method) -> Path:
        """Fine-tune step 2 on labels; without SFT it is the base model."""
        if not method.sft:
            return self.study.base
        return self._fine_tuned("puma-sft", self.rows(method), self.study.settings.sft, method.pad_counts)

    def pairs(self, writer: Path, method: Method, preferences: PreferenceSettings) -> list[Pair]:
        """Sample a model's parameters for train tasks, score and pair them.

        Which tasks these are, the study's seed says: they are the same with every seed of the trainings.
        """
        study, config = self.study, preferences
        begun = sample_tasks(study.begun, config.train_tasks, study.seed)
        recalls = [study.recall(each, method) for each in begun]
        # Published: the product of a review is left out wherever a model generates.
        told = study.protocol == "leak_free"
        prompts = [self._prompt(each, method, with_product=told) for each in begun]
        sampling = {
            "max_new_tokens": study.settings.study.max_new_tokens,
            "temperature": config.temperature,
            "beams": config.candidates,
            "returned": config.candidates,
            "seed": config.seed,
        }

        def make(folder: Path) -> None:
            # Of the whole model, which DPO starts from: vLLM takes no adapter with embeddings of its own.
            size, store = study.settings.study.batch_size, folder / "completions.jsonl"
            texts = complete(self._merged(writer), prompts, batch_size=size, store=store, **sampling)
            embedder = study.learning_shop.embedder
            scores = score_texts(begun, recalls, texts, method, study.protocol, study.start, embedder)
            write_aside(folder / SCORES, json.dumps(scores))

        key = {
            "writer": self.name_of(writer),
            "prompts": hash_of(prompts),
            "ids": method.ids,
            "sampling": sampling,
            "shop": {
                "data": study.worlds.learned.content_hash,
                "shop": plain(study.settings.shop),
                "protocol": study.protocol,
                "seed": study.seed,
            },
            "code": code_hash(*CODE, *SCORED),
        }
        scores = json.loads((self._cached("puma-samples", key, make) / SCORES).read_text("utf-8"))
        pairs = [choose_pair(each, many) for each, many in zip(begun, scores, strict=True)]
        return [pair for pair in pairs if config.pairs == "every_task" or pair.outcome == "differs"]

    def preferred(
        self, writer: Path, pairs: Sequence[Pair], method: Method, preferences: PreferenceSettings
    ) -> Path:
        """Train step 2 by DPO from the merged model, with a new adapter; without pairs it stays as it is."""
        rows, config = self.preference_rows(pairs, method), preferences.training
        if not rows:
            return writer
        merged = self._merged(writer)

        def make(folder: Path) -> None:
            given = {"model": merged, "rows": rows, "settings": config, "folder": folder}
            launch(prefer, given, config.n_gpus, config.sharding)

        key = {"writer": self.name_of(writer), "pairs": hash_of(rows), "settings": deciding(config)}
        return self._cached("puma-dpo", key | {"code": code_hash(*CODE)}, make)

    def preference_rows(self, pairs: Sequence[Pair], method: Method) -> list[Row]:
        """Write pairs as TRL takes them; a review's prompt tells its product, as published."""
        return [
            {
                "prompt": self._prompt(pair.begun, method),
                "chosen": pair.chosen,
                "rejected": pair.rejected,
            }
            for pair in pairs
        ]

    def choose_preferences(self, method: Method) -> tuple[str, pd.DataFrame]:
        """Choose among the settings of DPO by pairs of held-out train tasks.

        Returns:
            The name of the setting that prefers the better text most often there (of equally good ones the
            first), and a table of all: pairs trained on and held out, accuracy and margin on the latter.
        """
        writer, rows = self.fine_tuned(method), []
        for name, preferences in self.study.settings.dpo.varied.items():
            pairs = self.pairs(writer, method, preferences)
            learned, held_out = part(pairs, preferences.held_out)
            model = self.preferred(writer, learned, method, preferences)
            judged = [pair for pair in held_out if pair.outcome == "differs"]
            accuracy, margin = float("nan"), float("nan")
            if judged and model != writer:
                judged_rows = self.preference_rows(judged, method)
                accuracy, margin = evaluate_pairs(model, judged_rows, preferences.training)
            rows.append((name, len(learned), len(judged), accuracy, margin))
        columns = ["preferences", "pairs trained on", "pairs judged", "accuracy", "margin"]
        table = pd.DataFrame(rows, columns=columns)
        best = table["accuracy"].fillna(-1).idxmax()
        return table.loc[best, "preferences"], table

    def train(self, method: Method, preferences: str) -> Trained:
        """Train all that a variant needs; what was trained for another one is found again."""
        identifier, tuned = self.identifier(), self.fine_tuned(method)
        if not method.dpo:
            return Trained(identifier, tuned, tuned)
        config = self.study.settings.dpo.varied[preferences]
        learned, _ = part(self.pairs(tuned, method, config), config.held_out)
        return Trained(identifier, self.preferred(tuned, learned, method, config), tuned)

    def _prompt(self, begun: Begun, method: Method, *, with_product: bool = True) -> str:
        recall = self.study.recall(begun, method)
        return self.study.prompts.parameter(begun.state, begun.function, recall, with_product=with_product)

    def _fine_tuned(self, name: str, rows: list[Row], config: SftSettings, pad_counts: bool = False) -> Path:
        def make(folder: Path) -> None:
            given = {"base": self.study.base, "rows": rows, "settings": config, "folder": folder}
            launch(fine_tune, given | {"pad_counts": pad_counts}, config.n_gpus, config.sharding)

        key = {"rows": hash_of(rows), "settings": deciding(config), "pad_counts": pad_counts}
        return self._cached(name, key | {"code": code_hash(*CODE)}, make)

    def _merged(self, writer: Path) -> Path:
        """Put an adapter into its base's weights: what DPO starts from, and its reference."""
        if not (writer / "adapter_config.json").exists():
            return writer
        key = {"adapter": self.name_of(writer)}
        return self._cached("puma-merged", key, lambda folder: merge(writer, folder))

    def _cached(self, name: str, parts: Mapping[str, Any], make: Any) -> Path:
        settings = self.study.settings
        only, root = settings.stored_runs_only, settings.output_dir / "models"
        return cached(root, name, {"base": self.base_name, **parts}, make, stored_only=only)


def part(pairs: Sequence[Pair], held_out: float) -> tuple[list[Pair], list[Pair]]:
    """Part pairs into those to learn from and those to judge by: the last share of the tasks.

    Without a share, all are learned from and judged by.
    """
    n = round(len(pairs) * (1 - held_out))
    return list(pairs[:n]), list(pairs[n:] if held_out else pairs)
