"""What a training needs in memory, part by part, per GPU.

It does two things: the training pass (weights, gradients, optimizer, what is kept for the backward pass, the
output layer) and, in reinforcement learning, playing episodes (weights, optimizer, keys and values).
Gradients count in full beside activations, as they lie there together from the second pass of a step on.

The sums were compared with torch's memory tracker on layers of the papers' models at full width (see the
tests); spreading over GPUs, vLLM's share and the reserve are reckoned, not measured.
"""

from dataclasses import dataclass, replace
from typing import Literal

from pwagents.lm.decode import PORTION
from pwagents.lm.devices import GIB, Device
from pwagents.lm.model_size import ModelSize
from pwagents.schema import check_choice

Stage = Literal["sft", "dpo", "grpo", "ppo"]
Weights = Literal["float32", "bfloat16"]
Optimizer = Literal["adamw_torch_fused", "adamw_bnb_8bit"]

TRL_TILE = (4096, 32768)  # tokens x vocabulary of which TRL's output layer holds logits at once (TRL 1.16)
SCORED_CHUNK = 1024  # tokens whose logits are held at once (pwagents.rl.scoring)
RESERVE = (0.05, GIB)  # share of what is counted, and bytes: fragmentation, the GPU's context, libraries


@dataclass(frozen=True)
class Plan:
    """What is to be trained and how, a field each for what costs memory or time.

    Args:
        length: tokens of the longest sequence, prompt and completion together.
        micro_batch: sequences (pairs with dpo) in one pass on one GPU.
        lora: rank and alpha of an adapter on all linear layers; None trains all weights.
        weights: their type; bf16 says whether the computing is in bfloat16 also where they are not.
        optim: the optimizer by transformers' name; the 8-bit one needs the package bitsandbytes.
        reference: a reference model is needed (dpo always has one; grpo and ppo where kl_beta is not 0). An
            adapter needs no second model for it.
        episodes: that are played at once on one GPU (grpo, ppo).
        vllm_memory: share of the GPU's memory that vLLM has, 0 without it.
        n_gpus: sharded tells whether weights, gradients and optimizer are spread over them (FSDP, ZeRO-3).
        sequences: of the whole training, every pass over one counted; for the hours.
        mean_length: tokens of a sequence on average; 0 takes half of ``length``.
        written: tokens of a sequence, on average, that the model itself writes (grpo, ppo).
    """

    stage: Stage
    length: int
    micro_batch: int = 1
    lora: tuple[int, int] | None = None
    weights: Weights = "float32"
    bf16: bool = False
    optim: Optimizer = "adamw_torch_fused"
    gradient_checkpointing: bool = False
    reference: bool = False
    episodes: int = 0
    vllm_memory: float = 0.0
    n_gpus: int = 1
    sharded: bool = False
    sequences: int = 0
    mean_length: int = 0
    written: int = 0

    def __post_init__(self):
        check_choice("stage", self.stage, Stage)
        check_choice("weights", self.weights, Weights)
        check_choice("optim", self.optim, Optimizer)

    @property
    def plays(self) -> bool:
        return self.stage in ("grpo", "ppo")

    @property
    def rank(self) -> int | None:
        return self.lora[0] if self.lora else None

    @property
    def mean(self) -> int:
        """Tokens of a sequence on average."""
        return self.mean_length or self.length // 2

    @property
    def tokens_a_pass(self) -> int:
        return self.micro_batch * self.length * (2 if self.stage == "dpo" else 1)


