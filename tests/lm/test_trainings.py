"""Fine-tuning and preferences by TRL: the losses are plain arithmetic, and a kill changes nothing."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file

from pwagents.errors import DataError
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm import trainer
from pwagents.lm.dpo import evaluate_pairs, prefer
from pwagents.lm.load import merge, new_adapter
from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import LOGGED, fine_tune
from pwagents.lm.tokens import tokenize_conversation
from pwagents.seeds import derive_seed

from ..processes import begin, kill
from . import tiny

TRAININGS = {"sft": tiny.train_sft, "dpo": tiny.train_dpo}
WEIGHTS = {"sft": "model.safetensors", "dpo": "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny.save_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """Each training from beginning to end: name -> folder, log."""
    folders = {name: tmp_path_factory.mktemp(name) for name in TRAININGS}
    return {name: (folder, TRAININGS[name](base, folder)) for name, folder in folders.items()}


def log_probability(model, prompt, completion):
    """Of each token of the completion and of the end token after it, from one text without padding."""
    tokenizer = read_tokenizer(model.name_or_path)
    n = len(tokenizer(prompt)["input_ids"])
    ids = tokenizer(prompt + completion + tokenizer.eos_token, return_tensors="pt")["input_ids"]
    logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    return logprobs.gather(1, ids[0, 1:, None])[n - 1 :, 0]


def gradient_norm(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm().item()


@pytest.mark.parametrize("batches", [{"per_device_train_batch_size": 4}, {"gradient_accumulation_steps": 2}])
def test_fine_tuning_loss_and_gradient_are_the_cross_entropy_of_the_completions(base, tmp_path, batches):
    """The first step, against one text at a time in plain torch."""
    rows, model = tiny.texts(4), read_model(base, torch.float32)
    learned = torch.cat([log_probability(model, row["prompt"], row["completion"]) for row in rows])
    (-learned.mean()).backward()
    fields = {"per_device_train_batch_size": 2, "max_steps": 1} | batches
    log = fine_tune(base, rows, tiny.sft(**fields), tmp_path)
    assert log.loss[0] == pytest.approx(-learned.mean().item(), rel=1e-5)
    assert log.grad_norm[0] == pytest.approx(gradient_norm(model), rel=1e-4)


def test_where_padding_counts_each_row_is_filled_with_end_tokens_that_nothing_looks_at(base, tmp_path):
    rows, length, model = tiny.texts(4), 20, read_model(base, torch.float32)
    tokenizer, losses = read_tokenizer(base), []
    for row in rows:
        prompt = tokenizer(row["prompt"])["input_ids"]
        text = tokenizer(row["prompt"] + row["completion"] + tokenizer.eos_token)["input_ids"]
        ids = torch.tensor([text + [tokenizer.eos_token_id] * (length - len(text))])
        seen = torch.tensor([[1] * len(text) + [0] * (length - len(text))])
        logprobs = model(ids, attention_mask=seen).logits[0, :-1].log_softmax(-1)
        losses.append(-logprobs.gather(1, ids[0, 1:, None])[len(prompt) - 1 :, 0])
    torch.cat(losses).mean().backward()
    log = fine_tune(base, rows, tiny.sft(max_steps=1, max_length=length), tmp_path, pad_counts=True)
    assert log.loss[0] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)
    assert log.grad_norm[0] == pytest.approx(gradient_norm(model), rel=1e-4)


def test_preference_loss_and_gradient_are_those_of_the_paper(base, trained, tmp_path):
    """PersonalWAB, equation 4: a new adapter's first step; then the trained one's accuracy and margin."""
    rows, settings = tiny.pairs(4), tiny.dpo(beta=0.3, max_steps=1)
    merge(trained["dpo"][0], whole := tmp_path / "whole")
    log = prefer(whole, rows, settings, tmp_path / "out")
    reference = read_model(whole, torch.float32)

    def margins(policy):
        policy.name_or_path = str(whole)
        gains = [
            sum(
                sign
                * (
                    log_probability(policy, row["prompt"], row[kind]).sum()
                    - log_probability(reference, row["prompt"], row[kind]).sum().detach()
                )
                for kind, sign in (("chosen", 1), ("rejected", -1))
            )
            for row in rows
        ]
        return 0.3 * torch.stack(gains)

    torch.manual_seed(derive_seed(settings.seed, "preferences") % 2**32)  # as TRL, before it draws an adapter
    first = get_peft_model(read_model(whole, torch.float32), new_adapter(whole, settings))
    loss = -torch.nn.functional.logsigmoid(margins(first)).mean()
    loss.backward()
    assert log.loss[0] == pytest.approx(loss.item(), rel=1e-5)
    assert log.grad_norm[0] == pytest.approx(gradient_norm(first), rel=1e-3)
    after = margins(read_model(tmp_path / "out", torch.float32))
    accuracy, margin = evaluate_pairs(tmp_path / "out", rows, settings)
    shares = [evaluate_pairs(tmp_path / "out", [row], settings) for row in rows]
    assert (accuracy, margin) == pytest.approx(np.mean(shares, axis=0), abs=1e-6)
    assert margin == pytest.approx(after.mean().item(), rel=1e-3) != 0
    assert accuracy == (after > 0).float().mean().item()


def test_a_prompt_that_is_too_long_for_its_answer_keeps_its_end(base, tmp_path):
    """TRL's ``max_prompt_length`` of PUMA's time; rows that fit stay as they are."""
    said = " ".join(tiny.WORDS)
    answers = {"chosen": "red mug", "rejected": "soft lamp"}
    long, fits = {"prompt": f"{said} {said} : ", **answers}, {"prompt": "navy : ", **answers}
    cut = {"prompt": long["prompt"][-len("lamp navy soft wool : ") :], **answers}
    settings = replace(tiny.dpo(max_steps=1, max_length=16), prompt_length=5)
    logs = [
        prefer(base, rows, settings, tmp_path / name)
        for name, rows in {"long": [long, fits], "cut": [cut, fits]}.items()
    ]
    assert logs[0].grad_norm[0] == logs[1].grad_norm[0] > 0


def test_conversations_are_learned_as_trls_own_way_has_it(base, tmp_path):
    """The same tokens, and the same of them learned, as by assistant_only_loss."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    messages = [
        {"role": "user", "content": "red mug"},
        {"role": "assistant", "content": "yoga mat"},
        {"role": "user", "content": "lamp"},
        {"role": "assistant", "content": "navy"},
    ]
    tokenizer = read_tokenizer(base)
    theirs = SFTTrainer(
        model=read_model(base, torch.float32),
        args=SFTConfig(str(tmp_path), assistant_only_loss=True, use_cpu=True, bf16=False, report_to="none"),
        train_dataset=Dataset.from_list([{"messages": messages}]),
        processing_class=tokenizer,
    ).train_dataset[0]
    ours = tokenize_conversation(tokenizer, messages)
    assert (theirs["input_ids"], theirs["labels"]) == (ours.input_ids, ours.labels)


