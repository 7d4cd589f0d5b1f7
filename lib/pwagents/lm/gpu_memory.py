"""Will it fit? What a training needs in memory against what is free, before any weight is loaded.

    print(require_fit("models/Qwen2.5-7B-Instruct", Plan(settings, max_length=4096)))

One formula for decoders of Llama's and Qwen2's kind, in bytes on one GPU, 6 to 22% above the six peaks
that were measured on an H200 (``benchmarks/gpu_proof.py``). The number of parameters comes from
a model on torch's meta device, where tensors have a shape and no storage.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.llm.folder import read_config
from pwagents.lm.launch import free_memory
from pwagents.portable import cpu_name
from pwagents.settings import VLLM_MEMORY, DpoSettings, PpoSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

GIB = 2**30
SCORED_AT_ONCE = 1024  # tokens of episodes whose logits exist at once (pwagents.rl.loss)
TILE = 4096 * 32768  # tokens x vocabulary whose logits TRL's fine-tuning holds at once on a GPU (TRL 1.16)


class DoesNotFitError(RuntimeError):
    """A training would run out of memory; the message says what it needs, what is free, what to change."""


class Device(NamedTuple):
    """GPUs, with the memory of the first in bytes; or a machine that has none."""

    name: str
    free: int
    total: int
    gpus: int = 0


def find_device() -> Device:
    """Return the GPUs, else the CPU, with the memory that is free now."""
    import psutil
    import torch

    if torch.cuda.is_available():
        free_memory()
        memory = torch.cuda.mem_get_info()
        return Device(torch.cuda.get_device_name(), *memory, torch.cuda.device_count())
    memory = psutil.virtual_memory()
    return Device(cpu_name(), memory.available, memory.total)


@dataclass(frozen=True)
class Plan:
    """A training: its settings, and what these do not say.

    Args:
        max_length: tokens of the longest sequence, prompt included.
        episodes: played at once on one GPU; 0: none are played.
    """

    settings: Any
    max_length: int
    episodes: int = 0

    def value(self, name: str, default: Any) -> Any:
        """Return a setting of a training by rewards, or a field of TRL's trainer."""
        return getattr(self.settings, "trainer", vars(self.settings)).get(name, default)


def require_fit(model: "str | Path | PretrainedConfig", plan: Plan, device: Device | None = None) -> str:
    """Return a line that says that a training fits on ``device`` (the one found, where none is given).

    Args:
        model: a configuration, or the folder of a model, of which only config.json is read.

    Raises:
        DataError: there is no configuration in the folder.
        DoesNotFitError: it does not fit.
    """
    network, device, gpus = without_storage(model), device or find_device(), plan.settings.n_gpus
    if gpus > device.gpus > 0:
        raise DoesNotFitError(f"n_gpus is {gpus}; expected at most {device.gpus}, as many as were found")
    need = needed(network, plan, device)
    name = Path(network.config._name_or_path).name or network.config.model_type
    each = " on each GPU" if device.gpus and gpus > 1 else ""
    line = f"{name} ({network.num_parameters():,} parameters) needs {need / GIB:.1f} GiB{each}, "
    line += f"{device.name} has {device.free / GIB:.1f} GiB free"
    if need > device.free:
        helpful = (
            "a smaller per_device_train_batch_size or max_length, bf16 with activation_checkpointing, lora"
        )
        raise DoesNotFitError(f"{line}: it does not fit. What would help: {helpful}, or more GPUs with fsdp")
    return f"{line}: it fits."


def without_storage(model: "str | Path | PretrainedConfig") -> "PreTrainedModel":
    """Return the model of a configuration or of a folder on torch's meta device."""
    import torch
    from transformers import AutoModelForCausalLM

    config = read_config(model) if isinstance(model, str | Path) else model
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def needed(network: "PreTrainedModel", plan: Plan, device: Device) -> int:
    """Return the bytes at the peak, with a reserve for fragmentation, the GPU's context and libraries."""
    import torch

    settings, config, parameters = plan.settings, network.config, network.num_parameters()
    on_gpu = device.gpus > 0
    half = plan.value("bf16", False) and on_gpu  # the trainers compute in float32 without a GPU
    held, computed = (2 if half and settings.lora else 4), (2 if half else 4)
    shards = settings.n_gpus if on_gpu and settings.sharding not in ("ddp", "cpu") else 1
    # Trained weights in float32 with their gradient and AdamW's two moments; DPO keeps no second model.
    linear = [m for m in network.base_model.modules() if isinstance(m, torch.nn.Linear)]
    adapter = settings.lora[0] * sum(m.in_features + m.out_features for m in linear) if settings.lora else 0
    whole = set(getattr(settings, "modules_to_save", ()))
    adapter += sum(p.numel() for name, p in network.named_parameters() if {*name.split(".")} & whole)
    trained = 16 * (adapter or parameters)
    frozen = held * parameters if adapter else 0
    standing = (frozen + trained) // shards
    if plan.value("use_vllm", False):
        standing += int(VLLM_MEMORY * device.total)
    if isinstance(settings, PpoSettings):
        # PPO's critic, one hidden layer, and what it reads of all tokens of a step, in float32.
        read = settings.episodes // settings.n_gpus * plan.max_length
        standing += 16 * config.hidden_size**2 + 4 * read * config.hidden_size
    # What layers keep of each token for the backward pass: norms and residuals in float32, attention and
    # feed-forward in what is computed; checkpointing keeps the input alone, and one layer at work.
    sequences = plan.value("per_device_train_batch_size", 8) * (2 if isinstance(settings, DpoSettings) else 1)
    tokens = sequences * plan.max_length
    layer = 24 * config.hidden_size + computed * (4 * config.hidden_size + 4 * config.intermediate_size)
    again = plan.value("activation_checkpointing", plan.value("bf16", False)) and on_gpu
    kept = tokens * (config.num_hidden_layers * held * config.hidden_size if again else 0)
    kept += tokens * layer * (2 if again else config.num_hidden_layers + 1)
    if half and not adapter:  # autocast keeps what it multiplies by in bfloat16, too, until the pass is over
        looked_up = 0 if config.tie_word_embeddings else network.get_input_embeddings().weight.numel()
        kept += 2 * (parameters - looked_up) // shards
    # Logits with what loss and gradient need of them, of the tokens whose logits exist at once.
    if plan.episodes:
        logits = min(tokens, SCORED_AT_ONCE) * config.vocab_size * (computed + 6 * 4)
    else:
        logits = (
            computed * min(tokens * config.vocab_size, TILE) if on_gpu else 16 * tokens * config.vocab_size
        )
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = heads * config.hidden_size // config.num_attention_heads
    playing = plan.episodes * plan.max_length * 2 * config.num_hidden_layers * width * held
    return GIB + int(1.05 * (standing + max(kept + logits, playing)))
