"""An adapter in place of all weights: it alone learns and is saved, and the next stage goes on with it."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from pwagents.llm.folder import read_model
from pwagents.rl.log import read_rows
from pwagents.rl.train import train_policy

from . import game

LORA = {"lora": (4, 8), "learning_rate": 5e-3, "save_steps": 0}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A model whose output layer, which no adapter changes, is strong enough to prefer a word."""
    folder = game.save_model(tmp_path_factory.mktemp("start"))
    model = game.make_model()
    with torch.no_grad():
        model.lm_head.weight *= 8
    model.save_pretrained(folder)
    return folder


def train(method, start, folder, **changed):
    given = (start, game.make_tokenizer(), game.make_tasks(6), game.play_bandit, game.pay_bandit)
    return train_policy(*given, game.CONFIGS[method](**(LORA | changed)), folder)


def adapter(folder):
    return load_file(folder / "adapter_model.safetensors")


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_an_adapter_learns_the_bandit_and_is_all_that_is_saved(method, start, tmp_path):
    before = load_file(start / "model.safetensors")
    out = train(method, start, tmp_path / "run", max_steps=30)
    assert not (out / "model.safetensors").exists()
    assert adapter(out) and all("lora_" in name for name in adapter(out))
    model = read_model(out, torch.float32)
    assert game.said(model, "begin", "go")["c"] > 0.8
    weights = {name.replace(".base_layer", ""): w for name, w in model.get_base_model().state_dict().items()}
    assert all(torch.equal(weights[name], w) for name, w in before.items())


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_a_run_taken_up_again_ends_with_the_same_adapter(method, start, tmp_path):
    whole = train(method, start, tmp_path / "whole", max_steps=4, save_steps=3)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "model")
    stored = torch.load(tmp_path / "again" / "checkpoint-3" / "pytorch_model.bin")
    assert stored and all("lora_" in name for name in stored), "the base model is not written again and again"
    again = train(method, start, tmp_path / "again", max_steps=4, save_steps=3)
    assert all(torch.equal(adapter(again)[name], w) for name, w in adapter(whole).items())


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_the_next_stage_goes_on_with_the_adapter_and_is_held_back_to_it(method, start, tmp_path):
    first = train(method, start, tmp_path / "first", max_steps=30)
    second = train(method, first, tmp_path / "second", max_steps=3, beta=10.0, learning_rate=1e-3)
    rows = read_rows(tmp_path / "second" / "log.jsonl")
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-6), "the reference is the first stage's policy"
    assert 0 < rows[-1]["kl"] < 0.1
    assert rows[0]["reward"] > 0.8
    names = {path.name for path in second.iterdir()}
    assert "adapter_config.json" in names and "ref" not in names
