"""Fine-tuning by TRL: what the loss is, what is saved, and a killed training ends as an unbroken one does."""

import time

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pwagents.errors import DataError
from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import LOGGED, fine_tune, train_on
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.lm.tokens import Example
from pwagents.lm.trainer import last_checkpoint

from ..processes import begin, kill
from . import killed_sft


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(["mat", "yoga"])


def small(tokenizer):
    return make_small_model(tokenizer, 0, killed_sft.SIZE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training from beginning to end: folder, log."""
    folder = tmp_path_factory.mktemp("sft")
    return folder, killed_sft.train(folder)


def test_the_loss_falls_and_the_folder_is_a_model_with_its_log(trained):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, log = trained
    assert list(log.step) == [1, 10, 20, 30, 40] and list(log) == list(LOGGED)
    assert log.loss.iloc[-1] < log.loss.iloc[0] - 1
    pd.testing.assert_frame_equal(pd.read_csv(folder / "log.csv"), log)
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0
    assert AutoTokenizer.from_pretrained(folder).chat_template
    names = {path.name for path in folder.iterdir()}
    assert not any("checkpoint" in name or name.endswith(".bin") for name in names)


def test_checkpoints_in_quick_succession_are_nothing_to_warn_about(tmp_path, capfd):
    from transformers.utils.logging import warning_once

    warning_once.cache_clear()  # or another test may have been told already
    killed_sft.train(tmp_path, save_steps=10)
    assert "mtime" not in capfd.readouterr().err


def test_the_loss_is_the_mean_over_the_marked_tokens(tokenizer, tmp_path):
    """The first step's loss, computed again from one example at a time without padding."""
    examples = killed_sft.examples(tokenizer, 4)
    total = count = 0
    model = small(tokenizer)
    for example in examples:
        with torch.no_grad():
            logprobs = model(torch.tensor([example.input_ids])).logits[0].log_softmax(-1)
        for i, (token, written) in enumerate(zip(*example, strict=True)):
            total -= written * float(logprobs[i - 1, token])
            count += written
    log = train_on(
        model, tokenizer, examples, SftSettings(max_steps=1, per_device_train_batch_size=4), tmp_path
    )
    assert log.loss[0] == pytest.approx(total / count, rel=1e-5)


def test_tokens_outside_the_mask_teach_nothing(tokenizer, tmp_path):
    """What the user says last has no effect on the weights: nothing that counts comes after it."""
    examples = killed_sft.examples(tokenizer, 8)
    weights = []
    for i, more in enumerate(([], [70, 71, 72])):
        longer = [Example(e.input_ids + more, e.mask + [0] * len(more)) for e in examples]
        train_on(small(tokenizer), tokenizer, longer, SftSettings(max_steps=3), tmp_path / str(i))
        weights.append(load_file(tmp_path / str(i) / "model.safetensors"))
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("size", "passes"), [(4, 1), (2, 2)])
def test_our_loss_without_a_gpu_is_that_of_trl(tokenizer, tmp_path, size, passes, monkeypatch):
    from trl import SFTTrainer

    batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": passes}
    examples, config = killed_sft.examples(tokenizer), SftSettings(max_steps=10, **batches)
    ours = train_on(small(tokenizer), tokenizer, examples, config, tmp_path / "ours")
    trainers, begin = [], SFTTrainer.__init__

    def noted_init(self, *arguments, **options):
        begin(self, *arguments, **options)
        trainers.append(self)

    def loss_of_trl(model, inputs, items):
        return SFTTrainer.compute_loss(trainers[-1], model, inputs, num_items_in_batch=items)

    monkeypatch.setattr(SFTTrainer, "__init__", noted_init)
    monkeypatch.setattr("pwagents.lm.sft._cpu_loss", loss_of_trl)
    theirs = train_on(small(tokenizer), tokenizer, examples, config, tmp_path / "theirs")
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-4)


def test_sigkill_and_resume_give_the_weights_of_an_unbroken_training(trained, tmp_path):
    process = begin(killed_sft.train, tmp_path)
    deadline = time.monotonic() + 120
    while not any(tmp_path.glob("checkpoints-*/checkpoint-*/trainer_state.json")):
        assert process.exitcode is None and time.monotonic() < deadline, "the training was not caught"
        time.sleep(0.002)
    kill(process)
    assert not (tmp_path / "model.safetensors").exists()
    log = killed_sft.train(tmp_path, save_steps=20)  # which makes it no other training
    assert not list(tmp_path.glob("checkpoints-*"))
    pd.testing.assert_frame_equal(log, trained[1])
    unbroken, resumed = (load_file(folder / "model.safetensors") for folder in (trained[0], tmp_path))
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)


def test_half_a_checkpoint_is_not_gone_on_from(tmp_path):
    for step, state in ((5, "{}"), (10, '{"global_'), (15, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-5"]
    assert last_checkpoint(tmp_path / "none") is None


def test_an_adapter_is_trained_and_saved_alone(tokenizer, tmp_path):
    from peft import AutoPeftModelForCausalLM

    small(tokenizer).save_pretrained(tmp_path / "base")
    config = SftSettings(max_steps=20, learning_rate=1e-2, lora=(4, 8))
    log = train_on(tmp_path / "base", tokenizer, killed_sft.examples(tokenizer), config, tmp_path / "out")
    assert log.loss.iloc[-1] < log.loss.iloc[0]
    assert not (tmp_path / "out" / "model.safetensors").exists()
    weights = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert weights and all("lora_" in name for name in weights)
    assert AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out").peft_config["default"].r == 4


def test_a_conversation_that_is_too_long_is_refused_by_number(tokenizer, tmp_path):
    conversation = [{"role": "user", "content": "mat"}, {"role": "assistant", "content": "yoga " * 50}]
    short = [conversation[0], {"role": "assistant", "content": "yoga"}]
    too_long = r"record 1, field 'tokens': found 55; expected at most max_length = 40"
    with pytest.raises(DataError, match=too_long):
        fine_tune(small(tokenizer), tokenizer, [short, conversation], SftSettings(max_length=40), tmp_path)
    with pytest.raises(DataError, match="found none"):
        fine_tune(small(tokenizer), tokenizer, [], SftSettings(), tmp_path)


def test_a_training_that_diverges_ends_with_a_clear_error(tokenizer, tmp_path):
    model = small(tokenizer)
    with torch.no_grad():
        model.model.embed_tokens.weight[60] = float("nan")
    with pytest.raises(FloatingPointError, match="fine-tune: the loss is nan at step 1; a lower"):
        train_on(model, tokenizer, killed_sft.examples(tokenizer), SftSettings(max_steps=2), tmp_path)
