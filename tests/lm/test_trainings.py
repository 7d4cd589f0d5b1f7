"""Fine-tuning and preferences by TRL: the losses are plain arithmetic, and a kill changes nothing."""

import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import Trainer

from base_model.small import make_tokenizer
from pwagents.errors import DataError
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.load import merge, new_adapter
from pwagents.lm.train import (
    LOGGED,
    evaluate_pairs,
    fine_tune,
    last_checkpoint,
    not_falling,
    prefer,
    read_losses,
)
from pwagents.seeds import derive_seed
from pwagents.settings import SftSettings

from ..processes import begin
from . import conftest as tiny

TRAININGS, WEIGHTS = tiny.TRAININGS, {"sft": "model.safetensors", "dpo": "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def logs(models):
    return {name: pd.read_csv(models / name / "log.csv") for name in TRAININGS}


def log_probability(model, prompt, completion, length=0):
    """Of each token of the completion, of the end token, and of those that fill the text up to a length."""
    tokenizer = read_tokenizer(model.name_or_path)
    begin, ids = tokenizer(prompt)["input_ids"], tokenizer(prompt + completion)["input_ids"]
    padding = max(length - len(ids) - 1, 0)
    seen = torch.tensor([[1] * (len(ids) + 1) + [0] * padding])
    ids = torch.tensor([ids + [tokenizer.eos_token_id] * (1 + padding)])
    logprobs = model(ids, attention_mask=seen).logits[0, :-1].log_softmax(-1)
    return logprobs.gather(1, ids[0, 1:, None])[len(begin) - 1 :, 0]


def gradient_norm(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm().item()


def tokens_of(row):
    """The row as tokens, with what is learned."""
    begin, end = (TOKENIZER(row[part])["input_ids"] for part in ("prompt", "completion"))
    end.append(TOKENIZER.eos_token_id)
    return {"input_ids": begin + end, "labels": [-100] * len(begin) + end}


TOKENIZER, ROWS, FOUR = make_tokenizer(tiny.WORDS), tiny.texts(4), {"per_device_train_batch_size": 4}
TOO_LONG = {"prompt": "mug " * 30, "completion": "red"}  # which teaches nothing when it is cut


@pytest.mark.parametrize(
    ("plain", "given", "fields", "padded"),
    [
        (ROWS, ROWS, FOUR, False),
        (ROWS, [*map(tokens_of, ROWS)], {"gradient_accumulation_steps": 2}, False),
        (ROWS, ROWS, FOUR | {"max_length": 20}, True),
        (ROWS, [TOO_LONG, *ROWS], {"per_device_train_batch_size": 8, "max_length": 12}, False),
    ],
)
def test_fine_tuning_learns_completions_turns_ends_and_where_it_counts_the_padding(
    base, tmp_path, plain, given, fields, padded
):
    """Loss and gradient of the first step are those of one text at a time in plain torch."""
    model, length = read_model(base, torch.float32), fields["max_length"] if padded else 0
    rows = [log_probability(model, row["prompt"], row["completion"], length) for row in plain]
    (loss := -torch.cat(rows).mean()).backward()
    settings = tiny.sft(**{"per_device_train_batch_size": 2, "max_steps": 1} | fields)
    log = tiny.log_of(fine_tune, base, given, settings, tmp_path, pad_counts=padded)
    assert log.loss[0] == pytest.approx(loss.item(), rel=1e-5)
    assert log.grad_norm[0] == pytest.approx(gradient_norm(model), rel=1e-4)


def test_preference_loss_and_gradient_are_those_of_the_paper(base, models, tmp_path):
    """PersonalWAB, equation 4: a new adapter's first step; then the trained one's accuracy and margin."""
    rows, settings = tiny.pairs(4), tiny.dpo(beta=0.3, max_steps=1)
    merge(models / "dpo", whole := tmp_path / "whole")
    log = tiny.log_of(prefer, whole, rows, settings, tmp_path / "out")
    reference = read_model(whole, torch.float32)

    def margins(policy, rows):
        policy.name_or_path = str(whole)
        gains = []
        for row in rows:
            chosen, rejected = (
                log_probability(policy, row["prompt"], row[kind]).sum()
                - log_probability(reference, row["prompt"], row[kind]).sum().detach()
                for kind in ("chosen", "rejected")
            )
            gains.append(0.3 * (chosen - rejected))
        return torch.stack(gains)

    torch.manual_seed(derive_seed(settings.seed, "preferences") % 2**32)  # as TRL, before it draws an adapter
    first = get_peft_model(plain := read_model(whole, torch.float32), new_adapter(plain, settings))
    loss = -torch.nn.functional.logsigmoid(margins(first, rows)).mean()
    loss.backward()
    assert log.loss[0] == pytest.approx(loss.item(), abs=1e-6)
    assert log.grad_norm[0] == pytest.approx(gradient_norm(first), rel=1e-4)
    judged = tiny.pairs(10)
    measured = evaluate_pairs(tmp_path / "out", judged, settings)
    with torch.no_grad():
        after = margins(read_model(tmp_path / "out", torch.float32), judged)
    assert measured["margin"] == pytest.approx(after.mean().item(), rel=1e-3) != 0
    assert measured["loss"] == pytest.approx(-torch.nn.functional.logsigmoid(after).mean().item(), rel=1e-5)
    assert measured["accuracy"] == (after > 0).double().mean().item()


def test_a_prompt_that_is_too_long_for_its_answer_keeps_its_end(base, tmp_path):
    """TRL's ``max_prompt_length`` of PUMA's time; rows that fit stay as they are."""
    words, answers = " ".join(tiny.WORDS), {"chosen": "red mug", "rejected": "soft lamp"}
    whole = tiny.dpo(max_steps=1, max_length=16)
    for prompt, same in ((f"{words} {words} : ", "lamp navy soft wool : "), (f"{words} : ", f"{words} : ")):
        logs = [
            tiny.log_of(prefer, base, [{"prompt": text, **answers}], settings, tmp_path / text)
            for text, settings in ((prompt, whole.changed(prompt_length=5)), (same, whole))
        ]
        assert logs[0].grad_norm[0] == logs[1].grad_norm[0] > 0


def test_losses_fall_and_a_folder_is_a_model_with_its_log(models, logs):
    for name, log in logs.items():
        assert log.loss.iloc[-1] < log.loss.iloc[0] - 0.2
        assert read_model(models / name, torch.float32) and read_tokenizer(models / name).chat_template
        files = {path.name for path in (models / name).iterdir()}
        assert not any("checkpoint" in file or file.endswith(".bin") or file == "ref" for file in files)
    assert list(logs["sft"].step) == [1, 10, 20, 30, 40] and list(logs["sft"]) == list(LOGGED)
    assert logs["dpo"].loss[0] == pytest.approx(0.6931, abs=1e-3)  # log 2: the reference is where it starts
    losses = read_losses({"DPO": models / "dpo", "base": models / "base", "SFT": models / "sft"})
    assert list(losses["training"].unique()) == ["DPO", "SFT"] and not_falling(losses) == []
    curves = {"falls": (3, 4, 1), "rises": (1, 2), "broken": (2, float("nan")), "short": (1,)}
    rows = [(name, loss) for name, curve in curves.items() for loss in curve]
    assert not_falling(pd.DataFrame(rows, columns=["training", "loss"])) == ["rises", "broken"]


def test_what_cannot_be_trained_is_refused(base, tmp_path):
    for train, settings in ((fine_tune, tiny.sft()), (prefer, tiny.dpo())):
        with pytest.raises(DataError, match="found none; expected at least one"):
            train(base, [], settings, tmp_path)
    with pytest.raises(FloatingPointError, match=r"fine-tune: the loss is .* a lower learning rate may do"):
        fine_tune(base, tiny.texts(), tiny.sft(learning_rate=1e30, max_grad_norm=1e30), tmp_path)


def killed_in_step_15(train, base: Path, folder: Path) -> None:
    """Train, until SIGKILL comes in the middle of a step."""
    compute_step = Trainer.training_step

    def deadly(self, *given, **options):
        if self.state.global_step == 15:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute_step(self, *given, **options)

    Trainer.training_step = deadly
    train(base, folder)


@pytest.fixture(scope="module")
def killed(base, tmp_path_factory):
    """Of each training the folder that it had when it was killed."""
    folders = {name: tmp_path_factory.mktemp(name) for name in TRAININGS}
    began = [begin(killed_in_step_15, TRAININGS[name], base, folders[name]) for name in TRAININGS]
    for process in began:
        process.join()
        assert process.exitcode == -signal.SIGKILL
    return folders


def empty(checkpoint: Path) -> None:
    for file in checkpoint.iterdir():
        file.unlink()


def zeros(checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize(("name", "damage"), [("sft", None), ("dpo", None), ("sft", empty), ("sft", zeros)])
def test_sigkill_and_resume_give_the_weights_of_an_unbroken_training(
    models, base, killed, logs, tmp_path, capsys, name, damage
):
    """From a checkpoint that is damaged a training does not go on, but begins anew."""
    folder = shutil.copytree(killed[name], tmp_path / "out")
    (checkpoint,) = folder.glob("checkpoints-*/checkpoint-10")
    (checkpoint.parent / "checkpoint-copy").mkdir()  # a stray folder is no checkpoint
    if damage:
        damage(checkpoint)
    else:
        assert last_checkpoint(checkpoint.parent) == str(checkpoint)
    log = TRAININGS[name](base, folder, save_steps=25)  # which makes it no other training
    assert capsys.readouterr().out.count("is damaged") == bool(damage)
    assert not list(folder.glob("checkpoints-*"))
    pd.testing.assert_frame_equal(log, logs[name])
    unbroken, resumed = (load_file(each / WEIGHTS[name]) for each in (models / name, folder))
    assert all(torch.equal(unbroken[key], resumed[key]) for key in unbroken)


def test_a_checkpoint_is_gone_on_from_by_its_own_training_alone(base, killed, logs, tmp_path):
    log = tiny.train_sft(base, shutil.copytree(killed["sft"], tmp_path / "out"), learning_rate=2e-2)
    assert log.loss[0] == logs["sft"].loss[0] and log.loss[1] != logs["sft"].loss[1]


def test_an_adapter_is_saved_alone_with_what_it_trains_whole_and_is_trained_on(base, tmp_path):
    adapted = SftSettings(lora=(4, 8), modules_to_save=("norm",), trainer=tiny.STEPS | {"max_steps": 20})
    log = tiny.log_of(fine_tune, base, tiny.texts(), adapted, tmp_path / "one")
    assert log.loss.iloc[-1] < log.loss.iloc[0] and not (tmp_path / "one" / "model.safetensors").exists()
    names = load_file(tmp_path / "one" / "adapter_model.safetensors").keys()
    whole = [name for name in names if "lora_" not in name]
    assert len(whole) == 3 and all("norm" in name for name in whole)
    second = tiny.log_of(fine_tune, tmp_path / "one", tiny.texts(), adapted, tmp_path / "two")
    assert second.loss[0] < log.loss[0]
    with pytest.raises(DataError, match=r"'lora': found None; expected lora: \[4, 8\]"):
        fine_tune(tmp_path / "one", tiny.texts(), tiny.sft(), tmp_path / "three")
