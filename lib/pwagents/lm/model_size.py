"""What a decoder of Llama's or Qwen2's kind costs: parameters, bytes of a token, operations of a token.

Parameters are counted, not computed: the model is built without storage (torch's meta device). What a
training step keeps of each token comes from :data:`SAVED`, which was counted with saved-tensor hooks; the
tests count it again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.project import project_path

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# The papers' models, as their published config.json has them: written here, so that no network is needed.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-7B-Instruct": {  # Orion, 5.1
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
    },
    "meta-llama/Llama-2-7b-hf": {  # PUMA (PersonalWAB, B.2)
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    },
}

# Bytes that a layer keeps of a token for the backward pass, a unit of hidden size, of attention width (heads
# times head size) and of the feed-forward's width. (weights, computing in bfloat16, adapter) -> bytes.
SAVED: dict[tuple[str, bool, bool], tuple[int, int, int]] = {
    ("float32", False, False): (24, 16, 16),
    ("float32", False, True): (16, 16, 16),
    ("float32", True, False): (26, 8, 8),
    ("float32", True, True): (18, 10, 8),
    ("bfloat16", True, False): (16, 8, 8),
    ("bfloat16", True, True): (18, 10, 8),
    ("bfloat16", False, False): (16, 8, 8),
    ("bfloat16", False, True): (28, 12, 10),
}


@dataclass(frozen=True)
class ModelSize:
    """The numbers of an architecture.

    Args:
        parameters: all of them.
        root: those outside the layers: embedding, last norm, output layer (once where it is the embedding).
        linear: those of matrices that every token is multiplied with, the output layer's among them.
        adapter: parameters of an adapter of rank 1 on all linear layers but the output layer.
        attention: heads times head size; ``key_value`` the same of keys, which is also that of values.
    """

    name: str
    parameters: int
    root: int
    linear: int
    adapter: int
    hidden: int
    attention: int
    key_value: int
    feed_forward: int
    heads: int
    layers: int
    vocabulary: int

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        return (self.parameters - self.root) // self.layers

    def cache_bytes(self, bytes_each: int) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.key_value * bytes_each

    def saved_bytes(self, weights: str, bf16: bool, rank: int | None) -> int:
        """What one layer keeps of one token for the backward pass; ``rank`` of an adapter."""
        h, a, f = SAVED[weights, bf16, rank is not None]
        softmax_and_norms = 4 * self.heads + 8
        within_adapters = 7 * (rank or 0) * (2 if bf16 else 4)
        return (
            h * self.hidden + a * self.attention + f * self.feed_forward + softmax_and_norms + within_adapters
        )

    def forward_flops(self, length: int) -> float:
        """Floating-point operations of one token's forward pass, in sequences of ``length`` tokens.

        Causal attention sees half of a sequence on average.
        """
        return 2 * self.linear + 2 * self.layers * self.attention * length


def model_size(model: "str | Path | PretrainedConfig") -> ModelSize:
    """The numbers of a configuration, of a saved model's folder, or of a model's name.

    Names outside :data:`ARCHITECTURES` are looked up where transformers looks them up (its cache, the hub).

    Raises:
        ValueError: there is no such model, or it is no decoder of Llama's or Qwen2's kind.
    """
    import torch
    from torch import nn
    from transformers import AutoModelForCausalLM

    config = _config(model) if isinstance(model, str | Path) else model
    name = str(model) if isinstance(model, str | Path) else config.model_type
    try:
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
        hidden, feed_forward, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
    except (AttributeError, ValueError) as error:
        kind = getattr(config, "model_type", "an unknown one")
        raise ValueError(f"{name} ({kind}): {error}; expected a decoder of Llama's or Qwen2's kind") from None
    head = network.get_output_embeddings()
    inner = [m for m in network.modules() if isinstance(m, nn.Linear) and m is not head]
    in_layers = sum(p.numel() for part in network.base_model.layers for p in part.parameters())
    return ModelSize(
        name=name,
        parameters=network.num_parameters(),
        root=network.num_parameters() - in_layers,
        linear=sum(m.weight.numel() for m in inner) + head.weight.numel(),
        adapter=sum(m.in_features + m.out_features for m in inner),
        hidden=hidden,
        attention=heads * head_size,
        key_value=kv_heads * head_size,
        feed_forward=feed_forward,
        heads=heads,
        layers=layers,
        vocabulary=config.vocab_size,
    )


def _config(model: str | Path) -> "PretrainedConfig":
    from transformers import AutoConfig

    folder = project_path(Path(model).expanduser())
    if (folder / "config.json").exists():
        return AutoConfig.from_pretrained(folder)
    if str(model) in ARCHITECTURES:
        return AutoConfig.for_model(**ARCHITECTURES[str(model)])
    try:
        return AutoConfig.from_pretrained(str(model))
    except (OSError, ValueError):
        known = ", ".join(ARCHITECTURES)
        raise ValueError(
            f"model {str(model)!r}: no folder with a config.json, and no such name in reach; known without a "
            f"network: {known}"
        ) from None
