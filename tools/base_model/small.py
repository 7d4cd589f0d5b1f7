"""A language model small enough to be trained from scratch on two cores: a Qwen2 of 0.7 million parameters.

Its tokenizer has whole words. Its two lowest layers begin as a circuit that copies, an induction circuit
(Olsson et al. 2022). To go on with a text that has been read before, a model looks for the place where the
word that it has just said stands, and says what follows there. Large language models learn this from billions
of words; half a million parameters do not learn it in minutes. So the weights of two layers begin as such a
circuit, and are trained on like all others:

- In the first layer head h notes at each place which word stands h places before.
- In the second one each head looks for places by what is noted there, and passes on the word that they hold:
  the first what came after the word at hand; the second what came two places after it, since a query may
  leave a word out; the third what came two places after the word before it, since what stood before a word
  tells which of several texts is gone on with.

The layers above them begin by adding nothing: with random weights they would drown what is passed on, and it
would take hundreds of steps to clear that away.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

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
    tokenizer: "PreTrainedTokenizerFast", seed: int, size: Mapping[str, int] | None = None
) -> "Qwen2ForCausalLM":
    """Make a Qwen2 model with random weights for a tokenizer; ``size`` replaces :data:`SIZE`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    size = SIZE | dict(size or {})
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


LAYERS = 2
NEAR = 4.0  # how sharply the first layer looks at one distance
ALIKE = 3.0  # how sharply the second layer looks for the same word
NOTE, COPY = 1.0, 0.5  # sizes of what the layers add, that of an embedding being 1 or so
# Of the 16 pairs of dimensions that positions rotate (in a head of 32), the fast ones tell distances, and the
# slow ones, which a few dozen places hardly turn, tell words.
_WEIGHTS_OF_FAST = (3.0, 2.0, 1.0, 1.0, 1.0, 1.0)
# A head of the second layer -> which word it asks for (0: the one at hand, 1: the one before it), and at
# which distance that word is noted at the places that it looks for; distance 3 is left to training.
_SOUGHT = ((0, 1), (0, 2), (1, 2))


def with_copying_layers(model: Any, seed: int) -> Any:
    """Return the small model with the two layers below its own, which begin by adding nothing.

    It has to have as many heads of keys as of queries, three at most, each of at least 2 x 12 dimensions.

    Args:
        seed: of the directions in which words are noted and passed on.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = model.config.to_dict()
    config |= {"num_hidden_layers": config["num_hidden_layers"] + LAYERS, "layer_types": None}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "layers that copy"))
        deeper = Qwen2ForCausalLM(Qwen2Config(**config))
        directions = torch.linalg.qr(torch.randn(model.config.hidden_size, model.config.hidden_size))[0]
    for module in ("embed_tokens", "norm"):
        getattr(deeper.model, module).load_state_dict(getattr(model.model, module).state_dict())
    for ours, theirs in zip(deeper.model.layers[LAYERS:], model.model.layers, strict=True):
        ours.load_state_dict(theirs.state_dict())
    deeper.generation_config = model.generation_config

    heads = model.config.num_attention_heads
    size = model.config.hidden_size // heads
    pairs, n_fast = size // 2, len(_WEIGHTS_OF_FAST)
    slow = torch.tensor([*range(n_fast, pairs), *range(pairs + n_fast, 2 * pairs)])
    # (hidden, slow): the directions that the words themselves are read from (0), or are noted in (1, 2, 3).
    words = directions[:, : 4 * len(slow)].split(len(slow), dim=1)
    with torch.no_grad():
        for layer in deeper.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        first, second = (layer.self_attn for layer in deeper.model.layers[:LAYERS])
        # Queries, keys and values of 0, into which the circuit is written.
        for attention in (first, second):
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
                projection.weight.zero_()
                projection.bias.zero_()
        for head in range(heads):
            place, rows, distance = slice(head * size, (head + 1) * size), slow + head * size, head + 1
            # The first layer: note the word that stands ``distance`` places before.
            sharpness = torch.zeros(pairs)
            sharpness[:n_fast] = torch.tensor(_WEIGHTS_OF_FAST).sqrt() * NEAR
            angle = distance * 10_000.0 ** (-torch.arange(pairs) / pairs)
            first.q_proj.bias[place] = torch.cat([sharpness, torch.zeros(pairs)])
            first.k_proj.bias[place] = torch.cat([sharpness * angle.cos(), sharpness * angle.sin()])
            first.v_proj.weight[rows] = words[0].T
            first.o_proj.weight[:, rows] = NOTE * words[distance] * len(directions) ** -0.5
            # The second layer: look where the word ``back`` places back was noted as standing ``distance``
            # places before, and pass on what stands there.
            back, distance = _SOUGHT[head]
            second.q_proj.weight[rows] = ALIKE * words[back].T
            second.k_proj.weight[rows] = ALIKE * words[distance].T
            word = directions.roll(back + distance, 0)[:, place]
            second.v_proj.weight[place] = word.T
            second.o_proj.weight[:, place] = COPY / (distance - back) * word
    return deeper
