"""Models from folders: whole or refused; an adapter finds its base wherever both are moved."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from pwagents.errors import DataError
from pwagents.llm.folder import ADAPTER, adapter_base, point_to_base, read_model
from pwagents.llm.local_model import LocalModel
from pwagents.lm.load import load_model, merge, with_adapter
from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import fine_tune

from . import tiny

ADAPTED = SftSettings(lora=(4, 8), trainer=tiny.STEPS | {"max_steps": 3})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of models: ``base``, and ``tuned``, an adapter on it."""
    folder = tmp_path_factory.mktemp("outputs") / "models"
    base = tiny.save_base(folder / "base")
    fine_tune(base, tiny.texts(), ADAPTED, folder / "tuned")
    return folder


def change(file, do):
    tensors = load_file(file)
    do(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def rename(tensors):
    tensors["model.nrom.weight"] = tensors.pop("model.norm.weight")


NORM = "model.norm.weight"
DAMAGE = {
    "missing keys: model.norm.weight": lambda t: t.pop(NORM),
    "missing keys|unexpected keys": rename,
    "mismatch": lambda t: t.update({NORM: torch.ones(12)}),
    "model.norm.weight holds values that are no numbers": lambda t: t[NORM].fill_(float("nan")),
    "embed_tokens.weight holds nothing but zeros": lambda t: t["model.embed_tokens.weight"].zero_(),
}


@pytest.mark.parametrize("line", DAMAGE)
def test_a_model_that_is_not_whole_is_refused_in_one_line(models, tmp_path, line):
    folder = shutil.copytree(models / "base", tmp_path / "base")
    change(folder / "model.safetensors", DAMAGE[line])
    with pytest.raises(DataError, match=line) as told:
        read_model(folder, torch.float32)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["base", "tuned"])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "."),
        (bytes(5000), "."),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer; .*git lfs pull"),
    ],
)
def test_neither_is_one_without_weights(models, tmp_path, name, content, line):
    folder = shutil.copytree(models, tmp_path / "models") / name
    next(folder.glob("*.safetensors")).write_bytes(content)
    with pytest.raises(DataError, match=line) as told:
        read_model(folder, torch.float32)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("do", "line"),
    [
        (lambda t: t.pop(min(t)), "missing or unexpected tensors"),
        (lambda t: t[min(t)].fill_(float("inf")), "values that are no numbers"),
    ],
)
def test_nor_is_an_adapter_that_is_not_whole(models, tmp_path, do, line):
    folder = shutil.copytree(models, tmp_path / "models") / "tuned"
    change(folder / "adapter_model.safetensors", do)
    with pytest.raises(DataError, match=line):
        read_model(folder, torch.float32)


def test_a_moved_adapter_finds_its_base_beside_it_and_a_lonely_one_names_it(models, tmp_path):
    ask = [{"role": "user", "content": "red mug"}]
    before = LocalModel(models / "tuned").complete(ask, max_tokens=5, temperature=0.0).text
    moved = shutil.copytree(models, tmp_path / "elsewhere")
    assert adapter_base(moved / "tuned") == moved / "base"
    assert LocalModel(moved / "tuned").complete(ask, max_tokens=5, temperature=0.0).text == before
    # Its name, by which stored replies are found, does not tell where the base lies.
    config = json.loads((moved / "tuned" / ADAPTER).read_text())
    config |= {"base_model_name_or_path": "/else/base", "target_modules": config["target_modules"][::-1]}
    (moved / "tuned" / ADAPTER).write_text(json.dumps(config))
    assert LocalModel(moved / "tuned").name == LocalModel(models / "tuned").name
    (moved / "tuned" / ADAPTER).write_text(json.dumps(config | {"base_model_name_or_path": "/else/other"}))
    assert LocalModel(moved / "tuned").name != LocalModel(models / "tuned").name
    shutil.copy(models / "tuned" / ADAPTER, moved / "tuned")
    (moved / "base").rename(moved / "other")
    with pytest.raises(DataError, match=r"base_model_name_or_path': found \.\./base; expected the folder"):
        read_model(moved / "tuned", torch.float32)


def test_an_adapter_on_a_model_that_was_never_saved_is_left_as_it_is(models, tmp_path):
    network = read_model(models / "base", torch.float32)
    network.name_or_path = network.config._name_or_path = None
    with_adapter(network, ADAPTED).save_pretrained(tmp_path)
    before = (tmp_path / ADAPTER).read_bytes()
    point_to_base(tmp_path)
    assert (tmp_path / ADAPTER).read_bytes() == before


def test_a_merged_model_answers_as_base_and_adapter_do(models, tmp_path):
    merge(models / "tuned", tmp_path)
    ids = torch.arange(60, 70)[None]
    whole, adapted = (read_model(folder, torch.float32) for folder in (tmp_path, models / "tuned"))
    torch.testing.assert_close(whole(ids).logits, adapted(ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("gpu", "frozen"), [(True, torch.bfloat16), (False, torch.float32)])
def test_frozen_weights_are_halved_on_a_gpu_alone(models, monkeypatch, gpu, frozen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    halved = SftSettings(lora=(4, 8), trainer={"bf16": True})
    adapted = with_adapter(load_model(models / "base", halved), halved)
    kinds = {("lora_" in name, weights.dtype) for name, weights in adapted.named_parameters()}
    assert kinds == {(True, torch.float32), (False, frozen)}


def test_a_new_adapter_depends_on_the_seed_alone(models):
    def first(seed):
        settings = SftSettings(lora=(4, 8), seed=seed)
        adapted = with_adapter(load_model(models / "base", settings), settings)
        return next(weights for name, weights in adapted.named_parameters() if "lora_A" in name)

    assert torch.equal(first(1), first(1)) and not torch.equal(first(1), first(2))
