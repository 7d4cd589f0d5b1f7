"""What the tests of language models share: circumstances as a table, requests, tiny Qwen2 models."""

import importlib.util
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from base_model.small import make_small_model

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))
HI = [{"role": "user", "content": "hi"}]
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": QUERY}}
SIZE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CALL = ("<tool_call>", '{"name": "search", ', '"arguments": {"query": ', '"coat"}}', "</tool_call>")
END = "<|im_end|>"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The folder of a model with random weights."""
    return save_model(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def telling_model(tmp_path_factory):
    """The folder of a model that calls ``search`` whatever it is asked, and goes on if it may."""
    return save_model(tmp_path_factory.mktemp("telling"), ["Let me look. ", *CALL, " And", " so on"])


def byte_tokenizer(**special):
    """A token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, **special)


def save_model(folder: Path, pieces: Sequence[str] = ()) -> Path:
    """Save a tiny model with Qwen2.5's chat template: random, or one that answers always with ``pieces``.

    These must differ. Its layers do next to nothing then, and its output layer knows which token follows
    which, from the line end that closes the prompt to the end of the message.
    """
    import torch
    from tokenizers import AddedToken

    tokenizer = byte_tokenizer(eos_token=END, pad_token="<|endoftext|>")  # and a token a piece
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens([AddedToken("<|header|>", special=True)], special_tokens=True)  # it has no role
    tokenizer.add_tokens(list(pieces))
    templates = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text(encoding="utf-8")

    model = make_small_model(tokenizer, 0, SIZE)
    model.config.tie_word_embeddings = False  # else each token would be followed by itself
    head = torch.randn(len(tokenizer), SIZE["hidden_size"], generator=torch.Generator().manual_seed(0))
    if pieces:
        head.zero_()
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.fill_(1e-9)
                layer.mlp.down_proj.weight.fill_(1e-9)
            embedded = model.model.norm(model.model.embed_tokens.weight)
        ids = [tokenizer.encode(name, add_special_tokens=False) for name in ("\n", *pieces, END)]
        for (before,), (after,) in pairwise(ids):
            head[after] = embedded[before]
    model.lm_head.weight = torch.nn.Parameter(head)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
