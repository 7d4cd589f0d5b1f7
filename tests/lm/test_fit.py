"""Will it fit? The formulas against what is counted: parameters, saved tensors, peaks of memory."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import pytest
import torch

from pwagents.lm.fit import (
    GIB,
    SCORED_AT_ONCE,
    Device,
    DoesNotFitError,
    Plan,
    _changes,
    _rank_one,
    find_device,
    layer_keeps,
    logits,
    memory,
    needed,
    require_fit,
    without_storage,
)
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.rl.settings import GrpoSettings, PpoSettings, RlSettings

# The papers' models, as their published config.json has them.
QWEN = {  # Qwen2.5-7B-Instruct: Orion, 5.1
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
LLAMA = {  # LLaMA-2-7B: PUMA (PersonalWAB, B.2)
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
ENDLESS = Device("a GPU without end", 1 << 60, 1 << 60, 1)
MACHINE = Device("a machine without GPUs", 1 << 60, 1 << 60)
H100 = Device("H100", int(79.1 * GIB), int(79.1 * GIB), 1)
SFT = SftSettings(per_device_train_batch_size=1, bf16=True)
GRPO = GrpoSettings(max_steps=1, per_device_train_batch_size=1, bf16=True)


def config(published, **changes):
    from transformers import AutoConfig

    return AutoConfig.for_model(**(published | changes))


@pytest.fixture(scope="module")
def qwen():
    return without_storage(config(QWEN))


@pytest.fixture(scope="module")
def llama():
    return without_storage(config(LLAMA))


def prepared(config, settings):
    """The model as TRL's trainers prepare it on a GPU."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, settings.weights))
    add_fused_lm_head(model)
    if settings.lora:
        wanted = LoraConfig(r=settings.lora[0], target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, wanted)
    return model.train()


def loss_of(model, settings, ids, mask=None, tiled=True):
    """TRL's loss, whose logits exist a tile at a time, or the model's own, which holds all of them."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.bf16):
        how = {"fused_lm_head": True} if tiled else {}
        return model(input_ids=ids, attention_mask=mask, labels=ids, **how).loss


# --- parameters ------------------------------------------------------------------------------------


def test_parameters_are_the_published_ones(qwen, llama):
    assert qwen.num_parameters() == 7_615_616_512 and llama.num_parameters() == 6_738_415_616


def test_parameters_of_a_folder_are_the_saved_models(tmp_path):
    """With tied embeddings, which count once."""
    model = make_small_model(make_tokenizer(), seed=0)
    model.save_pretrained(tmp_path)
    network = without_storage(tmp_path)
    assert network.num_parameters() == sum(p.numel() for p in model.parameters())
    assert all(parameter.is_meta for parameter in network.parameters())


def test_an_adapter_has_as_many_parameters_as_peft_makes(qwen):
    from peft import LoraConfig, get_peft_model

    with torch.device("meta"):
        wanted = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = get_peft_model(without_storage(config(QWEN)), wanted)
    training = memory(qwen, Plan(replace(SFT, lora=(16, 32)), 64), H100)["training"]
    assert training["gradients"] == 4 * adapted.get_nb_trainable_parameters()[0] == 4 * 40_370_176
    assert training["weights"] == 2 * qwen.num_parameters() + training["gradients"]


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"model 'nobody/no-model': no folder with a config\.json"):
        without_storage("nobody/no-model")
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with pytest.raises(ValueError, match="type bert; expected a decoder of Llama's or Qwen2's kind"):
        without_storage(config({"model_type": "bert", **small}))


# --- the formulas against torch --------------------------------------------------------------------


def saved_bytes(model, settings, ids, mask):
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
        loss_of(model, settings, ids, mask)
    return sum(found.values())


@pytest.mark.parametrize("lora", [None, (8, 16)])
@pytest.mark.parametrize("bf16", [False, True])
def test_what_a_layer_keeps_is_near_what_it_saves(bf16, lora):
    rows, length = 2, 64
    settings = SftSettings(per_device_train_batch_size=rows, bf16=bf16, lora=lora)
    small = {"hidden_size": 96, "intermediate_size": 512, "vocab_size": 512}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    ids, mask = torch.ones(rows, length, dtype=torch.long), torch.ones(rows, length, dtype=torch.long)
    mask[0, length // 2 :] = 0
    few, more = (config(QWEN, **small, **heads, num_hidden_layers=n) for n in (2, 4))
    more_saved, few_saved = (saved_bytes(prepared(c, settings), settings, ids, mask) for c in (more, few))
    saved = (more_saved - few_saved) / 2
    if bf16:  # autocast's copies of what is in float32 lie there as well
        network = without_storage(few)
        layer = sum(p.numel() for p in network.base_model.layers[0].parameters())
        saved -= 2 * (8 * _rank_one(network) // 2 if lora else layer)
    reckoned = rows * length * layer_keeps(without_storage(few), Plan(settings, length))
    assert saved == pytest.approx(reckoned, rel=0.05)


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
    ("published", "settings", "device"),
    [(QWEN, SFT, ENDLESS), (LLAMA, SFT, ENDLESS), (LLAMA, replace(SFT, bf16=False), MACHINE)],
)
def test_the_sum_is_near_the_peak_of_a_training_at_full_width(published, settings, device):
    """Two layers of the real model, without storage: weights, optimizer and a step of two passes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    two_layers, plan = config(published, num_hidden_layers=2), Plan(settings, 2048)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = prepared(two_layers, settings)
        if settings.gradient_checkpointing:
            model.activation_checkpointing_enable()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        ids = torch.ones(1, plan.max_length, dtype=torch.long)
        with tracked(model, optimizer) as run:
            for _ in range(2):
                loss_of(model, settings, ids, tiled=device.gpus > 0).backward()
                run["tracker"].reset_mod_stats()
    reckoned = sum(memory(without_storage(two_layers), plan, device)["training"].values())
    assert reckoned == pytest.approx(run["result"]["peak"], rel=0.08)