def test_the_loss_falls_and_the_folder_is_a_model_with_its_log(trained):
    folder, log = trained["sft"]
    assert list(log.step) == [1, 10, 20, 30, 40] and list(log) == list(LOGGED)
    assert log.loss.iloc[-1] < log.loss.iloc[0] - 1
    pd.testing.assert_frame_equal(pd.read_csv(folder / "log.csv"), log)
    assert read_model(folder, torch.float32).num_parameters() > 0 and read_tokenizer(folder).chat_template
    names = {path.name for path in folder.iterdir()}
    assert not any("checkpoint" in name or name.endswith(".bin") for name in names)


def test_preferences_are_learned_from_the_reference_on(trained, base):
    folder, log = trained["dpo"]
    assert log.loss[0] == pytest.approx(0.6931, abs=1e-3)  # log 2: the reference is where it starts
    assert log.loss.iloc[-1] < 0.5 and not (folder / "ref").exists()
    assert evaluate_pairs(folder, tiny.pairs(), tiny.dpo())[0] == 1.0


def test_what_is_too_long_is_cut_and_what_then_teaches_nothing_is_left_out(base, tmp_path):
    long = {"prompt": "mug " * 30, "completion": "red"}
    fields = {"max_steps": 1, "max_length": 12, "per_device_train_batch_size": 8}
    alone = fine_tune(base, tiny.texts(4), tiny.sft(**fields), tmp_path / "alone")
    beside = fine_tune(base, [long, *tiny.texts(4)], tiny.sft(**fields), tmp_path / "beside")
    assert beside.loss[0] == pytest.approx(alone.loss[0], rel=1e-5)


def test_a_loss_that_is_no_number_ends_the_training(base, tmp_path):
    with pytest.raises(FloatingPointError, match=r"fine-tune: the loss is .* a lower learning rate may do"):
        fine_tune(base, tiny.texts(), tiny.sft(learning_rate=1e30, max_grad_norm=1e30), tmp_path)


def test_nothing_to_learn_from_is_refused(base, tmp_path):
    for train, settings in ((fine_tune, tiny.sft()), (prefer, tiny.dpo())):
        with pytest.raises(DataError, match="found none; expected at least one"):
            train(base, [], settings, tmp_path)


