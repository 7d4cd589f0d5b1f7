"""A tokenizer for a small model of the embedded shop: whole words, and the boilerplate of calls as one token.

WordPiece with a vocabulary of words, ids' syllables and single characters, so that any text can be told. A
word is the same token wherever it stands, which makes copying easy to learn; the price is that white space is
not kept (JSON, search and embeddings do not mind). Long fixed texts, such as the agent's rules, are one
token each.

A Qwen2-class model small enough to be trained from scratch on two cores.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, get_args

from pwagents.data.synthetic.shop import BASIC_SLOTS, domains
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.orion.agent import RULES
from pwagents.profiles.types import Provenance
from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM


ROLES = ("system", "user", "assistant", "tool")
END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"
_SPECIAL = (PAD, UNKNOWN, END, *(f"<|{role}|>" for role in ROLES))
QUERY = '{"name": "search_product_by_query", "arguments": {"query": "'
END_OF_CALL = '"}}'
_CALLS = (
    QUERY,
    END_OF_CALL,
    '{"name": "get_recommendations_by_history", "arguments": {"product_sequence": ["',
    '{"name": "add_product_review", "arguments": {"review": "',
    '{"name": "respond", "arguments": {"content": "',
    '{"name": "stop", "arguments": {}}',
    '"]}}',
    '", "',
)
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", OPEN, CLOSE)
_HEADS = (f"\n\nProfile:\n{OPEN}\nWants:\n", f"Profile:\n{OPEN}\nAvoids:\n", "\nAvoids:\n", "Bought before:")
_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_SYLLABLES = [c + v for c in "BCDFGHJKLMNPQRSTVWXZ" for v in "AEIOU"]

# Like Qwen's, but for roles that are one token each. Tools are left out: the model knows its functions by
# heart. A tool's answer is told like a user's, and every prefix of a conversation is a prefix of its text.
CHAT_TEMPLATE = """\
{%- for m in messages -%}
{{ '<|' + m.role + '|>' }}{{ m.content or '' }}
{%- if m.role == 'assistant' -%}
{%- for c in m.tool_calls or [] -%}
{%- set f = c.function if c.function is defined else c -%}
{{ '<tool_call>{"name": "' + f.name + '", "arguments": ' }}
{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{ '}</tool_call>' }}
{%- endfor -%}
{%- endif -%}
{{ '<|end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"""


def make_tokenizer(words: Iterable[str] = ()) -> "PreTrainedTokenizerFast":
    """The tokenizer; ``words`` join its own vocabulary (each in the case in which it is written)."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    whole = sorted({*shop_words(), *words})
    pieces = [*_SPECIAL, *".,:;!?'\"()[]{}$%&*+-/<=>@_#|~`^\\", *_CHARACTERS, *whole, "B0"]
    pieces += [f"##{part}" for part in (*_SYLLABLES, *_CHARACTERS)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=60))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # No space beside a quotation mark: ids in a JSON list must not get one.
    tokenizer.decoder = decoders.Sequence(
        [decoders.WordPiece(), decoders.Fuse(), decoders.Replace(Regex(' (?=")|(?<=") '), "")]
    )
    lines = [
        f"- [{provenance}] {mark}{about}: "
        for provenance in get_args(Provenance)
        for mark in ("", "not ")
        for about in _abouts()
    ]
    fixed = [*_CALLS, *_MARKS, *_HEADS, *lines, RULES]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in fixed])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, unk_token=UNKNOWN, padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


@cache
def shop_words() -> frozenset[str]:
    """The words of the shop's pages, reviews, requests and answers, none of which tells of a user or task."""
    sources = [
        files("pwagents.data.synthetic").joinpath(name).read_text("utf-8")
        for name in ("shop.yaml", "language.yaml")
    ]
    sources += [files("pwagents.users").joinpath("phrases.yaml").read_text("utf-8")]
    found = set(re.findall(r"[A-Za-z]+", " ".join(re.sub(r"#.*", "", text) for text in sources)))
    values = {value for domain in domains() for slot in domain.values for value in domain.values[slot]}
    found |= {value.capitalize() for value in values} | {word.lower() for word in found}
    found |= {
        "User",
        "The",
        "task",
        "has",
        "ended",
        "Error",
        "No",
        "product",
        "was",
        "found",
        "open",
        "nothing",
    }
    return frozenset(found | {str(number) for number in range(10, 100)})


def _abouts() -> list[str]:
    """What lines of profiles are about."""
    slots = {slot for domain in domains() for slot in domain.slots if slot not in BASIC_SLOTS}
    return ["brand", "price", "topic", *sorted(slots)]


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