@pytest.mark.parametrize("settings", [GRPO, replace(GRPO, bf16=False), replace(GRPO, lora=(16, 32))])
def test_logits_of_our_scoring_are_near_their_peak(qwen, settings):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.checkpoint import checkpoint

    from pwagents.rl.scoring import _score_tokens

    plan, dtype, frozen = Plan(settings, 2048, episodes=1), getattr(torch, settings.weights), settings.lora
    vocabulary, hidden_size = qwen.config.vocab_size, qwen.config.hidden_size
    with FakeTensorMode(allow_non_fake_inputs=True):
        weight = torch.zeros(vocabulary, hidden_size, dtype=dtype, requires_grad=not frozen)
        hidden = torch.zeros(plan.max_length, hidden_size, dtype=dtype, requires_grad=True)
        targets, temperatures = torch.zeros(plan.max_length, dtype=torch.long), torch.ones(plan.max_length)

        def head(hidden):
            return torch.nn.functional.linear(hidden, weight)

        with tracked(weight) as run:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.bf16):
                whole = (hidden, targets, temperatures)
                chunks = zip(*(part.split(SCORED_AT_ONCE) for part in whole), strict=True)
                parts = [checkpoint(_score_tokens, head, *chunk, use_reentrant=False) for chunk in chunks]
            sum(logprobs.sum() + entropies.sum() for logprobs, entropies in parts).backward()
    own = weight.untyped_storage().nbytes()
    measured = run["result"]["peak"] - own - (0 if frozen else own)  # and its gradient
    assert logits(qwen, plan, True) == pytest.approx(measured, rel=0.1)


def test_our_scoring_holds_as_many_logits_as_is_reckoned():
    from pwagents.rl import scoring

    assert scoring._CHUNK == SCORED_AT_ONCE


# --- what is said ----------------------------------------------------------------------------------


