"""PUMA's trainings by TRL, on a tiny model: they learn, they are found again, adapters load as models."""

from dataclasses import replace

import pytest

from pwagents.embedding import Embedder
from pwagents.errors import DataError
from pwagents.llm.local_model import LocalModel
from pwagents.lm.fit import DoesNotFitError
from pwagents.lm.log import read_losses
from pwagents.lm.small import make_small_model
from pwagents.puma.agent import PumaAgent, TaskMemory
from pwagents.puma.labels import Example, remember
from pwagents.puma.pairs import Candidate, make_pairs, pair_rows
from pwagents.puma.train import PumaModels
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

from .conftest import SIZE


@pytest.fixture(scope="module")
def start(benchmark):
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, Embedder(batch_size=16))

    def begin(task):
        environment = WebEnvironment(shop)
        environment.reset(task, benchmark.history(task, "train"))
        return environment

    return begin


def save_base(tokenizer, folder, size=None):
    make_small_model(tokenizer, 0, size).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tiny, tokenizer, tmp_path_factory):
    return PumaModels(tiny, save_base(tokenizer, tmp_path_factory.mktemp("base"), SIZE), "a small world")


def with_settings(models, **changes):
    return replace(models, settings=replace(models.settings, **changes))


@pytest.fixture(scope="module")
def items(benchmark, start):
    tasks = [task for task in benchmark.tasks["train"] if task.type == "search"][:6]
    return remember(tasks, start, TaskMemory(benchmark.products, Embedder(), 0, len))


@pytest.fixture(scope="module")
def writer(models, items):
    return models.fine_tuned("test", [Example(item, {"query": "red mug"}) for item in items])


@pytest.fixture(scope="module")
def pairs(items):
    scored = [Candidate({"query": "red mug"}, 1.0), Candidate({"query": "blue"}, 0.0)]
    return make_pairs(items, [scored] * len(items))[0]


@pytest.fixture(scope="module")
def improved(models, writer, pairs):
    return models.preferred("test", writer, pairs)


def test_both_fine_tunings_learn(models, benchmark, writer):
    identifier = models.identifier(benchmark.tasks["train"][:20])
    logs = read_losses({"function": identifier, "parameters": writer})
    for _, log in logs.groupby("training"):
        assert log["loss"].iloc[-1] < log["loss"].iloc[0]


def test_dpo_learns_to_prefer_what_worked(improved):
    log = read_losses({"dpo": improved})
    assert log["loss"].iloc[0] == pytest.approx(0.693, abs=1e-3)  # log 2: the reference is where it starts
    assert log["loss"].iloc[-1] < 0.5 and log["rewards/accuracies"].iloc[-1] == 1.0


def test_trackers_and_checkpoints_make_no_other_training(models, writer, items, improved, pairs):
    groups = (models.settings.sft, models.settings.dpo)
    sft, dpo = (replace(each, trainer=each.trainer | {"save_steps": 7}) for each in groups)
    stored = with_settings(models, sft=sft, dpo=dpo, stored_runs_only=True)
    examples = [Example(item, {"query": "red mug"}) for item in items]
    assert stored.fine_tuned("test", examples) == writer
    assert stored.preferred("test", writer, pairs) == improved


def test_what_was_trained_is_found_again(models, writer, items, improved, pairs):
    stored = with_settings(models, stored_runs_only=True)
    examples = [Example(item, {"query": "red mug"}) for item in items]
    assert stored.fine_tuned("test", examples) == writer
    assert stored.preferred("test", writer, pairs) == improved


def test_a_training_that_is_not_stored_is_refused_where_only_stored_ones_may_be_used(models, items):
    with pytest.raises(DataError, match="stored_runs_only"):
        with_settings(models, stored_runs_only=True).fine_tuned(
            "other", [Example(items[0], {"query": "new"})]
        )


def test_without_pairs_the_model_stays_what_it_is(models, writer):
    assert models.preferred("test", writer, []) == writer


def test_trainings_that_do_not_fit_are_refused_before_they_begin(models):
    sft, dpo = models.require_fit()
    assert sft.endswith("it fits.") and dpo.endswith("it fits.")
    huge = replace(models.settings.sft, trainer={"per_device_train_batch_size": 10**6, "max_length": 99})
    with pytest.raises(DoesNotFitError, match="smaller per_device_train_batch_size"):
        with_settings(models, sft=huge).require_fit()


def test_adapters_act_and_have_a_card(models, benchmark, start, improved, items):
    model = LocalModel(improved)
    agent = PumaAgent(LocalModel(models.base), model, TaskMemory(benchmark.products, Embedder(), 0, len), 12)
    assert len(agent.act([item.state for item in items])) == len(items)
    assert "pairs | 6" in (improved / "README.md").read_text()


def test_samples_are_drawn_once(models, writer, items, start):
    arguments = (writer, items, start, Embedder(batch_size=16), {"data": "x"})
    once = models.pairs(*arguments)
    assert with_settings(models, stored_runs_only=True).pairs(*arguments) == once
    assert sum(once[1].values()) == len(items)


def test_pairs_are_told_in_the_models_template(tokenizer, pairs):
    (row,) = pair_rows(tokenizer, pairs[:1])
    messages = pairs[0].item.messages
    assert row["prompt"] == tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )
    for column, candidate in (("chosen", pairs[0].best), ("rejected", pairs[0].worst)):
        assert candidate.arguments["query"] in row[column] and tokenizer.eos_token not in row[column]