def test_rows_with_functions_need_a_template_that_tells_of_them(base, tmp_path):
    folder = shutil.copytree(base, tmp_path / "base")
    tokenizer = read_tokenizer(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    rows = [{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}]
    with pytest.raises(DataError, match="one that drops a call's function"):
        fine_tune(folder, rows, tiny.sft(), tmp_path)


@pytest.mark.parametrize("name", TRAININGS)
def test_sigkill_and_resume_give_the_weights_of_an_unbroken_training(trained, base, tmp_path, name):
    process = begin(TRAININGS[name], base, tmp_path)
    deadline = time.monotonic() + 120
    while not any(tmp_path.glob("checkpoints-*/checkpoint-*/files.json")):
        assert process.exitcode is None and time.monotonic() < deadline, "the training was not caught"
        time.sleep(0.002)
    kill(process)
    assert not (tmp_path / WEIGHTS[name]).exists()
    log = TRAININGS[name](base, tmp_path, save_steps=20)  # which makes it no other training
    assert not list(tmp_path.glob("checkpoints-*"))
    pd.testing.assert_frame_equal(log, trained[name][1])
    unbroken, resumed = (load_file(folder / WEIGHTS[name]) for folder in (trained[name][0], tmp_path))
    assert all(torch.equal(unbroken[key], resumed[key]) for key in unbroken)


class Stopped(Exception):
    """The end of a training that is to be gone on with."""


def broken_off(base, folder, monkeypatch, at=15):
    """The checkpoint of a training that ended in the middle of its 15th step."""
    real = trainer.watch

    def watch(what):
        callback = real(what)

        def stop(args, state, control, **_):
            if state.global_step == at:
                raise Stopped

        callback.on_step_begin = stop
        return callback

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "watch", watch)
        with pytest.raises(Stopped):
            tiny.train_sft(base, folder)
    (checkpoint,) = folder.glob("checkpoints-*/checkpoint-10")
    return checkpoint


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGE = {
    "an empty checkpoint": lambda c: [file.unlink() for file in c.iterdir()],
    "half of the optimizer": lambda c: half(c / "optimizer.pt"),
    "no optimizer": lambda c: (c / "optimizer.pt").unlink(),
    "zeros for weights": lambda c: (c / "model.safetensors").write_bytes(
        bytes((c / "model.safetensors").stat().st_size)
    ),
    "a state without its fields": lambda c: (c / "trainer_state.json").write_text("{}"),
    "no list of files": lambda c: (c / "files.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_the_training_made_again(
    base, trained, tmp_path, monkeypatch, capsys, damage
):
    checkpoint = broken_off(base, tmp_path, monkeypatch)
    (checkpoint.parent / "checkpoint-copy").mkdir()  # a stray folder is no checkpoint
    DAMAGE[damage](checkpoint)
    log = tiny.train_sft(base, tmp_path)
    assert capsys.readouterr().out.count("is damaged") == 1
    pd.testing.assert_frame_equal(log, trained["sft"][1])


def test_a_whole_checkpoint_is_gone_on_from_by_its_own_training_alone(base, trained, tmp_path, monkeypatch):
    checkpoint = broken_off(base, tmp_path, monkeypatch)
    assert trainer.last_checkpoint(checkpoint.parent) == str(checkpoint)
    log = tiny.train_sft(base, tmp_path, learning_rate=2e-2)  # another training begins anew
    assert log.loss.iloc[-1] != trained["sft"][1].loss.iloc[-1] and log.loss[0] == trained["sft"][1].loss[0]


def test_an_adapter_is_trained_saved_alone_and_trained_on(base, tmp_path):
    adapted = SftSettings(lora=(4, 8), trainer=tiny.STEPS | {"max_steps": 20})
    log = fine_tune(base, tiny.texts(), adapted, tmp_path / "one")
    assert log.loss.iloc[-1] < log.loss.iloc[0] and not (tmp_path / "one" / "model.safetensors").exists()
    assert all("lora_" in name for name in load_file(tmp_path / "one" / "adapter_model.safetensors"))
    more = fine_tune(tmp_path / "one", tiny.texts(), adapted, tmp_path / "two")
    assert more.loss[0] < log.loss[0]
    with pytest.raises(DataError, match=r"'lora': found None; expected lora: \[4, 8\]"):
        fine_tune(tmp_path / "one", tiny.texts(), tiny.sft(), tmp_path / "three")


def test_modules_that_are_trained_whole_are_stored_beside_the_adapter(base, tmp_path):
    settings = SftSettings(lora=(4, 8), modules_to_save=("norm",), trainer=tiny.STEPS | {"max_steps": 5})
    fine_tune(base, tiny.texts(), settings, tmp_path / "out")
    names = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert any(name.endswith("model.norm.weight") for name in names)
    read_model(tmp_path / "out", torch.float32)