def memory_parts(size: ModelSize, plan: Plan, device: Device) -> dict[str, tuple[int, int]]:
    """Part -> bytes a GPU while training, and while playing episodes."""
    if device.kind == "cpu":  # as the trainers do
        plan = replace(plan, bf16=False, n_gpus=1, sharded=False, vllm_memory=0.0)
    elif plan.sharded and not plan.lora:  # FSDP and ZeRO-3 keep what is trained in float32
        plan = replace(plan, weights="float32")
    shards = plan.n_gpus if plan.sharded else 1
    each = 4 if plan.weights == "float32" else 2
    trained, trained_each = size.parameters, each
    if plan.rank is not None:
        trained, trained_each = plan.rank * size.adapter, 4  # peft keeps adapters in float32
    weights = size.parameters * each + (trained * trained_each if plan.lora else 0)
    gradients = trained * trained_each
    if plan.n_gpus > 1 and not plan.sharded:
        gradients *= 2  # and the buckets in which they travel
    states = trained * 2 * trained_each
    if plan.optim == "adamw_bnb_8bit":
        states = trained * 2
        if not plan.lora:
            states += 6 * size.hidden * size.vocabulary  # the embedding's stay in float32
    # A second model; the adapter's own base serves where there is one.
    second = (plan.reference or plan.stage == "dpo") and plan.lora is None
    parts = {
        "weights": (weights // shards,) * 2,
        "gradients": (gradients // shards, 0),
        "optimizer": (states // shards,) * 2,
        "reference model": (second * size.parameters * each // shards,) * 2,
        "gathered from the GPUs": _gathered(size, plan),
        "weights in bfloat16": (_copies(size, plan), 0),
        "kept for the backward pass": (_activations(size, plan), 0),
        "output layer": (_output_layer(size, plan, device), 0),
        "what the critic reads": (_critic(size, plan), 0),
        "keys and values": (0, _cache(size, plan)),
        "reading prompts": (0, _prefill(size, plan)),
        "vLLM": (_vllm(size, plan, device),) * 2,
    }
    share, constant = RESERVE
    counted = [sum(part[phase] for part in parts.values()) for phase in (0, 1)]
    parts["reserve"] = tuple(int(share * bytes_) + constant for bytes_ in counted)
    return {name: part for name, part in parts.items() if any(part)}


def peak(parts: dict[str, tuple[int, int]]) -> int:
    """Bytes a GPU, of the thing that needs more."""
    return max(sum(part[phase] for part in parts.values()) for phase in (0, 1))


def _computed_in(plan: Plan) -> int:
    return 2 if plan.bf16 or plan.weights == "bfloat16" else 4


def _gathered(size: ModelSize, plan: Plan) -> tuple[int, int]:
    """The parts outside the layers, and the layer at work and the next, whole; a layer's gradients.

    To play without vLLM the whole model is gathered.
    """
    if not plan.sharded or plan.n_gpus == 1:
        return 0, 0
    head = size.hidden * size.vocabulary  # its gradient counts with the output layer
    gradients = 0 if plan.lora else 4 * (size.layer + size.root - head)
    whole = plan.plays and not plan.vllm_memory
    playing = size.parameters * _computed_in(plan) if whole else 0
    return (size.root + 2 * size.layer) * _computed_in(plan) + gradients, playing


def _copies(size: ModelSize, plan: Plan) -> int:
    """Autocast keeps a copy of each weight; of frozen ones for one layer, where it computes again."""
    if not (plan.bf16 and plan.weights == "float32") or plan.sharded:
        return 0
    one = plan.lora is not None and plan.gradient_checkpointing
    return 2 * size.layer * (1 if one else size.layers)


def _activations(size: ModelSize, plan: Plan) -> int:
    """What the layers keep for the backward pass, and the room that one layer's backward pass works in."""
    tokens, computed = plan.tokens_a_pass, _computed_in(plan)
    layer = tokens * size.saved_bytes(plan.weights, plan.bf16, plan.rank)
    if not plan.plays and tokens > plan.length:  # padded; scoring episodes needs no mask
        layer += tokens * plan.length * computed
    work = tokens * (4 * size.feed_forward * computed + 16 * size.hidden)
    ends = 12 * tokens * size.hidden  # the last norm
    if plan.gradient_checkpointing:
        stream = 2 if plan.weights == "bfloat16" else 4
        return size.layers * tokens * size.hidden * stream + layer + work + ends
    return size.layers * layer + work + ends


def _output_layer(size: ModelSize, plan: Plan, device: Device) -> int:
    """The logits that are there at once, with what loss and gradient need, and the layer's own gradient.

    TRL holds a tile of them, our scoring of episodes a thousand tokens' (in float32, about six times over:
    logits, at temperature, log-probabilities, probabilities, gradients). On a CPU the whole is there.
    """
    tokens, computed, head = plan.tokens_a_pass, _computed_in(plan), size.hidden * size.vocabulary
    own_gradient = 0 if plan.lora else (4 if plan.weights == "float32" else 2) * head
    if plan.plays:
        return min(tokens, SCORED_CHUNK) * size.vocabulary * (computed + 6 * 4) + own_gradient
    if device.kind == "cpu":
        return tokens * size.vocabulary * (computed + 3 * 4) + own_gradient
    tile = min(tokens, TRL_TILE[0]) * min(size.vocabulary, TRL_TILE[1]) * computed
    if own_gradient and plan.weights == "bfloat16":
        own_gradient += 4 * head  # summed in float32
    return tile + tokens * size.hidden * 4 + own_gradient


def _critic(size: ModelSize, plan: Plan) -> int:
    """Hidden states of all tokens written in a step; the critic itself is small (pwagents.rl.ppo)."""
    return plan.episodes * plan.written * size.hidden * 4 if plan.stage == "ppo" else 0


def _cache(size: ModelSize, plan: Plan) -> int:
    """Keys and values of all episodes at once, and the logits of their next tokens; vLLM has its own room."""
    if not plan.plays or plan.vllm_memory:
        return 0
    logits = plan.episodes * size.vocabulary * 4 * 4
    return plan.episodes * plan.length * size.cache_bytes(2 if plan.weights == "bfloat16" else 4) + logits


def _vllm(size: ModelSize, plan: Plan, device: Device) -> int:
    """vLLM's share, which must hold weights of its own and the keys and values of one episode at least."""
    if not plan.vllm_memory:
        return 0
    least = 2 * size.parameters + plan.length * size.cache_bytes(2) + GIB
    return max(int(plan.vllm_memory * device.memory), least)


def _prefill(size: ModelSize, plan: Plan) -> int:
    """What one layer works in when as many tokens are read as there are at once, or one long prompt.

    Beside the hidden states it is what each token sees, once for each head that shares a key head.
    """
    if not plan.plays or plan.vllm_memory:
        return 0
    each, tokens = 2 if plan.weights == "bfloat16" else 4, max(PORTION, plan.length // 2)
    shared = size.attention // size.key_value
    a_token = (3 * size.feed_forward + 3 * size.hidden) * each + shared * plan.length * (1 + each)
    return tokens * a_token
