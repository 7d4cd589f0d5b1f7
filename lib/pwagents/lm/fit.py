"""Will it fit? What a training needs in memory against what is free, before any weight is loaded.

    print(require_fit("models/Qwen2.5-7B-Instruct", Plan(settings, max_length=4096)))

The model is built on torch's meta device, where tensors have a shape and no storage: there its parameters are
counted. Everything else is a formula with its reason beside it, for models of Llama's and Qwen2's kind. The
tests compare the formulas with what autograd keeps and with the peaks that torch's memory tracker sees; what
several GPUs share and what vLLM takes is reckoned, not measured. All sizes are bytes on one GPU.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.llm.folder import read_config
from pwagents.lm.settings import DpoSettings, Tuning

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

GIB = 2**30
SCORED_AT_ONCE = 1024  # tokens of episodes whose logits exist at once (pwagents.rl.scoring)
TRL_TILE = (4096, 32768)  # tokens x vocabulary for which TRL's loss holds logits at once (TRL 1.16)


class DoesNotFitError(RuntimeError):
    """A training would run out of memory; the message says what it needs, what is free, what to change."""


class Device(NamedTuple):
    """GPUs, with the memory of the first in bytes; or a machine that has none."""

    name: str
    free: int
    total: int
    gpus: int = 0


@dataclass(frozen=True)
class Plan:
    """A training: its settings, and what these do not say.

    Args:
        max_length: tokens of the longest sequence, prompt included.
        episodes: played at once on one GPU; 0: none are played.
    """

    settings: Tuning
    max_length: int
    episodes: int = 0

    @property
    def tokens(self) -> int:
        """Of one pass; a pair is two sequences."""
        pairs = isinstance(self.settings, DpoSettings)
        return self.settings.per_device_train_batch_size * (2 if pairs else 1) * self.max_length

    @property
    def held(self) -> int:
        """Bytes of a weight."""
        return 2 if self.settings.weights == "bfloat16" else 4

    @property
    def computed(self) -> int:
        """Bytes of a number that a layer computes."""
        return 2 if self.settings.bf16 else 4

    @property
    def shards(self) -> int:
        """GPUs over which weights, gradients and optimizer are spread; with ddp each has all of them."""
        return 1 if self.settings.sharding == "ddp" else self.settings.n_gpus

    @property
    def vllm(self) -> float:
        """vLLM's share of the memory, 0 without it."""
        used = getattr(self.settings, "use_vllm", False)
        return self.settings.vllm_gpu_memory_utilization if used else 0.0

    def changed(self, max_length: int = 0, episodes: int = 0, **changes: Any) -> "Plan":
        """With other values; what the settings have no field for is passed over.

        Raises:
            ValueError: the settings refuse a value.
        """
        known = {f.name: changes[f.name] for f in fields(self.settings) if f.name in changes}
        settings = replace(self.settings, **known)
        return Plan(settings, max_length or self.max_length, episodes or self.episodes)


def require_fit(model: "str | Path | PretrainedConfig", plan: Plan, device: Device | None = None) -> str:
    """A line that says that a training fits on ``device`` (the one found, where none is given).

    Args:
        model: a configuration, or the folder of a model, of which only config.json is read.

    Raises:
        DoesNotFitError: it does not fit.
        ValueError: as :func:`without_storage`.
    """
    network, device, asked = without_storage(model), device or find_device(), plan.settings.n_gpus
    if asked > device.gpus > 0:
        raise DoesNotFitError(f"n_gpus is {asked}; expected at most {device.gpus}, as many as were found")
    need = needed(network, plan, device)
    name = Path(network.config._name_or_path).name or network.config.model_type
    each = " on each GPU" if device.gpus and asked > 1 else ""
    line = f"{name} ({network.num_parameters():,} parameters) needs {need / GIB:.1f} GiB{each}, "
    line += f"{device.name} has {device.free / GIB:.1f} GiB free"
    if need > device.free:
        advice = "\n- ".join(_advice(network, plan, device))
        raise DoesNotFitError(f"{line}: it does not fit. What would help, one after another:\n- {advice}")
    return f"{line}: it fits."


def find_device() -> Device:
    """The GPUs, else this machine, with the memory that is free now."""
    import psutil
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what earlier trainings of this process have left behind is free, too
        memory = torch.cuda.mem_get_info()
        return Device(torch.cuda.get_device_name(), *memory, torch.cuda.device_count())
    memory = psutil.virtual_memory()
    return Device("this machine", memory.available, memory.total)