def test_orion_fits_as_the_paper_trained_it_and_no_otherwise():
    """Two H100 of 80 GB (Orion, 5.1); all weights of one 7B model do not fit on one of them."""
    two, plan = H100._replace(gpus=2), Plan(SFT, 4096)
    sharded = replace(plan, settings=replace(SFT, n_gpus=2, sharding="fsdp"))
    said = require_fit(config(QWEN), sharded, two)
    assert "on each GPU" in said and said.endswith("H100 has 79.1 GiB free: it fits.")
    with pytest.raises(DoesNotFitError) as refused:
        require_fit(config(QWEN), plan, two)
    message = str(refused.value)
    assert message.startswith("qwen2 (7,615,616,512 parameters) needs 138.8 GiB, H100 has 79.1 GiB free")
    assert "- n_gpus: 2 with sharding: fsdp: " in message
    with pytest.raises(DoesNotFitError, match=r"- lora: \[16, 32\], an adapter in place of all weights: 19"):
        require_fit(config(QWEN), plan, H100)
    with pytest.raises(DoesNotFitError, match="n_gpus is 2; expected at most 1, as many as were found"):
        require_fit(config(QWEN), sharded, H100)


def test_puma_fits_as_the_paper_trained_it():
    """LLaMA-2-7B with LoRA on GPUs of 24 GB (PersonalWAB, A.3), memory of 768 tokens."""
    a5000 = Device("A5000", int(23.5 * GIB), int(23.5 * GIB), 1)
    plan = Plan(DpoSettings(bf16=True), 1536)
    assert require_fit(config(LLAMA), plan, a5000).endswith("it fits.")
    alone = Plan(SftSettings(bf16=True, lora=(16, 32), per_device_train_batch_size=1), 1536)
    assert plan.tokens == 2 * alone.tokens  # a pair is two sequences


def test_it_is_refused_before_a_weight_is_read(tmp_path):
    config(QWEN).save_pretrained(tmp_path / "Qwen2.5-7B-Instruct")  # and no weights
    with pytest.raises(DoesNotFitError, match=r"^Qwen2\.5-7B-Instruct \(7,615,616,512 parameters\)"):
        require_fit(tmp_path / "Qwen2.5-7B-Instruct", Plan(SFT, 4096), H100)


def test_the_small_model_fits_this_machine():
    model = make_small_model(make_tokenizer(), seed=0)
    found, wide = find_device(), SftSettings(per_device_train_batch_size=64)
    assert 0 < found.free <= found.total
    assert require_fit(model.config, Plan(SftSettings(), 512)).endswith("GiB free: it fits.")
    with pytest.raises(DoesNotFitError, match="per_device_train_batch_size: 1"):
        require_fit(model.config, Plan(wide, 4096), Device("a small one", 2 * GIB, 2 * GIB))


@pytest.mark.parametrize("device", [H100, MACHINE])
@pytest.mark.parametrize("settings", [SFT, SftSettings(), replace(SFT, lora=(16, 32)), DpoSettings(), GRPO])
def test_more_needs_more(llama, settings, device):
    """Sequences, tokens, episodes."""
    episodes = 8 if settings is GRPO else 0
    plan = Plan(settings, 512, episodes)
    more = replace(settings, per_device_train_batch_size=2 * settings.per_device_train_batch_size)
    least = needed(llama, plan, device)
    assert least <= needed(llama, replace(plan, settings=more), device)
    assert least < needed(llama, replace(plan, max_length=8192), device)
    if episodes:
        assert least < needed(llama, replace(plan, episodes=800), device)


def test_playing_episodes_counts_keys_and_values_or_vllms_share(qwen):
    lora = replace(GRPO, lora=(16, 32))
    plan = Plan(lora, 8192, episodes=256)
    cache = 57_344  # a token of Qwen's: 2 x 28 layers x 4 heads x 128 x 2 bytes
    assert memory(qwen, plan, H100)["playing"]["keys and values"] == 256 * 8192 * cache
    assert needed(qwen, plan, H100) > H100.free
    beside = replace(plan, settings=replace(lora, use_vllm=True, vllm_gpu_memory_utilization=0.4))
    assert memory(qwen, beside, H100)["playing"]["vLLM"] == int(0.4 * H100.total)
    assert "keys and values" not in memory(qwen, beside, H100)["playing"]
    assert needed(qwen, beside, H100) < H100.free
    tight = replace(plan, settings=replace(lora, use_vllm=True, vllm_gpu_memory_utilization=0.05))
    assert memory(qwen, tight, H100)["training"]["vLLM"] > 2 * qwen.num_parameters()  # weights of its own


