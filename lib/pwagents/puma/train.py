"""PUMA's trainings (PersonalWAB, 5.2), from labels to weights; each is made once and found again by its key.

    identifier = fine_tuned(study, "puma-function", function_rows(study), settings.identify)  # step 1
    writer = fine_tuned(study, "puma-sft", parameter_rows(study, method), settings.sft)       # step 2
    pairs = candidate_pairs(study, writer, method, settings.dpo)         # its own parameters, best and worst
    writer = preferred(study, writer, pair_rows(study, pairs, method), settings.dpo)          # DPO

Departures from ``PUMA/scripts``: 1. bfloat16 in place of float16, whose loss has to be scaled; the merged
model that DPO starts from is rounded to it. 2. Fine-tuning: one GPU with 64 passes a step in place of four
with 16; DPO has 16 on one, where the script takes all GPUs that it finds. 3. A step weighs all learned tokens
alike (TRL), the script all examples.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pwagents.code import hash_of
from pwagents.llm.folder import ADAPTER
from pwagents.lm.load import merge
from pwagents.lm.train import CODE, evaluate_pairs, fine_tune, prefer
from pwagents.puma.agent import completion_of
from pwagents.puma.methods import Method
from pwagents.puma.pairs import Pair, sample_pairs, split_pairs
from pwagents.puma.study import Study
from pwagents.settings import PreferenceSettings, SftSettings, deciding

Row = dict[str, str]


class Trained(NamedTuple):
    """The models of one variant: of its two steps, and of step 2 before preferences."""

    identifier: Path
    writer: Path
    before_dpo: Path


def function_rows(study: Study) -> list[Row]:
    """Write what step 1 learns: instruction -> function."""
    prompts = study.prompts
    return [
        {"prompt": prompts.identify(begun.state.instruction), "completion": begun.function}
        for begun in study.begun
    ]


def parameter_rows(study: Study, method: Method) -> list[Row]:
    """Write the labels as prompts and completions; labels that a method cannot say are left out."""
    rows = []
    for begun, parameter in study.labels(method.labels)[0]:
        recall = study.recall(begun, method)
        completion = completion_of(parameter, recall, method)
        if completion.strip():
            prompt = study.prompts.parameter(begun.state, begun.function, recall)
            rows.append({"prompt": prompt, "completion": completion})
    return rows


def pair_rows(study: Study, pairs: Sequence[Pair], method: Method) -> list[Row]:
    """Write pairs as TRL takes them; a review's prompt tells its product, as published."""
    return [
        {"prompt": study.prompt(pair.begun, method), "chosen": pair.chosen, "rejected": pair.rejected}
        for pair in pairs
    ]


def fine_tuned(
    study: Study, name: str, rows: Sequence[Row], settings: SftSettings, pad_counts: bool = False
) -> Path:
    """Return the folder of the base model fine-tuned on rows (:func:`pwagents.lm.train.fine_tune`)."""
    facts = {"base": study.base_name, "rows": hash_of(rows), "settings": deciding(settings)}
    facts |= {"pad_counts": pad_counts, "code": CODE}
    make = partial(fine_tune, study.base, rows, settings, pad_counts=pad_counts)
    return study.made(name, facts, make)


def merged(study: Study, writer: Path) -> Path:
    """Put an adapter into its base's weights: what DPO starts from, and its reference."""
    if not (writer / ADAPTER).exists():
        return writer
    facts = {"adapter": study.name_of(writer), "code": CODE}
    return study.made("puma-merged", facts, partial(merge, writer))


def candidate_pairs(
    study: Study, writer: Path, method: Method, preferences: PreferenceSettings
) -> list[Pair]:
    """Return pairs of the parameters that a fine-tuned model writes for train tasks."""
    return sample_pairs(study, writer, merged(study, writer), method, preferences)


def preferred(study: Study, writer: Path, rows: Sequence[Row], preferences: PreferenceSettings) -> Path:
    """Train step 2 by DPO from the merged model, with a new adapter; without rows it stays as it is."""
    if not rows:
        return writer
    settings = preferences.training
    facts = {"writer": study.name_of(writer), "pairs": hash_of(rows), "settings": deciding(settings)}
    make = partial(prefer, merged(study, writer), rows, settings)
    return study.made("puma-dpo", facts | {"code": CODE}, make)


def choose_preferences(study: Study, writer: Path, method: Method) -> tuple[str, pd.DataFrame]:
    """Choose among the settings of DPO by the same pairs of held-out train tasks.

    Args:
        writer: the fine-tuned model of step 2.

    Returns:
        The name of the setting that prefers the better text most often there (of equally good ones the
        first), and a table of all: pairs trained on and judged, accuracy and margin on the latter.
    """
    measured = []
    for name, preferences in study.settings.dpo.varied.items():
        learned, judges = split_pairs(candidate_pairs(study, writer, method, preferences), preferences)
        model = preferred(study, writer, pair_rows(study, learned, method), preferences)
        row = {"preferences": name, "pairs trained on": len(learned), "pairs judged": len(judges)}
        row |= {"accuracy": float("nan"), "margin": float("nan")}
        if judges and model != writer:
            on_judges = evaluate_pairs(model, pair_rows(study, judges, method), preferences.training)
            row |= {measure: on_judges[measure] for measure in ("accuracy", "margin")}
        measured.append(row)
    table = pd.DataFrame(measured)
    return table.loc[table["accuracy"].fillna(-1).idxmax(), "preferences"], table


def train(study: Study, method: Method, preferences: str) -> Trained:
    """Train all that a variant needs; what was trained for another one is found again."""
    settings = study.settings
    identifier = fine_tuned(
        study, "puma-function", function_rows(study), settings.identify, settings.study.pad_counts
    )
    writer = study.base  # without fine-tuning
    if method.sft:
        rows = parameter_rows(study, method)
        writer = fine_tuned(study, "puma-sft", rows, settings.sft, method.pad_counts)
    if not method.dpo:
        return Trained(identifier, writer, writer)
    config = settings.dpo.varied[preferences]
    learned, _ = split_pairs(candidate_pairs(study, writer, method, config), config)
    return Trained(identifier, preferred(study, writer, pair_rows(study, learned, method), config), writer)
