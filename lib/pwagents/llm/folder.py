"""Models and tokenizers from folders: none of their code runs, and what is wrong is told in one line.

A folder may come from anywhere. Of its Python files none runs (``trust_remote_code``), weights are read from
safetensors alone, and nothing is downloaded. Its chat template is a program all the same: transformers runs
it where it reaches nothing, but lets it run as long as it likes; so its steps are counted here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.errors import DataError
from pwagents.llm.failures import one_line
from pwagents.project import refuse_pointers

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

MOST_STEPS = 3_000_000  # lines of Python of one rendering, 2 seconds; a long episode takes ten thousand
_SAFE = {"local_files_only": True, "trust_remote_code": False}
# A conversation with all that agents say, for a template to show that it ends.
_CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": {"query": "a"}}}
_PROBE = [
    {"role": "system", "content": "a"},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "a", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "a"},
]


class EndlessTemplateError(Exception):
    """A chat template took more steps than any conversation needs."""


def read_tokenizer(folder: Path | str) -> "PreTrainedTokenizerBase":
    """The tokenizer in a folder, its chat template tried out.

    Raises:
        DataError: it cannot be read, wants code of its own, or has a template that does not end.
    """
    from transformers import AutoTokenizer

    with _told(folder, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(folder, **_SAFE)
        if len(tokenizer) == len(tokenizer.added_tokens_decoder):  # what transformers makes of a missing file
            raise ValueError("no vocabulary")
    try:
        if tokenizer.chat_template is not None:
            with bounded_steps():
                tokenizer.apply_chat_template(_PROBE, tokenize=False)
    except EndlessTemplateError as error:
        raise DataError(folder, "tokenizer", "chat template", error, "one that ends") from None
    except Exception:  # many templates refuse some role: what matters is told when a conversation is rendered
        return tokenizer
    return tokenizer


def read_config(folder: Path | str) -> "PretrainedConfig":
    """The configuration of the model in a folder.

    Raises:
        DataError: it cannot be read, or wants code of its own.
    """
    from transformers import AutoConfig

    with _told(folder, "config.json"):
        return AutoConfig.from_pretrained(folder, **_SAFE)


def read_model(folder: Path | str, dtype: Any) -> "PreTrainedModel":
    """The causal language model in a folder; with an adapter in it, on the base model that this one names.

    Raises:
        DataError: it cannot be read, or wants code of its own.
    """
    from transformers import AutoModelForCausalLM

    refuse_pointers(Path(folder).glob("*.safetensors"))
    with _told(folder, "model"):
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True, **_SAFE)


def read_gguf(file: Path) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The causal language model in a GGUF file, its weights in float32, and its tokenizer, to be saved.

    transformers says nothing in one line here: give it a file that is known to be whole.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"gguf_file": file.name, **_SAFE}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype="float32", **given)
    # Without these, what is no longer quantized would be saved as if it were.
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    return model, tokenizer


@contextmanager
def bounded_steps() -> Iterator[None]:
    """Ends a chat template that does not end by itself.

    Steps are counted, not seconds: what is refused on a busy machine is refused on any.

    Raises:
        EndlessTemplateError: within the block, after :data:`MOST_STEPS`.
    """
    left, before = MOST_STEPS, sys.gettrace()

    def count(*_):
        nonlocal left
        left -= 1
        if left < 0:
            raise EndlessTemplateError(f"more than {MOST_STEPS:,} steps")
        return count

    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _told(folder: Path | str, what: str) -> Iterator[None]:
    """Whatever the libraries raise over a broken file, as one line."""
    try:
        yield
    except Exception as error:
        found = one_line(f"{type(error).__name__}: {error}", "")
        expected = "a whole model as transformers saves it (safetensors, no code of its own)"
        raise DataError(folder, what, "(files)", found, expected) from None
