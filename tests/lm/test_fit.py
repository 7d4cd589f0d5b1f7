"""Will it fit? The sums against what is counted: parameters, saved tensors, peaks of memory, operations."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import pytest
import torch

from pwagents.lm.devices import GIB, Device, find_device, named_device, use_vllm
from pwagents.lm.fit import MFU, DoesNotFitError, _changes, require_fit, will_it_fit
from pwagents.lm.memory_plan import SCORED_CHUNK, Plan, memory_parts
from pwagents.lm.model_size import ARCHITECTURES, SAVED, model_size
from pwagents.lm.small import make_small_model, make_tokenizer

QWEN, LLAMA = "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-2-7b-hf"
ENDLESS = Device("a GPU without end", "cuda", 1 << 60)
H100 = named_device("NVIDIA H100 80GB HBM3")


def config(name=QWEN, **changes):
    from transformers import AutoConfig

    return AutoConfig.for_model(**(ARCHITECTURES[name] | changes))


def network(config, plan):
    """The model of a plan as its trainer prepares it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, plan.weights))
    add_fused_lm_head(model)
    if plan.lora:
        model = get_peft_model(
            model, LoraConfig(r=plan.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        )
    if plan.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def loss_of(model, plan, ids, mask=None):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=plan.bf16):
        return model(input_ids=ids, attention_mask=mask, labels=ids, fused_lm_head=True).loss


# --- the numbers of the models ---------------------------------------------------------------------


def test_the_papers_models_have_their_published_numbers_of_parameters():
    assert model_size(QWEN).parameters == 7_615_616_512
    assert model_size(LLAMA).parameters == 6_738_415_616
    assert model_size(QWEN).cache_bytes(2) == 57_344  # 2 x 28 layers x 4 heads x 128 x 2 bytes
    assert model_size(LLAMA).cache_bytes(2) == 524_288


def test_an_adapter_has_as_many_parameters_as_peft_makes():
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config())
        wanted = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = get_peft_model(model, wanted)
    assert adapted.get_nb_trainable_parameters()[0] == 16 * model_size(QWEN).adapter == 40_370_176


def test_a_folder_and_a_model_with_tied_embeddings_are_counted(tmp_path):
    model = make_small_model(make_tokenizer(), seed=0)
    model.save_pretrained(tmp_path)
    size = model_size(tmp_path)
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert size.root == model.model.embed_tokens.weight.numel() + 96
    assert size.layer == sum(p.numel() for p in model.model.layers[0].parameters())


def test_operations_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    length, small = 64, config(num_hidden_layers=2, hidden_size=128, intermediate_size=256, vocab_size=512,
                               num_attention_heads=4, num_key_value_heads=2)  # fmt: skip
    size = model_size(small)
    small._attn_implementation = "eager"  # the counter does not see into others
    model = network(small, Plan("sft", length))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.ones(1, length, dtype=torch.long))
    # Eager attention computes all of it; causal attention needs half.
    unneeded = 2 * size.layers * size.attention * length
    assert counter.get_total_flops() == pytest.approx(length * (size.forward_flops(length) + unneeded))


def test_an_unknown_model_is_refused_with_what_is_known():
    with pytest.raises(ValueError, match=r"no folder with a config\.json.*known without a network: Qwen"):
        model_size("nobody/no-model")
    from transformers import AutoConfig

    with pytest.raises(ValueError, match="expected a decoder of Llama's or Qwen2's kind"):
        model_size(AutoConfig.for_model("bert"))


# --- memory ----------------------------------------------------------------------------------------


def saved_bytes(model, plan, ids, mask):
    """Bytes kept for the backward pass beside weights; every storage once."""
    known = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    found, alive = {}, []

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model, plan, ids, mask)
    return sum(found.values())


