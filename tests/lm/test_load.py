"""What a training starts from: a model as it is or from a folder, with the adapter that is asked for."""

import pytest
import torch

from pwagents.errors import DataError
from pwagents.lm.load import load_model, new_adapter, with_adapter
from pwagents.lm.settings import SftSettings
from pwagents.lm.small import make_small_model, make_tokenizer

SIZE = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ADAPTED = SftSettings(lora=(4, 8))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    make_small_model(make_tokenizer(), 0, SIZE).save_pretrained(folder)
    return folder


def policy(start, **changes):
    tuning = SftSettings(**({"lora": (4, 8)} | changes))
    return with_adapter(load_model(start, tuning), tuning)


def test_a_model_in_memory_and_all_of_its_weights_stay_as_they_are(start):
    model = load_model(start, SftSettings())
    assert load_model(model, ADAPTED) is with_adapter(model, SftSettings()) is model


def test_weights_in_bfloat16_below_an_adapter_in_float32(start):
    kinds = {(p.requires_grad, p.dtype) for p in policy(start, bf16=True).parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}


def test_a_new_adapter_depends_on_the_seed_alone(start):
    first, same, other = (policy(start, seed=seed) for seed in (1, 1, 2))
    name = next(name for name, p in first.named_parameters() if "lora_A" in name)
    assert torch.equal(first.get_parameter(name), same.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))


def test_an_adapter_in_the_folder_is_gone_on_with_and_must_be_the_one_asked_for(start, tmp_path):
    made = policy(start)
    made.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, ADAPTED)
    assert new_adapter(loaded, ADAPTED) is None and with_adapter(loaded, ADAPTED) is loaded
    assert {p.requires_grad for name, p in loaded.named_parameters() if "lora_" in name} == {True}
    with pytest.raises(DataError, match=r"'lora': found None; expected lora: \[4, 8\]"):
        load_model(tmp_path, SftSettings())
    with pytest.raises(DataError, match=r"'lora': found \(8, 8\)"):
        load_model(tmp_path, SftSettings(lora=(8, 8)))
