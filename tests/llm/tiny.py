"""Tiny Qwen2 models with Qwen2.5's chat template: one random, one that says what it is told."""

import importlib.util
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

HIDDEN = 64
END = "<|im_end|>"
# What the telling model writes, in pieces that are one token each.
SEARCH = (
    "Let me look. ",
    "<tool_call>",
    '{"name": "search", ',
    '"arguments": {"query": ',
    '"coat"}}',
    "</tool_call>",
)


def save_random_model(folder: Path) -> Path:
    """A model with random weights."""
    tokenizer = _tokenizer([])
    _save(folder, tokenizer, _model(tokenizer))
    return folder


def save_telling_model(folder: Path, pieces: Sequence[str]) -> Path:
    """A model that answers every conversation with these pieces, which must differ.

    Its layers do next to nothing; its output layer knows which token follows which, from the line end that
    closes the prompt to the end of the message.
    """
    import torch

    tokenizer = _tokenizer(pieces)
    model = _model(tokenizer)
    names = ["\n", *pieces, END]
    ids = [tokenizer.encode(name, add_special_tokens=False) for name in names]
    assert all(len(i) == 1 for i in ids), "every piece must be one token"
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.fill_(1e-9)
            layer.mlp.down_proj.weight.fill_(1e-9)
        seen = model.model.norm(model.model.embed_tokens.weight)
        model.lm_head.weight.zero_()
        for (before,), (after,) in pairwise(ids):
            model.lm_head.weight[after] = seen[before]
    _save(folder, tokenizer, model)
    return folder


def _tokenizer(pieces: Sequence[str]):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens(list(pieces))
    templates = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text(encoding="utf-8")
    return tokenizer


def _model(tokenizer):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.5,  # wide enough that a random model has a mind of its own
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def _save(folder: Path, tokenizer, model) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
