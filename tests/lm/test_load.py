"""Models in folders: whole or refused; an adapter finds its base wherever both are moved."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from pwagents.errors import DataError
from pwagents.llm.folder import ADAPTER, adapter_base, read_model
from pwagents.llm.local_model import LocalModel
from pwagents.lm.load import hold_in_float32, load_model, merge, with_adapter
from pwagents.settings import SftSettings

NORM, EMBEDDINGS, LORA = "model.norm.weight", "model.embed_tokens.weight", (4, 8)
DAMAGE = [
    ("base", lambda t: t.pop(NORM), f"missing keys: {NORM}"),
    ("base", lambda t: t.update({"model.nrom.weight": t.pop(NORM)}), "missing keys|unexpected keys"),
    ("base", lambda t: t.update({NORM: torch.ones(12)}), "mismatch"),
    ("base", lambda t: t[NORM].fill_(float("nan")), f"{NORM} holds values that are no numbers"),
    ("base", lambda t: t[EMBEDDINGS].zero_(), f"{EMBEDDINGS} holds nothing but zeros"),
    ("dpo", lambda t: t.pop(min(t)), "missing or unexpected tensors"),
    ("dpo", lambda t: t[min(t)].fill_(float("inf")), "values that are no numbers"),
]
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
BYTES = [(b"", "."), (bytes(5000), "."), (POINTER, "Git LFS pointer; .*git lfs pull")]
DAMAGE += [(name, *row) for name in ("base", "dpo") for row in BYTES]


@pytest.mark.parametrize(("name", "change", "line"), DAMAGE)
def test_a_model_that_is_not_whole_is_refused_in_one_line(models, tmp_path, name, change, line):
    folder = shutil.copytree(models, tmp_path / "models") / name
    (file,) = folder.glob("*.safetensors")
    if isinstance(change, bytes):
        file.write_bytes(change)
    else:
        change(tensors := load_file(file))
        save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match=rf"\A[^\n]*({line})[^\n]*\Z"):
        read_model(folder, torch.float32)


def test_a_moved_adapter_finds_its_base_beside_it_and_its_tokenizer_and_a_lonely_one_names_it(
    models, tmp_path
):
    ask = [{"role": "user", "content": "red mug"}]
    before = LocalModel(models / "dpo").complete(ask, max_tokens=5, temperature=0.0).text
    moved = shutil.copytree(models, tmp_path / "elsewhere")
    assert LocalModel(moved / "dpo").complete(ask, max_tokens=5, temperature=0.0).text == before
    alone = shutil.copytree(models, tmp_path / "alone") / "dpo"  # as peft saves it: no tokenizer
    for file in {*alone.iterdir()} - {*alone.glob("adapter*")}:
        file.unlink()
    assert LocalModel(alone).complete(ask, max_tokens=5, temperature=0.0).text == before
    # Its name, by which stored replies are found, does not tell where the base lies.
    config, names = json.loads((moved / "dpo" / ADAPTER).read_text()), []
    for base in ("other", "base"):
        other = {"base_model_name_or_path": f"/else/{base}", "target_modules": config["target_modules"][::-1]}
        (moved / "dpo" / ADAPTER).write_text(json.dumps(config | other))
        names.append(LocalModel(moved / "dpo").name)
    assert names[0] != names[1] == LocalModel(models / "dpo").name
    assert adapter_base(moved / "dpo") == moved / "base"
    shutil.copy(models / "dpo" / ADAPTER, moved / "dpo")
    (moved / "base").rename(moved / "other")
    with pytest.raises(DataError, match=r"base_model_name_or_path': found \.\./base; expected the folder"):
        read_model(moved / "dpo", torch.float32)


def test_a_merged_model_answers_as_base_and_adapter_do(models, tmp_path):
    merge(models / "dpo", tmp_path)
    ids = torch.arange(60, 70)[None]
    whole, adapted = (read_model(folder, torch.float32) for folder in (tmp_path, models / "dpo"))
    torch.testing.assert_close(whole(ids).logits, adapted(ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("gpu", "frozen"), [(True, torch.bfloat16), (False, torch.float32)])
def test_an_adapter_follows_from_its_seed_and_halves_what_it_leaves_on_a_gpu(base, monkeypatch, gpu, frozen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    first = []
    for seed in (1, 1, 2):
        settings = SftSettings(lora=LORA, modules_to_save=("norm",), trainer={"bf16": True}, seed=seed)
        adapted = with_adapter(load_model(base, settings), settings)
        hold_in_float32(adapted)
        weights = dict(adapted.named_parameters())
        kinds = {(each.requires_grad, each.dtype) for each in weights.values()}
        assert kinds == {(True, torch.float32), (False, frozen)}
        first.append(next(each for name, each in weights.items() if "lora_A" in name))
        whole = SftSettings(trainer={"bf16": True})  # small steps of what is trained would round away
        assert load_model(base, whole).dtype == torch.float32
    assert torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
