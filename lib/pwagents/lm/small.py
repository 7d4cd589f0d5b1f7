"""A language model small enough to be trained from scratch on two cores: a tokenizer of whole words and a
model of the Qwen2 class."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

ROLES = ("system", "user", "assistant", "tool")
END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"
_SPECIAL = (PAD, UNKNOWN, END, *(f"<|{role}|>" for role in ROLES))
_MARKS = ".,:;!?'\"()[]{}$%&*+-/<=>@_#|~`^\\"
_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

# Like Qwen's, but for roles that are one token each. Tools are left out: the model knows its functions by
# heart. A tool's answer is told like a user's, and every prefix of a conversation is a prefix of its text.
CHAT_TEMPLATE = """\
{#- functions are known by heart -#}
{%- for m in messages -%}
{{ '<|' + m.role + '|>' }}
{%- if m.role == 'assistant' -%}
{%- generation -%}
{{ m.content or '' }}
{%- for c in m.tool_calls or [] -%}
{%- set f = c.function if c.function is defined else c -%}
{{ '<tool_call>{"name": "' + f.name + '", "arguments": ' }}
{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{ '}</tool_call>' }}
{%- endfor -%}
{{ '<|end|>' }}
{%- endgeneration -%}
{%- else -%}
{{ (m.content or '') + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"""
# How a server (`transformers serve`) finds the call in a reply. Arguments stay as they were written, so that
# the client is told of a call that is no JSON; with what transformers has for Qwen the server fails.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r'\s*<tool_call>\s*\{\s*"name":\s*"(?P<name>[^"]*)",\s*"arguments":\s*',
            "close_pattern": rf"\s*\}}?\s*(?:</tool_call>\s*|{re.escape(END)})",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": rf"\s*{re.escape(END)}", "content": "text"},
    },
}


def make_tokenizer(words: Iterable[str] = (), fixed: Iterable[str] = ()) -> "PreTrainedTokenizerFast":
    """A WordPiece tokenizer whose vocabulary is given, not learned.

    A word is the same token wherever it stands, which makes copying easy to learn; the price is that white
    space is not kept (JSON, search and embeddings do not mind). Any other word is spelled, character by
    character.

    Args:
        words: a token each, in the case in which they are written; "##ing" is one inside of words.
        fixed: longer texts that are a token each wherever they occur, such as an agent's rules.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [*_SPECIAL, *_MARKS, *_CHARACTERS, *words, *(f"##{character}" for character in _CHARACTERS)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=60))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # No space beside a quotation mark: ids in a JSON list must not get one.
    tokenizer.decoder = decoders.Sequence(
        [decoders.WordPiece(), decoders.Fuse(), decoders.Replace(Regex(' (?=")|(?<=") '), "")]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in fixed])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, unk_token=UNKNOWN, padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.response_template = RESPONSE_TEMPLATE
    # Saved with the tokenizer: without a class of its own, that of a Qwen2 model is loaded as Qwen's, which
    # splits words otherwise.
    fast.init_kwargs["auto_map"] = {"AutoTokenizer": [None, "transformers.TokenizersBackend"]}
    return fast


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
