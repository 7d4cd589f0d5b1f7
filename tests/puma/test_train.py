"""PUMA's trainings by TRL, on a tiny model: they learn, they are found again, adapters load as models."""

import time
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

from pwagents.embedding import Embedder
from pwagents.errors import DataError
from pwagents.llm.local_model import LocalModel
from pwagents.lm.dpo import optimize_preferences, tokenize_pairs
from pwagents.lm.launch import launch
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.lm.small import make_small_model
from pwagents.puma.agent import PumaAgent, TaskMemory
from pwagents.puma.labels import Example, remember
from pwagents.puma.pairs import Candidate, Diversity, make_pairs
from pwagents.puma.train import (
    PumaRecipe,
    fit_identifier,
    fit_parameters,
    fit_preferences,
    not_falling,
    sample_pairs,
    training_logs,
)
from pwagents.web.environment import WebEnvironment
from pwagents.web.episode import Episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def start(benchmark):
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, Embedder(batch_size=16))
    return lambda task: Episode(WebEnvironment(shop), task, benchmark.history(task, "train"))


@pytest.fixture(scope="module")
def recipe(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("puma")
    make_small_model(tokenizer, 0, SIZE).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    tuning = SftSettings(max_steps=12, per_device_train_batch_size=4, learning_rate=2e-2, lora=(4, 8))
    return PumaRecipe(
        base=folder / "base",
        identifying=tuning,
        labelled=tuning,
        diversity=Diversity(candidates=3, temperature=1.0, max_tokens=12),
        preferences=DpoSettings(
            num_train_epochs=4,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=1,
            learning_rate=2e-2,
            lora=(4, 8),
        ),
        models=folder / "models",
        data="a small world",
    )


@pytest.fixture(scope="module")
def items(benchmark, start):
    tasks = [task for task in benchmark.tasks["train"] if task.type == "search"][:6]
    return remember(tasks, start, TaskMemory(benchmark.products, Embedder(), 0, len))


@pytest.fixture(scope="module")
def writer(recipe, items):
    return fit_parameters(recipe, "test", [Example(item, {"query": "red mug"}) for item in items])


@pytest.fixture(scope="module")
def pairs(items):
    scored = [Candidate({"query": "red mug"}, 1.0), Candidate({"query": "blue"}, 0.0)]
    return make_pairs(items, [scored] * len(items))[0]


@pytest.fixture(scope="module")
def improved(recipe, writer, pairs):
    return fit_preferences(recipe, "test", writer, pairs)


def test_both_fine_tunings_learn(recipe, benchmark, writer):
    identifier = fit_identifier(recipe, benchmark.tasks["train"][:20])
    logs = training_logs({"function": identifier, "parameters": writer})
    for _, log in logs.groupby("training"):
        assert log["loss"].iloc[-1] < log["loss"].iloc[0]


def test_dpo_learns_to_prefer_what_worked(improved):
    log = training_logs({"dpo": improved})
    assert log["loss"].iloc[0] == pytest.approx(0.693, abs=1e-3)  # log 2: the reference is where it starts
    assert log["loss"].iloc[-1] < 0.5 and log["rewards/accuracies"].iloc[-1] == 1.0


def test_trainings_of_the_smoke_preset_take_half_a_minute_at_most_and_learn(
    benchmark, start, tokenizer, project_root, tmp_path
):
    smoke = yaml.safe_load((project_root / "params" / "smoke" / "04_puma.yaml").read_text())
    make_small_model(tokenizer, 0).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    lora = tuple(smoke["lora"])
    sft = {
        "per_device_train_batch_size": smoke["sft_batch_size"],
        "learning_rate": smoke["sft_learning_rate"],
        "lora": lora,
    }
    dpo = {
        "per_device_train_batch_size": smoke["dpo_batch_size"],
        "learning_rate": smoke["dpo_learning_rate"],
        "lora": lora,
    }
    recipe = PumaRecipe(
        base=tmp_path / "base",
        identifying=SftSettings(num_train_epochs=smoke["function_epochs"], **sft),
        labelled=SftSettings(num_train_epochs=smoke["sft_epochs"], **sft),
        diversity=Diversity(),
        preferences=DpoSettings(num_train_epochs=smoke["dpo_epochs"], gradient_accumulation_steps=1, **dpo),
        models=tmp_path / "models",
        data="a small world",
    )
    memory = TaskMemory(benchmark.products, Embedder(batch_size=32), smoke["memory_tokens"], recipe.count)
    items = remember(benchmark.tasks["train"][:26], start, memory)  # a third of what the preset has
    searches = [item for item in items if item.task.type == "search"][:5]
    told = [
        [Candidate({"query": item.state.instruction}, 1.0), Candidate({"query": "blue"}, 0.0)]
        for item in searches
    ]
    folders, seconds = {}, {}
    for name, train in {
        "function": lambda: fit_identifier(recipe, [item.task for item in items]),
        "SFT": lambda: fit_parameters(
            recipe, "a", [Example(i, {"query": i.state.instruction}) for i in searches * 5]
        ),
        "DPO": lambda: fit_preferences(recipe, "a", folders["SFT"], make_pairs(searches, told)[0]),
    }.items():
        begun = time.process_time()  # of this process alone: other work on the machine does not count
        folders[name] = train()
        seconds[name] = time.process_time() - begun
    assert max(seconds.values()) < 30 / 3, seconds
    assert not_falling(training_logs(folders)) == []


def test_a_loss_that_does_not_fall_is_named_and_one_row_tells_nothing():
    def log(name, *losses):
        return pd.DataFrame({"training": name, "step": range(len(losses)), "loss": losses})

    nan = float("nan")
    logs = [log("falls", 3, 4, 1), log("rises", 1, 2), log("broken", 2, nan), log("short", 1.0)]
    assert not_falling(pd.concat(logs)) == ["rises", "broken"]


def test_two_processes_optimize_as_one_with_the_whole_batch(recipe, writer, tmp_path):
    """Pairs of one length, so that shares of a batch weigh the same in any split."""
    tokens = {"prompt_ids": [[50, 51]] * 4, "chosen_ids": [[60, 61]] * 4, "rejected_ids": [[70, 71]] * 4}

    def train(name, batch_size, **how):
        config = replace(recipe.preferences, per_device_train_batch_size=batch_size, num_train_epochs=2)
        given = {"model": str(writer), "tokens": tokens, "config": asdict(config)}
        launch("pwagents.lm.dpo:train_on_plain", given | {"out_folder": str(tmp_path / name)}, **how)

    train("two", 1, n_gpus=2, sharding="cpu")
    train("one", 2)
    folders = tmp_path / "two", tmp_path / "one", writer
    two, one, before = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    assert any(not torch.equal(one[name], before[name]) for name in before)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-5)


