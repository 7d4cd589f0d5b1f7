"""The parts of the GPU benchmark with a tiny model on a CPU: they run, and count what they say."""

import gpu_proof
import pytest
import torch
from gpu_proof import ADAPTER, QWEN, Work, measure_grpo, measure_sft, operations, random_model

from pwagents.lm.settings import SftSettings
from pwagents.rl.settings import GrpoSettings

TINY = QWEN | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 6000,
}
WORK = Work(
    TINY,
    length=48,
    read=24,
    written=8,
    sft=SftSettings(max_steps=4, **ADAPTER),
    grpo=GrpoSettings(max_steps=2, prompts_per_step=2, num_generations=2, save_steps=0, **ADAPTER),
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_in_one_line(capsys):
    assert gpu_proof.main() == 1
    assert capsys.readouterr().err == "No GPU was found: this measures trainings on one.\n"


@pytest.mark.parametrize("measure", [measure_sft, measure_grpo])
def test_a_tiny_model_is_trained_and_measured(measure):
    found = measure(WORK)
    assert found["seconds_per_step"] > 0 and found["tokens_per_s"] > 0 and found["tflops"] > 0
    assert 0 < found["forecast_tensors_gib"] < found["forecast_gib"]


def test_weights_are_held_as_the_training_holds_them():
    model = random_model(TINY, WORK.sft)
    assert {weights.dtype for weights in model.parameters()} == {torch.bfloat16}
    assert torch.get_default_dtype() == torch.float32


def test_operations_are_those_of_products_forward_and_to_the_inputs():
    """Counted by torch: twice forward and once more backward where only an adapter learns."""
    from torch.utils.flop_counter import FlopCounterMode

    model, length = random_model(TINY, WORK.sft).float(), 64
    model.get_input_embeddings().requires_grad_(False)
    for weights in model.parameters():
        weights.requires_grad_(False)
    model.get_input_embeddings().register_forward_hook(lambda _m, _i, out: out.requires_grad_(True))
    ids = torch.zeros(1, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(ids).logits.float().sum().backward()
    # Torch counts all of attention, we the half that tokens may look at: of so short a text 3% of the whole.
    assert counter.get_total_flops() == pytest.approx(length * operations(TINY, length), rel=0.04)