@pytest.mark.parametrize(("weights", "bf16", "adapter"), SAVED)
def test_what_a_layer_keeps_is_what_it_saves(weights, bf16, adapter):
    rows, length, rank = 2, 64, 8 if adapter else None
    plan = Plan("sft", length, rows, weights=weights, bf16=bf16, lora=(rank, 16) if rank else None)
    small = {"hidden_size": 96, "intermediate_size": 256, "vocab_size": 512}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    ids, mask = torch.ones(rows, length, dtype=torch.long), torch.ones(rows, length, dtype=torch.long)
    mask[0, length // 2 :] = 0
    few, more = (config(**small, **heads, num_hidden_layers=n) for n in (2, 4))
    difference = saved_bytes(network(more, plan), plan, ids, mask) - saved_bytes(
        network(few, plan), plan, ids, mask
    )
    size = model_size(few)
    each = 4 if weights == "float32" and not bf16 else 2
    expected = rows * length * (size.saved_bytes(weights, bf16, rank) + length * each)  # and the mask
    if bf16 and weights == "float32":  # autocast's copies of the weights, norms and biases but for rounding
        expected += 2 * (size.layer + (rank * size.adapter // size.layers if rank else 0))
    if bf16 and weights == "bfloat16" and rank:
        expected += 2 * rank * size.adapter // size.layers
    assert difference / 2 == pytest.approx(expected, rel=0.01)


@contextmanager
def tracked(model, *others) -> Iterator[dict]:
    """The peak in bytes under "peak", afterwards."""
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker, result = MemTracker(), {}
    tracker.track_external(model, *others)
    with tracker:
        yield {"tracker": tracker, "result": result}
    result["peak"] = next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]


@pytest.mark.parametrize(
    ("name", "weights", "bf16", "checkpointing"),
    [(QWEN, "bfloat16", True, True), (QWEN, "float32", True, False), (LLAMA, "float32", False, True)],
)
def test_the_sum_is_near_the_peak_of_a_training_at_full_width(name, weights, bf16, checkpointing):
    """Two layers of the real model, without storage: weights, optimizer and a step of two passes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    plan = Plan("sft", 2048, weights=weights, bf16=bf16, gradient_checkpointing=checkpointing)
    two_layers = config(name, num_hidden_layers=2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = network(two_layers, plan)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        ids = torch.ones(plan.micro_batch, plan.length, dtype=torch.long)
        with tracked(model, optimizer) as run:
            for _ in range(2):
                loss_of(model, plan, ids).backward()
                run["tracker"].reset_mod_stats()
    parts = memory_parts(model_size(two_layers), plan, ENDLESS)
    parts.pop("reserve")
    assert sum(part[0] for part in parts.values()) == pytest.approx(run["result"]["peak"], rel=0.08)


@pytest.mark.parametrize(("weights", "bf16"), [("float32", False), ("float32", True), ("bfloat16", True)])
def test_the_output_layer_of_our_scoring_is_near_its_peak(weights, bf16):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.checkpoint import checkpoint

    from pwagents.rl.scoring import _score_tokens

    size, plan = model_size(QWEN), Plan("grpo", 2048, weights=weights, bf16=bf16)
    dtype = getattr(torch, weights)
    with FakeTensorMode(allow_non_fake_inputs=True):
        weight = torch.zeros(size.vocabulary, size.hidden, dtype=dtype, requires_grad=True)
        weight.grad = torch.zeros_like(weight)
        hidden = torch.zeros(plan.length, size.hidden, dtype=dtype, requires_grad=True)
        targets, temperatures = torch.zeros(plan.length, dtype=torch.long), torch.ones(plan.length)

        def head(hidden):
            return torch.nn.functional.linear(hidden, weight)

        with tracked(weight, weight.grad) as run:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                chunks = zip(
                    *(part.split(SCORED_CHUNK) for part in (hidden, targets, temperatures)), strict=True
                )
                parts = [checkpoint(_score_tokens, head, *chunk, use_reentrant=False) for chunk in chunks]
            sum(logprobs.sum() + entropies.sum() for logprobs, entropies in parts).backward()
    measured = run["result"]["peak"] - 2 * weight.untyped_storage().nbytes()
    assert memory_parts(size, plan, ENDLESS)["output layer"][0] == pytest.approx(measured, rel=0.1)


def test_our_scoring_holds_as_many_logits_as_is_reckoned():
    from pwagents.rl import scoring

    assert scoring._CHUNK == SCORED_CHUNK


def test_orion_fits_as_the_paper_trained_it_and_no_otherwise():
    """Two H100 of 80 GB (Orion, 5.1); all weights of one 7B model do not fit on one of them."""
    plan = Plan("sft", length=4096, bf16=True, gradient_checkpointing=True, sequences=1200)
    two = will_it_fit(QWEN, replace(plan, n_gpus=2, sharded=True), named_device("H100", count=2))
    assert two.fits and "it fits" in two.verdict and two.tokens == 1200 * 2048 and two.hours > 0
    with pytest.raises(DoesNotFitError) as refused:
        require_fit(QWEN, plan, H100)
    message = str(refused.value)
    assert "139.1 GiB" in message and "79.1 GiB" in message
    assert "n_gpus: 2 with sharding: fsdp" in message and "lora: [16, 32]" in message
    asked = will_it_fit(QWEN, replace(plan, n_gpus=2, sharded=True), H100)
    assert not asked.fits and "2 GPUs are asked for, 1 found" in asked.verdict
    assert any(line.startswith("n_gpus: 1 and lora: [16, 32]") for line in asked.advice)
    assert not any("fsdp" in line for line in asked.advice)
    needless = will_it_fit(QWEN, replace(plan, n_gpus=2, lora=(16, 32), weights="bfloat16"), H100)
    assert len(needless.advice) == 1 and needless.advice[0].startswith("n_gpus: 1: ")


def test_puma_fits_as_the_paper_trained_it():
    """LLaMA-2-7B with LoRA on GPUs of 24 GB (PersonalWAB, A.3), memory of 768 tokens."""
    plan = Plan("dpo", length=1536, lora=(16, 32), weights="bfloat16", bf16=True, gradient_checkpointing=True)
    assert will_it_fit(LLAMA, plan, named_device("A5000")).fits
    assert "reference model" not in set(will_it_fit(LLAMA, plan, H100).table["part"])
    whole = will_it_fit(LLAMA, replace(plan, lora=None), H100)
    assert "reference model" in set(whole.table["part"])


def test_playing_episodes_counts_keys_and_values_or_vllms_share():
    plan = Plan("grpo", length=8192, lora=(16, 32), weights="bfloat16", bf16=True, episodes=256, written=300,
                gradient_checkpointing=True, sequences=6400)  # fmt: skip
    size = model_size(QWEN)
    by_hand = 256 * (8192 * size.cache_bytes(2) + 4 * 4 * size.vocabulary)
    assert memory_parts(size, plan, H100)["keys and values"] == (0, by_hand)
    fit = will_it_fit(size, plan, H100)
    assert not fit.fits and fit.advice[0].startswith("batch_size: 64 episodes at once in place of 256")
    with_vllm = will_it_fit(size, replace(plan, vllm_memory=0.4), H100)
    assert with_vllm.fits and "keys and values" not in set(with_vllm.table["part"])
    too_little = memory_parts(size, replace(plan, vllm_memory=0.05), H100)["vLLM"]
    assert too_little[0] > 2 * size.parameters  # vLLM has weights of its own


def test_advice_suffices_where_it_says_so():
    plan = Plan("grpo", length=8192, micro_batch=8, episodes=64)
    fit = will_it_fit(QWEN, plan, H100)
    assert not fit.fits and len(fit.advice) > 2
    assert float(fit.advice[-1].split(": ")[-1].removesuffix(" GiB")) < 79.1
    hopeless = will_it_fit(QWEN, plan, Device("a small one", "cuda", 2 * GIB))
    assert "a smaller model" in hopeless.advice[-1]


def test_the_table_adds_up():
    fit = will_it_fit(QWEN, Plan("ppo", length=2048, episodes=16, written=200), H100)
    sums = fit.table.set_index("part")
    assert sums.drop(index="sum")["training (GiB)"].sum() == pytest.approx(sums["training (GiB)"]["sum"])
    assert fit.need / GIB == pytest.approx(sums.loc["sum"].max(), abs=1e-6)
    assert "playing (GiB)" not in will_it_fit(QWEN, Plan("sft", length=2048), H100).table


def test_the_small_model_fits_this_machine_and_a_large_one_may_not(tmp_path):
    model = make_small_model(make_tokenizer(), seed=0)
    device = replace(find_device(), kind="cpu")
    assert require_fit(model.config, Plan("grpo", length=512, micro_batch=64, episodes=64), device).fits
    tight = replace(device, memory=GIB)
    with pytest.raises(DoesNotFitError, match="per_device_train_batch_size: 1 in place of 64"):
        require_fit(model.config, Plan("grpo", length=4096, micro_batch=64, episodes=1), tight)


def test_advice_names_settings_that_the_stage_has():
    """Every plan of a setting that a stage does not have would be refused, or change nothing."""
    from pwagents.lm.settings import DpoSettings, SftSettings
    from pwagents.orion.play import Decoding
    from pwagents.rl.settings import GrpoSettings, PpoSettings

    told = {}
    for stage, config in {
        "sft": SftSettings,
        "dpo": DpoSettings,
        "grpo": GrpoSettings,
        "ppo": PpoSettings,
    }.items():
        known = {field.name for field in fields(config)}
        plays = stage in ("grpo", "ppo")
        known |= {field.name for field in fields(Decoding)} if plays else set()
        plan = Plan(stage, 8192, micro_batch=8, episodes=64 * plays, vllm_memory=0.4 * (stage == "grpo"))
        told[stage] = {text for text, _ in _changes(plan, H100)}
        for text in told[stage]:
            assert set(re.findall(r"(\w+): ", text)) <= known, text
    assert any("fsdp" in text for text in told["sft"]) and any("fsdp" in text for text in told["grpo"])
    assert not any("fsdp" in text or "8bit" in text for text in told["ppo"] | told["dpo"])


def test_sharded_weights_that_are_trained_count_in_float32():
    """accelerate turns them into float32 under FSDP; an adapter's frozen base stays as it is."""
    plan = Plan("sft", 4096, bf16=True, n_gpus=2, sharded=True)
    size = model_size(QWEN)
    for name in ("weights", "gradients", "optimizer"):
        halved = memory_parts(size, replace(plan, weights="bfloat16"), H100)[name]
        assert halved == memory_parts(size, plan, H100)[name]
    adapted = memory_parts(size, replace(plan, weights="bfloat16", lora=(16, 32)), H100)["weights"][0]
    assert adapted == (2 * size.parameters + 4 * 16 * size.adapter) // 2


def test_a_spread_model_is_whole_where_episodes_are_played_without_vllm():
    plan = Plan(
        "grpo", 4096, lora=(16, 32), weights="bfloat16", bf16=True, n_gpus=2, sharded=True, episodes=8
    )
    size = model_size(QWEN)

    def gathered(changed):
        return memory_parts(size, changed, H100)["gathered from the GPUs"]

    layers, whole = gathered(plan)
    assert whole == 2 * size.parameters and layers < 0.3 * whole
    assert gathered(replace(plan, vllm_memory=0.3)) == (layers, 0) == gathered(replace(plan, stage="sft"))


def test_eight_bit_states_leave_the_embedding_in_float32():
    size = model_size(QWEN)
    states = memory_parts(size, Plan("sft", 4096, optim="adamw_bnb_8bit"), H100)["optimizer"][0]
    embedding = size.vocabulary * size.hidden
    assert states == 2 * (size.parameters - embedding) + 8 * embedding


def test_hours_count_the_passes_over_the_tokens():
    plan = Plan(
        "grpo", 4096, lora=(16, 32), weights="bfloat16", bf16=True, sequences=640
    )  # nothing is written
    forward = 640 * 2048 * model_size(QWEN).forward_flops(2048) / (H100.flops * MFU) / 3600
    grpo, ppo = (
        will_it_fit(QWEN, replace(plan, stage=stage, episodes=8), H100).hours for stage in ("grpo", "ppo")
    )
    assert grpo == pytest.approx(3 * forward)  # reading; there and back, the frozen weights' gradients spared
    assert ppo == pytest.approx(4 * forward)  # the critic reads them, too
    assert will_it_fit(QWEN, replace(plan, stage="sft"), H100).hours == pytest.approx(2 * forward)
    assert will_it_fit(QWEN, replace(plan, stage="dpo"), H100).hours == pytest.approx(
        6 * forward
    )  # two a pair
    for slow in (replace(plan, weights="float32"), replace(plan, stage="sft", weights="float32", bf16=False)):
        assert will_it_fit(QWEN, slow, H100).hours is None  # float32 somewhere


def test_a_machine_without_gpus_is_not_several():
    """Where there is no GPU, a training runs in one process, whatever n_gpus says."""
    machine = Device("CPU", "cpu", 1 << 60)
    plan = Plan("sft", 1024)
    spread = replace(plan, n_gpus=2, sharded=True)
    assert will_it_fit(QWEN, spread, machine).need == will_it_fit(QWEN, plan, machine).need


# --- devices ---------------------------------------------------------------------------------------


def test_gpus_are_known_by_the_names_that_torch_reports_and_as_fast_as_trl_has_them():
    from trl.trainer.utils import get_peak_flops

    names = (
        "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA L4",
        "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-40GB", "NVIDIA RTX A6000",
        "NVIDIA L40S",
    )  # fmt: skip
    for name in names:
        assert named_device(name).flops == pytest.approx(get_peak_flops(name, "bfloat16"), rel=0.001), name
    small, large = (named_device(f"NVIDIA A100-SXM4-{gb}GB").memory for gb in (40, 80))
    assert small < 40 * GIB < 79 * GIB < large
    with pytest.raises(ValueError, match="GPU 'Abacus'; known are: H100"):
        named_device("Abacus")


def test_vllm_is_taken_only_where_it_can_be():
    assert not use_vllm("none")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert not use_vllm("auto")
    with pytest.raises(ValueError, match=r"vllm: colocate, but .*there is no GPU"):
        use_vllm("colocate")
    with pytest.raises(ValueError, match="vllm is 'yes'; expected one of auto, none, colocate"):
        use_vllm("yes")
