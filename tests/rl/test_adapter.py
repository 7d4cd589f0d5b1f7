"""An adapter in place of all weights: it alone learns and is saved, and the next stage goes on with it."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from pwagents.llm.folder import read_model
from pwagents.rl.log import read_rows

from . import game

LORA = {"lora": (4, 8), "learning_rate": 5e-3, "save_steps": 0}


def start():
    """A model whose output layer, which no adapter changes, is strong enough to prefer a word."""
    model = game.make_model()
    with torch.no_grad():
        model.lm_head.weight *= 8
    return model


def train(method, start, folder, **changed):
    return game.train(method, folder, start, game.BANDIT, **(LORA | changed))


def adapter(folder):
    return load_file(folder / "adapter_model.safetensors")


BOTH = pytest.mark.parametrize("method", ["grpo", "ppo"])


@BOTH
def test_an_adapter_learns_is_all_that_is_saved_and_the_next_stage_goes_on_with_it(method, tmp_path):
    begun = start()
    begun.save_pretrained(tmp_path / "start")
    first = train(method, tmp_path / "start", tmp_path / "first", max_steps=30)
    assert not (first / "model.safetensors").exists()
    assert adapter(first) and all("lora_" in name for name in adapter(first))
    learned = read_model(first, torch.float32)
    assert game.said(learned, "begin", "go")["c"] > 0.8
    weights = {
        name.replace(".base_layer", ""): w for name, w in learned.get_base_model().state_dict().items()
    }
    assert all(torch.equal(weights[name], w) for name, w in begun.state_dict().items())

    second = train(method, first, tmp_path / "second", max_steps=3, beta=10.0, learning_rate=1e-3)
    rows = read_rows(tmp_path / "second" / "log.jsonl")
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-6), "the reference is the first stage's policy"
    assert 0 < rows[-1]["kl"] < 0.1
    assert rows[0]["reward"] > 0.8
    names = {path.name for path in second.iterdir()}
    assert "adapter_config.json" in names and "ref" not in names


@BOTH
def test_a_run_taken_up_again_ends_with_the_same_adapter(method, tmp_path):
    whole = train(method, start(), tmp_path / "whole", max_steps=4, save_steps=3)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "model")
    stored = torch.load(tmp_path / "again" / "checkpoint-3" / "pytorch_model.bin")
    assert stored and all("lora_" in name for name in stored), "the base model is not written again and again"
    again = train(method, start(), tmp_path / "again", max_steps=4, save_steps=3)
    assert all(torch.equal(adapter(again)[name], w) for name, w in adapter(whole).items())