def test_a_reference_model_stands_beside_what_is_trained_whole(qwen):
    def reference(settings):
        return memory(qwen, Plan(settings, 1024, 8), H100)["playing"]["reference model"]

    assert reference(GRPO) == 0 and reference(replace(GRPO, beta=0.1)) == 4 * qwen.num_parameters()
    assert reference(replace(GRPO, beta=0.1, lora=(16, 32))) == 0  # the model without its adapter


def test_several_gpus_share_what_is_sharded(qwen):
    one, two = (replace(SFT, n_gpus=n, sharding="fsdp") for n in (1, 2))
    whole, shared = (memory(qwen, Plan(s, 4096), H100)["training"] for s in (one, two))
    for part in ("weights", "gradients", "optimizer"):
        assert shared[part] == whole[part] // 2
    copied = memory(qwen, Plan(replace(two, sharding="ddp"), 4096), H100)["training"]
    assert copied["weights"] == whole["weights"] and copied["copies at work"] > 4 * qwen.num_parameters()
    assert needed(qwen, Plan(two, 4096), MACHINE) == needed(qwen, Plan(one, 4096), MACHINE)  # in one process


def test_eight_bit_states_leave_the_embedding_in_float32(qwen):
    plan = Plan(replace(SFT, optim="adamw_bnb_8bit"), 4096)
    embedding = qwen.config.vocab_size * qwen.config.hidden_size
    states = memory(qwen, plan, H100)["training"]["optimizer"]
    assert states == 2 * (qwen.num_parameters() - embedding) + 8 * embedding


@pytest.mark.parametrize("gpus", [1, 2])
def test_advice_suffices_or_says_that_it_does_not(gpus):
    plan = Plan(replace(GRPO, per_device_train_batch_size=8), 8192, episodes=64)

    def advice(gib):
        with pytest.raises(DoesNotFitError) as refused:
            require_fit(config(QWEN), plan, Device("a GPU", gib * GIB, gib * GIB, gpus))
        return str(refused.value).split("\n- ")[1:]

    enough, hopeless = advice(79), advice(4)
    needs = [float(line.removesuffix(" GiB").rpartition(": ")[2]) for line in enough]
    assert needs == sorted(needs, reverse=True) and needs[-1] < 79 < needs[-2]
    assert hopeless[-1] == "a smaller model, or a GPU with more memory"


def test_advice_names_settings_that_a_training_has():
    from pwagents.orion.play import Decoding

    for settings in (SFT, DpoSettings(), GRPO, replace(GRPO, use_vllm=True), PpoSettings(max_steps=1)):
        plays = isinstance(settings, RlSettings)
        known = {field.name for field in fields(settings)}
        known |= {field.name for field in fields(Decoding)} if plays else set()
        texts = [text for text, _ in _changes(Plan(settings, 8192, 64 * plays), gpus=2)]
        assert {name for text in texts for name in re.findall(r"(\w+): ", text)} <= known
        sharded = [text for text in texts if "sharding" in text]
        refuses = isinstance(settings, DpoSettings | PpoSettings)  # which need the whole model on each GPU
        assert len(sharded) == (0 if refuses else 1)
        if plays and sharded:  # without vLLM, only ZeRO-3 gathers whole weights to play with
            assert sharded[0].endswith("fsdp" if settings.use_vllm else "deepspeed")


# --- vLLM ------------------------------------------------------------------------------------------


def test_vllm_is_taken_only_where_it_can_be():
    from pwagents.rl.grpo import use_vllm

    assert not use_vllm(False)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert not use_vllm(None)
    with pytest.raises(ValueError, match="the package vllm and a GPU"):
        use_vllm(True)
