"""PUMA trained with several seeds: pipelines of their own, found again, the run's own seed among them."""

from copy import copy
from dataclasses import replace

import pytest

from pwagents.errors import DataError
from pwagents.puma.base import puma_base
from pwagents.puma.labels import leak_free_labels, remember
from pwagents.puma.pipelines import play_pipelines, train_pipelines
from pwagents.puma.study import PumaStudy, load_worlds
from pwagents.puma.train import PumaModels

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study(tiny_world, tmp_path_factory):
    sft = replace(tiny_world.sft, max_steps=2)
    changed = {
        "base": replace(tiny_world.base, steps=1),
        "study": replace(tiny_world.study, test_tasks=4),
        "identify": sft,
        "sft": sft,
        "dpo": replace(tiny_world.dpo, train_tasks=4, num_train_epochs=1.0),
    }
    settings = replace(tiny_world, output_dir=tmp_path_factory.mktemp("pipelines"), **changed)
    worlds = load_worlds(settings)
    models = PumaModels(settings, puma_base(settings, worlds.tested, worlds.products), "a small world")
    return PumaStudy(worlds, models)


@pytest.fixture(scope="module")
def labels_of(study):
    worlds = study.worlds
    items = remember(worlds.train_tasks, study.start, study.memory(32))
    labels, _ = leak_free_labels(items, worlds.products, study.write_queries)
    return study.labels_of_variants(labels)


def test_seeds_train_pipelines_of_their_own(study, labels_of):
    tasks = study.worlds.train_tasks[:8]
    own, other = train_pipelines(study, tasks, labels_of, [0, 1]).values()
    assert list(own) == ["PUMA", "w/o Task-specific Memory", "w/o SFT", "w/o DPO", "w/o SFT and DPO"]
    untuned = own["w/o SFT and DPO"], other["w/o SFT and DPO"]
    assert untuned[0].writer == study.models.base != untuned[1].writer, "seed 0 is the notebook's own"
    assert own["PUMA"].identifier == study.models.identifier(tasks) != other["PUMA"].identifier
    assert own["w/o DPO"].writer == study.models.fine_tuned("PUMA", labels_of["PUMA"])
    assert all(own[name].writer != other[name].writer for name in own)
    assert [variant.memory_tokens for variant in own.values()] == [96, 0, 96, 96, 96]
    played = play_pipelines(study, {0: own, 1: {"PUMA": other["PUMA"]}})
    assert played.groupby("seed")["method"].nunique().to_dict() == {0: 5, 1: 1} and len(played) == 6 * 4

    again = copy(study)
    again.settings = replace(study.settings, stored_runs_only=True)
    assert train_pipelines(again, tasks, labels_of, [1])[1] == other
    with pytest.raises(DataError, match="stored_runs_only"):
        train_pipelines(again, tasks, labels_of, [2])