def without_storage(model: "str | Path | PretrainedConfig") -> "PreTrainedModel":
    """The model of a configuration or of a folder on torch's meta device.

    Raises:
        ValueError: the folder holds no model or a broken one, or it is no decoder of Llama's or Qwen2's kind.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if isinstance(model, str | Path) and not (Path(model) / "config.json").exists():
        raise ValueError(f"model {str(model)!r}: no folder with a config.json")
    config = read_config(model) if isinstance(model, str | Path) else model
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    if not hasattr(getattr(network.base_model, "layers", [None])[0], "self_attn"):
        raise ValueError(f"model of type {config.model_type}; expected a decoder of Llama's or Qwen2's kind")
    return network


def needed(network: "PreTrainedModel", plan: Plan, device: Device) -> int:
    """Bytes at the peak, with a reserve for fragmentation, the GPU's context, libraries and PPO's critic."""
    return GIB + int(1.05 * max(sum(parts.values()) for parts in memory(network, plan, device).values()))


def memory(network: "PreTrainedModel", plan: Plan, device: Device) -> dict[str, dict[str, int]]:
    """Phase ("training" and, where episodes are played, "playing") -> part -> bytes."""
    if not device.gpus:  # the trainers compute in float32 there, in one process, without vLLM
        plan = plan.changed(bf16=False, n_gpus=1, use_vllm=False)
    settings, config, parameters = plan.settings, network.config, network.num_parameters()
    adapter = settings.lora[0] * _rank_one(network) if settings.lora else 0  # in float32: peft sees to it
    trained = adapter or parameters
    moments = 8 * trained  # AdamW keeps two of each weight
    if settings.optim == "adamw_bnb_8bit":  # except for the embedding
        moments = 2 * trained + (0 if adapter else 6 * config.vocab_size * config.hidden_size)
    # The reference of DPO and of a KL term; where there is an adapter, it is the model without it.
    second = parameters if getattr(settings, "beta", 0) and not adapter else 0
    standing = {
        "weights": (plan.held * parameters + 4 * adapter) // plan.shards,
        "optimizer": moments // plan.shards,
        "reference model": plan.held * second // plan.shards,
    }
    if plan.vllm:  # its share must hold weights of its own and the keys and values of one episode
        least = 2 * parameters + plan.max_length * _keys_and_values(network, 2)
        standing["vLLM"] = max(int(plan.vllm * device.total), least)
    training = {
        "gradients": 4 * trained // plan.shards,
        "copies at work": _copies(network, plan, trained),
        "kept by layers": _kept(network, plan),
        "backward pass": _work(network, plan, device.gpus > 0),
    }
    phases = {"training": standing | training}
    if plan.episodes:
        phases["playing"] = standing | ({} if plan.vllm else _playing(network, plan))
    return phases


def _rank_one(network: "PreTrainedModel") -> int:
    """Parameters of an adapter of rank 1 on all linear layers but the output layer."""
    import torch

    linear = (m for m in network.base_model.modules() if isinstance(m, torch.nn.Linear))
    return sum(m.in_features + m.out_features for m in linear)


def _copies(network: "PreTrainedModel", plan: Plan, trained: int) -> int:
    """Weights and gradients that exist once more while they are at work.

    A gradient is computed whole, then added to those of the passes before; the output layer's is the largest.
    """
    settings, config = plan.settings, network.config
    layers = sum(p.numel() for p in network.base_model.layers.parameters())
    if plan.shards > 1:  # gathered: embedding and output layer, one layer and the next, with their gradients
        gathered = network.num_parameters() - layers + 2 * layers // config.num_hidden_layers
        return gathered * (plan.computed + (0 if settings.lora else 4))
    buckets = 4 * trained if settings.n_gpus > 1 else 0  # in which ddp sends gradients
    autocast = 2 * layers if settings.bf16 else 0  # weights in bfloat16
    return buckets + (0 if settings.lora else autocast + 4 * config.vocab_size * config.hidden_size)


def _kept(network: "PreTrainedModel", plan: Plan) -> int:
    """What all layers keep for the backward pass; of those that are computed again, only the input."""
    again = plan.settings.gradient_checkpointing
    layer = plan.held * network.config.hidden_size if again else layer_keeps(network, plan)
    return plan.tokens * network.config.num_hidden_layers * layer


def layer_keeps(network: "PreTrainedModel", plan: Plan) -> int:
    """Bytes that one layer keeps of one token for the backward pass.

    Six vectors of the hidden size in float32, in which norms are computed; four of the attention's width
    (query, key, value, result); four of the feed-forward's (gate, its activation, up, their product); a row
    of the attention mask, which episodes have once for all layers.
    """
    attention = network.base_model.layers[0].self_attn.q_proj.out_features
    mask = 0 if plan.episodes else plan.max_length
    computed = 4 * attention + 4 * network.config.intermediate_size + mask
    return 24 * network.config.hidden_size + plan.computed * computed


def _work(network: "PreTrainedModel", plan: Plan, on_gpu: bool) -> int:
    """The room for the backward pass of a layer or, where that takes more, of the output layer."""
    token = 28 * network.config.hidden_size + 4 * plan.computed * network.config.intermediate_size
    if plan.settings.gradient_checkpointing:
        token += layer_keeps(network, plan)
    return max(plan.tokens * token, logits(network, plan, on_gpu))


def logits(network: "PreTrainedModel", plan: Plan, on_gpu: bool) -> int:
    """The logits that exist at once, with what loss and gradient need of them."""
    vocabulary, tokens = network.config.vocab_size, plan.tokens
    if plan.episodes:  # once as computed, six times in float32: from log-probabilities to gradients
        return min(tokens, SCORED_AT_ONCE) * vocabulary * (plan.computed + 6 * 4)
    if on_gpu:  # and the gradient of all hidden states
        tile = min(tokens, TRL_TILE[0]) * min(vocabulary, TRL_TILE[1])
        return plan.computed * tile + 4 * tokens * network.config.hidden_size
    return 4 * 4 * tokens * vocabulary  # logits, probabilities, their gradients


def _playing(network: "PreTrainedModel", plan: Plan) -> dict[str, int]:
    """Of episodes that the model at hand plays; in the worst case all are at their full length at once."""
    return {
        "keys and values": plan.episodes * plan.max_length * _keys_and_values(network, plan.held),
        "next tokens' logits": plan.episodes * network.config.vocab_size * 4 * 4,
        "gathered weights": plan.held * network.num_parameters() if plan.shards > 1 else 0,
    }


def _keys_and_values(network: "PreTrainedModel", bytes_each: int) -> int:
    """Bytes of one token's keys and values, in all layers."""
    width = network.base_model.layers[0].self_attn.k_proj.out_features
    return 2 * network.config.num_hidden_layers * width * bytes_each


