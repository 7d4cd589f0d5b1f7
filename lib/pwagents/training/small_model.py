"""A Qwen2-class model small enough to be trained from scratch on two cores."""

from typing import TYPE_CHECKING

from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

SIZE = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 256}
CONTEXT = 4096  # tokens


def make_small_model(
    tokenizer: "PreTrainedTokenizerFast", seed: int, size: dict[str, int] | None = None
) -> "Qwen2ForCausalLM":
    """A Qwen2 model with random weights for ``tokenizer``; ``size`` replaces :data:`SIZE`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    size = SIZE | (size or {})
    config = Qwen2Config(
        **size,
        num_key_value_heads=size["num_attention_heads"],
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=size["hidden_size"] ** -0.5,  # 0.02, the usual one, is for wide models
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "small model"))
        model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model
