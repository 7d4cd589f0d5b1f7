"""Settings of trainings: TRL's fields, what is refused, what memory they take."""

from pathlib import Path

import pytest
from transformers import LlamaConfig, Qwen2Config

from pwagents import settings as module
from pwagents.lm.gpu_memory import GIB, Device, DoesNotFitError, Plan, needed, require_fit, without_storage
from pwagents.lm.train import trl_config
from pwagents.settings import DpoSettings, GrpoSettings, PpoSettings, SftSettings

from .conftest import CIRCUMSTANCES


@pytest.mark.parametrize("group", [SftSettings, DpoSettings])
def test_trls_fields_reach_trl_and_what_is_not_set_has_its_default(group):
    import trl

    given = {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "gradient_accumulation_steps": 3}
    written = {**given, "learning_rate": "1e-4"}  # YAML takes it for text
    made = trl_config(group(trainer=written), Path("x"), [], chance="fine-tuning", log_steps=10)
    plain = getattr(trl, group.CONFIG)(output_dir="x", use_cpu=True, bf16=False)
    ours = {"logging_steps", "save_steps", "save_total_limit", "seed", "logging_first_step", "output_dir"}
    ours |= {"logging_nan_inf_filter", "disable_tqdm", "activation_checkpointing", "gradient_checkpointing"}
    different = {name for name, value in made.to_dict().items() if value != plain.to_dict()[name]}
    assert different - ours == set(given)
    assert all(getattr(made, name) == value for name, value in given.items())
    # Seeds that reference results were made with: another one is another training.
    assert made.seed == 3608728275


@pytest.mark.parametrize(("group", "fields", "line"), CIRCUMSTANCES["fields"])
def test_what_trl_does_not_have_is_refused_by_name(group, fields, line):
    with pytest.raises(ValueError, match=line):
        getattr(module, group)(trainer=fields)


# The formula of memory, of Qwen2.5-7B and LLaMA-2-7B by their shapes.
H100 = Device("H100", 78 * GIB, 80 * GIB, 1)
FIELDS = {"per_device_train_batch_size": 1, "bf16": True, "activation_checkpointing": True}
ADAPTED = SftSettings(lora=(16, 32), trainer=FIELDS)
GRPO = GrpoSettings(max_steps=1, lora=(16, 32), bf16=True)
WHOLE = ("embed_tokens", "lm_head", "input_layernorm", "post_attention_layernorm", "norm")
QWEN = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064}
QWEN = Qwen2Config(**QWEN, num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False)
LLAMA = LlamaConfig(tie_word_embeddings=False)


@pytest.mark.parametrize(
    ("shape", "plan", "measured"),
    [
        # Peaks of torch's tensors on an H200 (benchmarks/gpu_proof.py), in GiB.
        (QWEN, Plan(ADAPTED, 4096), 17.3),
        (QWEN, Plan(GRPO.changed(per_device_train_batch_size=1), 1280, 32), 17.6),
        (LLAMA, Plan(ADAPTED.changed(modules_to_save=WHOLE), 1280), 18.7),
        (LLAMA, Plan(DpoSettings(modules_to_save=WHOLE, trainer=FIELDS), 1024), 19.1),
        (QWEN, Plan(SftSettings(trainer=FIELDS), 4096), 128.5),  # all weights
        (QWEN, Plan(GRPO.changed(lora=None, per_device_train_batch_size=1), 1280, 32), 128.5),
    ],
)
def test_the_forecast_is_near_what_was_measured_and_not_below_it(shape, plan, measured):
    forecast = needed(without_storage(shape), plan, H100) / GIB
    assert measured < forecast < 1.25 * measured + 1


def test_what_saves_memory_saves_it_and_what_takes_more_takes_it():
    network = without_storage(QWEN)

    def size(settings, length=4096, episodes=0):
        return needed(network, Plan(settings, length, episodes), H100)

    trainers = ({"bf16": False}, {"activation_checkpointing": False}, {"per_device_train_batch_size": 4})
    for change in ({"lora": None}, *({"trainer": FIELDS | fields} for fields in trainers)):
        assert size(ADAPTED.changed(**change)) > size(ADAPTED)
    assert size(ADAPTED, 8192) > size(ADAPTED) < size(DpoSettings(trainer=FIELDS))
    whole = ADAPTED.changed(lora=None, n_gpus=4)
    assert size(whole) < size(whole.changed(sharding="ddp"))
    assert size(GRPO, episodes=8) < size(GRPO.changed(use_vllm=True), episodes=8)
    ppo = PpoSettings(max_steps=1, lora=(16, 32), bf16=True)
    read = ppo.episodes * 4096 * 3584 * 4  # the critic's features
    assert read < size(ppo, episodes=8) - size(GRPO, episodes=8) < 1.1 * read + GIB


def test_a_line_says_what_is_needed_and_what_would_help():
    line = require_fit(QWEN, Plan(ADAPTED, 4096), H100)
    assert line.startswith("qwen2 (7,615,616,512 parameters) needs ")
    assert line.endswith("H100 has 78.0 GiB free: it fits.")
    for change, told in (
        ({"lora": None}, r"it does not fit\. What would help: a smaller per_device"),
        ({"n_gpus": 2}, "n_gpus is 2; expected at most 1"),
    ):
        with pytest.raises(DoesNotFitError, match=told):
            require_fit(QWEN, Plan(ADAPTED.changed(**change), 4096), H100)