def _advice(network: "PreTrainedModel", plan: Plan, device: Device) -> Iterator[str]:
    """Changes until it fits, each with what it and those before come to."""
    need = needed(network, plan, device)
    while need > device.free:
        helpful = (c for c in _changes(plan, device.gpus) if needed(network, c[1], device) < 0.99 * need)
        text, plan = next(helpful, ("", plan))
        if not text:
            yield "a smaller model, or a GPU with more memory"
            return
        need = needed(network, plan, device)
        yield f"{text}: {need / GIB:.1f} GiB"


def _changes(plan: Plan, gpus: int) -> Iterator[tuple[str, Plan]]:
    """First what costs time alone, last what changes what is learned."""
    sharding = "deepspeed" if plan.episodes and not plan.vllm else "fsdp"  # fsdp gathers no whole weights
    fewer = plan.episodes // 4 if plan.episodes > 8 else plan.episodes
    shorter = plan.max_length // 2 if plan.max_length > 1024 else plan.max_length
    length = "episode_tokens" if plan.episodes else "max_length"
    changes: dict[str, dict[str, Any]] = {
        "per_device_train_batch_size: 1": {"per_device_train_batch_size": 1},
        "bf16: true, which also computes activations a second time": {"bf16": True},
        f"batch_size: {fewer} episodes at once": {"episodes": fewer},
        "vllm_gpu_memory_utilization: 0.3": {"vllm_gpu_memory_utilization": 0.3},
        f"n_gpus: {gpus} with sharding: {sharding}": {"n_gpus": gpus or 1, "sharding": sharding},
        "lora: [16, 32], an adapter in place of all weights": {"lora": (16, 32)},
        f"{length}: sequences of {shorter:,} tokens in all": {"max_length": shorter},
    }
    for text, change in changes.items():
        with suppress(ValueError):  # the settings refuse it, as those of DPO do a sharding
            changed = plan.changed(**change)
            if changed != plan:
                yield text, changed
