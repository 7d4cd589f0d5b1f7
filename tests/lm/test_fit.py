"""The formula of memory: against what torch counts, what settings change of it, what it says."""

from dataclasses import replace

import pytest

from pwagents.lm.fit import GIB, Device, DoesNotFitError, Plan, needed, require_fit, without_storage
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.rl.settings import GrpoSettings

H100 = Device("H100", 78 * GIB, 80 * GIB, 1)
CPU = Device("this machine", 8 * GIB, 8 * GIB)
FIELDS = {"per_device_train_batch_size": 1, "bf16": True, "activation_checkpointing": True}
ADAPTED = SftSettings(lora=(16, 32), trainer=FIELDS)
GRPO = GrpoSettings(max_steps=1, lora=(16, 32), bf16=True)


@pytest.fixture(scope="module")
def qwen():
    """Qwen2.5-7B's shape."""
    from transformers import Qwen2Config

    shape = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064}
    heads = {"num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False}
    return Qwen2Config(**shape, **heads)


WHOLE = ("embed_tokens", "lm_head", "input_layernorm", "post_attention_layernorm", "norm")
PLAYED = GrpoSettings(max_steps=1, lora=(16, 32), bf16=True, per_device_train_batch_size=1)


@pytest.mark.parametrize(
    ("shape", "plan", "measured"),
    [
        # Peaks of torch's tensors on an H200 (benchmarks/gpu_proof.py), in GiB.
        ("qwen", Plan(ADAPTED, 4096), 17.3),
        ("qwen", Plan(PLAYED, 1280, 32), 17.6),
        ("llama", Plan(replace(ADAPTED, modules_to_save=WHOLE), 1280), 18.7),
        ("llama", Plan(DpoSettings(modules_to_save=WHOLE, trainer=FIELDS), 1024), 19.1),
    ],
)
def test_the_forecast_is_near_what_was_measured_and_not_below_it(qwen, shape, plan, measured):
    from transformers import LlamaConfig

    config = qwen if shape == "qwen" else LlamaConfig(tie_word_embeddings=False)  # LLaMA-2-7B's shape
    forecast = needed(without_storage(config), plan, H100) / GIB
    assert measured < forecast < 1.25 * measured + 1


def test_what_saves_memory_saves_it_and_what_takes_more_takes_it(qwen):
    network = without_storage(qwen)

    def size(settings, length=4096, episodes=0):
        return needed(network, Plan(settings, length, episodes), H100)

    least = size(ADAPTED)
    for change in (
        {"lora": None},
        {"trainer": FIELDS | {"bf16": False}},
        {"trainer": FIELDS | {"activation_checkpointing": False}},
        {"trainer": FIELDS | {"per_device_train_batch_size": 4}},
    ):
        assert size(replace(ADAPTED, **change)) > least
    assert size(ADAPTED, 8192) > least < size(DpoSettings(trainer=FIELDS))
    whole = replace(ADAPTED, lora=None, n_gpus=4)
    assert size(whole) < size(replace(whole, sharding="ddp"))
    assert size(GRPO, episodes=8) < size(replace(GRPO, use_vllm=True), episodes=8)


def test_a_line_says_what_is_needed_and_what_would_help(qwen):
    line = require_fit(qwen, Plan(ADAPTED, 4096), H100)
    assert line.startswith("qwen2 (7,615,616,512 parameters) needs ") and line.endswith(
        "H100 has 78.0 GiB free: it fits."
    )
    with pytest.raises(DoesNotFitError, match=r"it does not fit\. What would help: a smaller per_device"):
        require_fit(qwen, Plan(replace(ADAPTED, lora=None), 4096), H100)
    with pytest.raises(DoesNotFitError, match="n_gpus is 2; expected at most 1"):
        require_fit(qwen, Plan(replace(ADAPTED, n_gpus=2), 4096), H100)
