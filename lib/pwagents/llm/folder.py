"""Models and tokenizers from folders: none of their code runs, and what is wrong is told in one line.

A folder may come from anywhere. Of its Python files none runs (``trust_remote_code``), weights are read from
safetensors alone, and nothing is downloaded. Its chat template is a program all the same: transformers runs
it where it reaches nothing, but lets it run as long as it likes; so its steps are counted here.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.errors import DataError
from pwagents.llm.failures import one_line
from pwagents.project import refuse_pointers, write_aside

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ADAPTER = "adapter_config.json"
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


def read_model(folder: Path | str, dtype: Any, *, trainable: bool = False) -> "PreTrainedModel":
    """Return the causal language model in a folder; with an adapter in it, on the base model that this names.

    Args:
        trainable: an adapter is to be trained on.

    Raises:
        DataError: it cannot be read, wants code of its own, lacks a tensor or has one too many, or a tensor
            has another shape, a value that is no number, or nothing but zeros.
    """
    from transformers import AutoModelForCausalLM

    folder = Path(folder)
    refuse_pointers(folder.glob("*.safetensors"))
    if (folder / ADAPTER).exists():
        from peft import PeftModel, get_peft_model_state_dict
        from safetensors.torch import load_file

        base = read_model(adapter_base(folder), dtype)
        with _told(folder, "adapter"):
            model = PeftModel.from_pretrained(base, str(folder), is_trainable=trainable)
            stored = load_file(folder / "adapter_model.safetensors")
            _require_whole(stored, get_peft_model_state_dict(model, save_embedding_layers=False))
            model.peft_config["default"].base_model_name_or_path = base.name_or_path  # where it was found
            return model
    with _told(folder, "model"):
        options = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True, **_SAFE}
        model, info = AutoModelForCausalLM.from_pretrained(folder, **options)
        for kind, tensors in info.items():
            if tensors:
                raise ValueError(f"{kind.replace('_', ' ')}: {', '.join(sorted(map(str, tensors))[:3])}")
        for name, tensor in model.named_parameters():
            if not tensor.isfinite().all():
                raise ValueError(f"{name} holds values that are no numbers")
            if tensor.ndim > 1 and not tensor.any():
                raise ValueError(f"{name} holds nothing but zeros")
        return model


def adapter_base(folder: Path) -> Path:
    """Return the folder of the base model that the adapter in a folder names.

    It is found where the adapter says, from its own folder on, or under the same name beside the adapter.

    Raises:
        DataError: it is in neither place.
    """
    named = json.loads((folder / ADAPTER).read_text("utf-8"))["base_model_name_or_path"]
    for place in (folder / named, folder.parent / Path(named).name):
        if (place / "config.json").exists():
            return place.resolve()
    raise DataError(
        folder,
        ADAPTER,
        "base_model_name_or_path",
        named,
        "the folder of its base model, or one of this name beside it",
    )


def point_to_base(folder: Path) -> None:
    """Let a saved adapter name its base by the way there from its own folder, where that lies nearby.

    So both can be moved together. A folder without an adapter stays as it is.
    """
    file = folder / ADAPTER
    if not file.exists():
        return
    config = json.loads(file.read_text("utf-8"))
    base = Path(config["base_model_name_or_path"]).resolve()
    if base.parent in folder.resolve().parents:
        config["base_model_name_or_path"] = os.path.relpath(base, folder.resolve())
        write_aside(file, json.dumps(config, indent=2, sort_keys=True))


def _require_whole(stored: "Mapping[str, torch.Tensor]", expected: "Mapping[str, torch.Tensor]") -> None:
    """Refuse tensors of an adapter that are not those that its configuration makes."""
    if different := sorted(stored.keys() ^ expected.keys()):
        raise ValueError(f"missing or unexpected tensors: {', '.join(different[:3])}")
    for name, tensor in stored.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {tuple(expected[name].shape)}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds values that are no numbers")


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
