"""Trainings of PUMA on a tiny model: they learn, are found again, and go by the method's switches."""

from copy import copy
from dataclasses import replace

import pytest

from pwagents.errors import DataError
from pwagents.lm.log import read_losses
from pwagents.lm.small import make_small_model
from pwagents.puma.pairs import choose_pair
from pwagents.puma.settings import NO_DPO, NO_MEMORY, NO_SFT, PLUS, PUMA, UNTUNED
from pwagents.puma.study import PumaStudy
from pwagents.puma.train import PumaModels
from pwagents.puma.worlds import load_worlds

from .conftest import SIZE


@pytest.fixture(scope="module")
def study(tiny, tokenizer, tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    make_small_model(tokenizer, 0, SIZE).save_pretrained(base)
    tokenizer.save_pretrained(base)
    return PumaStudy(load_worlds(tiny), tiny, base)


@pytest.fixture(scope="module")
def models(study):
    return PumaModels(study)


@pytest.fixture(scope="module")
def methods(study):
    return study.settings.methods()


def changed(models, **changes):
    """The same study with other settings."""
    study = copy(models.study)
    study.settings = replace(study.settings, **changes)
    return PumaModels(study)


@pytest.fixture(scope="module")
def writer(models, methods):
    return models.fine_tuned(methods[PUMA])


@pytest.fixture(scope="module")
def pairs(models):
    begun = [each for each in models.study.begun if each.task.type == "search"]
    return [choose_pair(each, {"red mug": 1.0, "blue": 0.0}) for each in begun]


@pytest.fixture(scope="module")
def improved(models, methods, writer, pairs):
    return models.preferred(writer, models.preference_rows(pairs, methods[PUMA]), models.study.settings.dpo)


def test_both_fine_tunings_learn(models, writer):
    for _, log in read_losses({"function": models.identifier(), "parameter": writer}).groupby("training"):
        assert log["loss"].iloc[-1] < log["loss"].iloc[0]


def test_dpo_begins_at_the_fine_tuned_model_and_learns_to_prefer_what_worked(improved):
    log = read_losses({"dpo": improved})
    assert log["loss"].iloc[0] == pytest.approx(0.693, abs=1e-3)  # log 2: the reference is where it starts
    assert log["loss"].iloc[-1] < 0.5 and log["rewards/accuracies"].iloc[-1] == 1.0


def test_rows_are_prompts_in_plain_text_and_bare_parameters(models, methods):
    labels, _ = models.study.labels("leak_free")
    rows = models.rows(methods[PUMA])
    assert len(rows) == len(labels)
    for label, row in zip(labels, rows, strict=True):
        assert label.begun.state.instruction in row["prompt"] and label.begun.function in row["prompt"]
        parameter = label.parameter
        assert row["completion"] == (parameter if isinstance(parameter, str) else ", ".join(parameter))


def test_without_memory_recommendations_are_trained_all_the_same(models, methods):
    rows = models.rows(methods[NO_MEMORY])
    full = models.rows(methods[PUMA])
    assert [row["completion"] for row in rows] == [row["completion"] for row in full]
    assert all("Memory: \n" in row["prompt"] for row in rows)


def test_numbers_take_the_place_of_ids_in_prompts_and_completions(models, methods):
    rows = [row for row in models.rows(methods[PLUS]) if "get_recommendations" in row["prompt"]]
    assert rows and all(part.strip().isdigit() for row in rows for part in row["completion"].split(","))
    assert not any(asin in row["prompt"] for row in rows for asin in models.study.memory.products)


def test_what_was_trained_is_found_again_and_nothing_else(models, methods, writer, pairs, improved):
    trainer = models.study.settings.sft.trainer | {"save_steps": 7, "report_to": "tensorboard"}
    other = {"sft": replace(models.study.settings.sft, trainer=trainer), "stored_runs_only": True}
    stored = changed(models, **other)
    assert stored.fine_tuned(methods[PUMA]) == writer
    rows = models.preference_rows(pairs, methods[PUMA])
    assert stored.preferred(writer, rows, models.study.settings.dpo) == improved
    with pytest.raises(DataError, match="stored_runs_only"):
        stored.fine_tuned(methods[NO_MEMORY])


def test_without_sft_it_is_the_base_and_without_pairs_the_model_stays_what_it_is(models, methods, writer):
    assert models.fine_tuned(methods[NO_SFT]) == models.study.base
    assert models.preferred(writer, [], models.study.settings.dpo) == writer
    untuned = models.train(methods[UNTUNED], "as set")
    assert untuned.writer == untuned.before_dpo == models.study.base
    assert models.train(methods[NO_DPO], "as set").writer == writer


def test_candidates_are_sampled_once_and_every_task_makes_a_pair(models, methods, writer):
    config = models.study.settings.dpo
    pairs = models.pairs(writer, methods[PUMA], config)
    assert len(pairs) == config.train_tasks
    assert changed(models, stored_runs_only=True).pairs(writer, methods[PUMA], config) == pairs


def test_preferences_are_chosen_on_held_out_train_pairs(models, methods, monkeypatch):
    base = models.study.settings.dpo
    other = replace(base, held_out=0.5, variants=({"name": "stiff", "trainer": {"beta": 0.5}},))
    tried = changed(models, dpo=other)
    begun = models.study.begun
    scores = {"red": 1.0, "blue": 0.0}
    monkeypatch.setattr(PumaModels, "pairs", lambda *_: [choose_pair(each, scores) for each in begun[:8]])
    name, table = tried.choose_preferences(methods[PUMA])
    assert list(table["preferences"]) == ["as set", "stiff"]
    assert list(table["pairs trained on"]) == list(table["pairs judged"]) == [4, 4]
    best = table.loc[table["accuracy"].idxmax(), "preferences"]
    assert name == best and table["margin"].notna().all()
