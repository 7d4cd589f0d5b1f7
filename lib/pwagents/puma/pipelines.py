"""PUMA trained with several seeds, from the base model on: what of notebook 04's results is chance."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from pwagents.evaluation.episodes import records_frame, require_played
from pwagents.lm.launch import side_by_side
from pwagents.puma.base import puma_base
from pwagents.puma.labels import Example
from pwagents.puma.play import Variant, play
from pwagents.puma.study import FULL, NO_DPO, NO_MEMORY, NO_SFT, UNTUNED, PumaStudy
from pwagents.puma.train import PumaModels
from pwagents.schema import Task


def train_pipelines(
    study: PumaStudy, tasks: Sequence[Task], labels_of: Mapping[str, Sequence[Example]], seeds: Sequence[int]
) -> dict[int, dict[str, Variant]]:
    """PUMA, the parts of PersonalWAB's Table 5 and step 2 without any training, with several seeds.

    A seed decides the small base model's text and first weights, the order of fine-tuning, the samples and
    their pairs. A base model that is given, data, shops, labels and test tasks stay. What was trained is
    found again. Those of the small model run beside each other (:func:`pwagents.lm.launch.side_by_side`).

    Args:
        tasks: what step 1 is trained on.
        labels_of: a variant's name -> its labels, with those of the full agent and of none with a memory
            (:meth:`pwagents.puma.study.PumaStudy.labels_of_variants`).

    Returns:
        Seed -> name of a variant -> its models.
    """
    settings, train = study.settings, partial(_train_pipeline, study, tasks, labels_of)
    pipelines = side_by_side(train, seeds, settings.base, stored_only=settings.stored_runs_only)
    return dict(zip(seeds, pipelines, strict=True))


def play_pipelines(study: PumaStudy, pipelines: Mapping[int, Mapping[str, Variant]]) -> pd.DataFrame:
    """The test tasks, played by all pipelines: one row an episode, with its ``seed``
    (:func:`pwagents.evaluation.episodes.records_frame`).

    Raises:
        InfrastructureError: some episode could not be played.
    """
    frames = []
    for seed, variants in pipelines.items():
        records = [record for name, variant in variants.items() for record in play(study, name, variant)]
        require_played(records)
        frames.append(records_frame(records).assign(seed=seed))
    return pd.concat(frames, ignore_index=True)


def _train_pipeline(
    study: PumaStudy, tasks: Sequence[Task], labels_of: Mapping[str, Sequence[Example]], seed: int
) -> dict[str, Variant]:
    settings, worlds = study.settings.seeded(seed), study.worlds
    base = puma_base(settings, worlds.tested, worlds.products)
    models = PumaModels(settings, base, worlds.learned.content_hash)
    identifier = models.identifier(tasks)
    tuned = {name: models.fine_tuned(name, labels_of[name]) for name in (FULL, NO_MEMORY)}
    better = {}
    for name, writer in {**tuned, NO_SFT: base}.items():
        pairs, _ = study.sample_pairs(models, writer, labels_of.get(name, labels_of[FULL]))
        better[name] = models.preferred(name, writer, pairs)
    tokens = settings.study.memory_tokens
    return {
        FULL: Variant(identifier, better[FULL], tokens),
        NO_MEMORY: Variant(identifier, better[NO_MEMORY], 0),
        NO_SFT: Variant(identifier, better[NO_SFT], tokens),
        NO_DPO: Variant(identifier, tuned[FULL], tokens),
        UNTUNED: Variant(identifier, base, tokens),
    }
