"""PUMA's trainings (PersonalWAB, 5.2), from labels to models; each is made once and found again by its key.

models = PumaModels(study)
identifier = models.identifier()                    step 1: instruction -> function
writer = models.fine_tuned(method)                  step 2: on labels
pairs = models.pairs(writer, method, preferences)   its own candidates, best and worst
writer = models.preferred(writer, rows, ...)        step 2: DPO

Departures from ``PUMA/scripts``: 1. bfloat16 in the place of float16, whose loss has to be scaled; the merged
model that DPO starts from is rounded to it. 2. Fine-tuning: one GPU with 64 passes a step in the place of
four with 16; DPO has 16 on one, where the script takes all GPUs that it finds. 3. A step weighs all learned
tokens alike (TRL), the script all examples. 4. Leak-free, candidates are scored by a recommender that has not
seen the answers. 5. Candidates are prompted with the function that the task asks for; ``test_llama.py``
takes the one that step 1 named.

Command: ``make reproduce ONLY=04`` (few variants), ``make reproduce-full`` (all); minutes stand in the
notebook's head. Result: ``models/puma-*``, ``04_losses`` and ``04_preferences``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pwagents.data.splits import sample_tasks
from pwagents.settings import plain
from pwagents.code import hash_of
from pwagents.store import made
from pwagents.llm.folder import ADAPTER
from pwagents.llm.local_model import LocalModel
from pwagents_old.lm.complete import complete, draws_alone
from pwagents_old.lm.dpo import evaluate_pairs, prefer
from pwagents_old.lm.launch import launch
from pwagents_old.lm.load import merge
from pwagents_old.lm.settings import SftSettings, deciding
from pwagents_old.lm.sft import fine_tune
from pwagents_old.project import code_hash
from pwagents.files import write_aside
from pwagents_old.puma.agent import completion_of, read_parameter
from pwagents_old.puma.labels import Begun, Pair, carry_out, choose_pair, part
from pwagents_old.puma.memory import REVIEW
from pwagents_old.puma.settings import Method, PreferenceSettings
from pwagents_old.puma.study import PumaStudy

SCORES = "scores.json"
SCORED = ("puma", "web", "embedding", "schema", "results/metrics")  # what decides a candidate's score
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
        settings = self.study.settings
        return self._fine_tuned("puma-function", rows, settings.identify, settings.study.pad_counts)

    def rows(self, method: Method) -> list[Row]:
        """Write the labels as prompts and completions; labels that a method cannot say are left out."""
        rows = []
        for begun, parameter in self.study.labels(method.labels)[0]:
            completion = completion_of(parameter, self.study.recall(begun, method), method)
            if completion.strip():
                rows.append({"prompt": self._prompt(begun, method), "completion": completion})
        return rows

    def fine_tuned(self, method: Method) -> Path:
        """Fine-tune step 2 on labels; without SFT it is the base model."""
        if not method.sft:
            return self.study.base
        return self._fine_tuned("puma-sft", self.rows(method), self.study.settings.sft, method.pad_counts)

    def pairs(self, writer: Path, method: Method, preferences: PreferenceSettings) -> list[Pair]:
        """Sample a model's parameters for train tasks, score them in the shop to learn in, and pair them.

        Which tasks these are, the study's seed says: they are the same with every seed of the trainings.
        """
        study, config = self.study, self.study.settings.study
        begun = sample_tasks(study.begun, preferences.train_tasks, study.seed)
        # test_llama.py, which samples, leaves out the product of a review.
        with_product = study.protocol == "leak_free"
        prompts = [self._prompt(each, method, with_product=with_product) for each in begun]
        beams, seed = preferences.candidates, preferences.seed
        sampling = {"temperature": preferences.temperature, "beams": beams, "seed": seed}
        sampling["max_new_tokens"] = config.max_new_tokens

        def make(folder: Path) -> None:
            # By the whole model, which DPO starts from: vLLM takes no adapter with embeddings of its own.
            size, store = config.batch_size, folder / "completions.jsonl"
            sampled = complete(self._merged(writer), prompts, batch_size=size, store=store, **sampling)
            beam_of = [*zip(begun, sampled, strict=True)]
            reviews = {text for each, texts in beam_of if each.function == REVIEW for text in texts}
            study.learning_shop.embedder.encode(sorted(reviews), show_progress=True)  # in one go
            scores = []
            for each, texts in beam_of:
                recall = study.recall(each, method)
                read = partial(read_parameter, recall=recall, method=method, protocol=study.protocol)
                calls = {text: read(each.function, text) for text in map(str.strip, texts)}  # equal ones once
                scores.append({text: carry_out(each, call, study.start) for text, call in calls.items()})
            write_aside(folder / SCORES, json.dumps(scores))

        shop = {"data": study.worlds.learned.content_hash, "shop": plain(study.settings.shop)}
        shop |= {"protocol": study.protocol, "seed": study.seed}
        key = {"writer": self.name_of(writer), "prompts": hash_of(prompts), "ids": method.ids, "shop": shop}
        key["independent"] = draws_alone()
        folder = self._cached("puma-samples", key | {"sampling": sampling}, make, *SCORED)
        scores = json.loads((folder / SCORES).read_text("utf-8"))
        return [choose_pair(each, own) for each, own in zip(begun, scores, strict=True)]

    def preferred(self, writer: Path, rows: list[Row], preferences: PreferenceSettings) -> Path:
        """Train step 2 by DPO from the merged model, with a new adapter; without rows it stays as it is."""
        if not rows:
            return writer
        config, merged = preferences.training, self._merged(writer)

        def make(folder: Path) -> None:
            given = {"model": merged, "rows": rows, "settings": config, "folder": folder}
            launch(prefer, given, config.n_gpus, config.sharding)

        key = {"writer": self.name_of(writer), "pairs": hash_of(rows), "settings": deciding(config)}
        return self._cached("puma-dpo", key, make)

    def preference_rows(self, pairs: Sequence[Pair], method: Method) -> list[Row]:
        """Write pairs as TRL takes them; a review's prompt tells its product, as published."""
        return [
            {"prompt": self._prompt(pair.begun, method), "chosen": pair.chosen, "rejected": pair.rejected}
            for pair in pairs
        ]

    def choose_preferences(self, method: Method) -> tuple[str, pd.DataFrame]:
        """Choose among the settings of DPO by the same pairs of held-out train tasks.

        Returns:
            The name of the setting that prefers the better text most often there (of equally good ones the
            first), and a table of all: pairs trained on and judged, accuracy and margin on the latter.
        """
        writer, rows = self.fine_tuned(method), []
        for name, preferences in self.study.settings.dpo.varied.items():
            learned, judges = part(self.pairs(writer, method, preferences), preferences)
            model = self.preferred(writer, self.preference_rows(learned, method), preferences)
            accuracy = margin = float("nan")
            if judges and model != writer:
                judged = self.preference_rows(judges, method)
                accuracy, margin = evaluate_pairs(model, judged, preferences.training)
            rows.append((name, len(learned), len(judges), accuracy, margin))
        columns = ["preferences", "pairs trained on", "pairs judged", "accuracy", "margin"]
        table = pd.DataFrame(rows, columns=columns)
        return table.loc[table["accuracy"].fillna(-1).idxmax(), "preferences"], table

    def train(self, method: Method, preferences: str) -> Trained:
        """Train all that a variant needs; what was trained for another one is found again."""
        identifier, tuned = self.identifier(), self.fine_tuned(method)
        if not method.dpo:
            return Trained(identifier, tuned, tuned)
        config = self.study.settings.dpo.varied[preferences]
        learned, _ = part(self.pairs(tuned, method, config), config)
        better = self.preferred(tuned, self.preference_rows(learned, method), config)
        return Trained(identifier, better, tuned)

    def _prompt(self, begun: Begun, method: Method, *, with_product: bool = True) -> str:
        recall = self.study.recall(begun, method)
        return self.study.prompts.parameter(begun.state, begun.function, recall, with_product=with_product)

    def _merged(self, writer: Path) -> Path:
        """Put an adapter into its base's weights: what DPO starts from, and its reference."""
        if not (writer / ADAPTER).exists():
            return writer
        key = {"adapter": self.name_of(writer)}
        return self._cached("puma-merged", key, lambda folder: merge(writer, folder))

    def _fine_tuned(self, name: str, rows: list[Row], config: SftSettings, pad_counts: bool = False) -> Path:
        def make(folder: Path) -> None:
            given = {"base": self.study.base, "rows": rows, "settings": config, "folder": folder}
            launch(fine_tune, given | {"pad_counts": pad_counts}, config.n_gpus, config.sharding)

        key = {"rows": hash_of(rows), "settings": deciding(config), "pad_counts": pad_counts}
        return self._cached(name, key, make)

    def _cached(self, name: str, parts: Mapping[str, Any], make: Callable[[Path], None], *code: str) -> Path:
        settings = self.study.settings
        key = {"base": self.base_name, "code": code_hash("lm", *code), **parts}
        return made(settings.output_dir / "models", name, key, make, stored_only=settings.stored_runs_only)