def test_trackers_and_checkpoints_make_no_other_training(recipe, writer, items, improved, pairs):
    tuned = replace(recipe.labelled, save_steps=7, report_to="tensorboard")
    preferences = replace(recipe.preferences, save_steps=7, report_to="tensorboard")
    stored = replace(recipe, labelled=tuned, preferences=preferences, stored_only=True)
    examples = [Example(item, {"query": "red mug"}) for item in items]
    assert fit_parameters(stored, "test", examples) == writer
    assert fit_preferences(stored, "test", writer, pairs) == improved


def test_dpo_keeps_the_adapter_it_began_with_and_saves_no_reference(writer, improved):
    assert not (improved / "ref").exists()
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (writer, improved))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_what_was_trained_is_found_again(recipe, writer, items, improved, pairs):
    stored = replace(recipe, stored_only=True)
    examples = [Example(item, {"query": "red mug"}) for item in items]
    assert fit_parameters(stored, "test", examples) == writer
    assert fit_preferences(stored, "test", writer, pairs) == improved


def test_a_training_that_is_not_stored_is_refused_where_only_stored_ones_may_be_used(recipe, items):
    with pytest.raises(DataError, match="stored_runs_only"):
        fit_parameters(replace(recipe, stored_only=True), "other", [Example(items[0], {"query": "new"})])


def test_adapters_act_and_have_a_card(recipe, benchmark, start, improved, items):
    model = LocalModel(improved)
    agent = PumaAgent(LocalModel(recipe.base), model, TaskMemory(benchmark.products, Embedder(), 0, len), 12)
    assert len(agent.act([item.state for item in items])) == len(items)
    assert "pairs | 6" in (improved / "README.md").read_text()


def test_samples_are_drawn_once(recipe, writer, items, start):
    arguments = (writer, items, start, Embedder(batch_size=16), {"data": "x"})
    once = sample_pairs(recipe, "test", *arguments)
    assert sample_pairs(replace(recipe, stored_only=True), "test", *arguments) == once
    assert sum(once[1].values()) == len(items)


def test_pairs_are_tokenised_as_they_are_told(tokenizer, pairs):
    tokens = tokenize_pairs(tokenizer, pairs[:1], 4096)
    prompt = tokenizer.apply_chat_template(pairs[0].item.messages, add_generation_prompt=True)["input_ids"]
    assert tokens["prompt_ids"] == [prompt]
    for column, candidate in (("chosen_ids", pairs[0].best), ("rejected_ids", pairs[0].worst)):
        said = tokenizer.decode(tokens[column][0])
        assert candidate.arguments["query"] in said and tokens[column][0][-1] == tokenizer.eos_token_id


def test_too_long_a_pair_is_named_and_no_pairs_are_refused(tokenizer, pairs, recipe, tmp_path):
    with pytest.raises(DataError, match=pairs[0].item.task.task_id):
        tokenize_pairs(tokenizer, pairs, 20)
    with pytest.raises(DataError, match="at least one"):
        optimize_preferences(recipe.base, tokenizer, [], recipe.preferences, tmp_path)


def test_the_same_pairs_give_the_same_weights_and_log_also_after_a_kill(
    recipe, tokenizer, pairs, writer, tmp_path
):
    """Checkpoints hold the adapter and its reference."""
    config = replace(recipe.preferences, save_steps=4)
    optimize_preferences(writer, tokenizer, pairs, config, tmp_path / "whole")
    import pwagents.lm.dpo as module

    class Killed(Exception):
        pass

    real = module.watch

    def watch(what):
        callback = real(what)

        def stop(args, state, control, **_):
            if state.global_step == 9:
                raise Killed

        callback.on_step_begin = stop
        return callback

    module.watch = watch
    try:
        with pytest.raises(Killed):
            optimize_preferences(writer, tokenizer, pairs, config, tmp_path / "broken")
    finally:
        module.watch = real
    assert any((tmp_path / "broken").glob("checkpoints-*/checkpoint-5"))
    optimize_preferences(writer, tokenizer, pairs, config, tmp_path / "broken")
    a, b = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "broken"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    logs = [pd.read_csv(tmp_path / name / "log.csv") for name in ("whole", "broken")]
    pd.testing.assert_frame_equal(*logs)
