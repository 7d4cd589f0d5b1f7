"""Models and tokenizers from folders, which may come from anywhere: errors are one line.

None of their code runs, weights are read from safetensors alone, and nothing is downloaded.
"""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from pwagents.data.files import refuse_foreign
from pwagents.errors import DataError
from pwagents.files import write_aside

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ADAPTER = "adapter_config.json"
_SAFE = {"local_files_only": True, "trust_remote_code": False}
# A conversation with all that agents say, and a word in each part that a template must not drop.
_MARKS = {"function": "zqfunction", "argument": "zqargument", "result": "zqresult"}
_TOOL = {"type": "function", "function": {"name": "zqfunction", "description": "a", "parameters": {
    "type": "object", "properties": {"zqparameter": {"type": "string", "description": "a"}}}}}  # fmt: skip
_CALL = {"type": "function", "function": {"name": "zqfunction", "arguments": {"zqparameter": "zqargument"}}}
_PROBE = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c00000001", **_CALL}]},
    {"role": "tool", "tool_call_id": "c00000001", "name": "zqfunction", "content": "zqresult"},
]
BY_HEART = "functions are known by heart"  # in a template: the model was trained on them


def dropped_by_template(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Return what of functions, calls and results a chat template drops silently; or why it fails.

    A model that never reads of a function plays without it, and its score looks like any other.
    """
    try:
        whole = tokenizer.apply_chat_template(_PROBE, tools=[_TOOL], tokenize=False)
        first = tokenizer.apply_chat_template(_PROBE[:1], tools=[_TOOL], tokenize=False)
    except Exception as error:  # a template is a program of others: it may raise anything
        return [shorten(f"{type(error).__name__}: {error}", 300)]
    dropped = [f"a call's {part}" for part, mark in _MARKS.items() if mark not in whole]
    if BY_HEART not in str(tokenizer.chat_template):
        named = {"zqfunction": "the functions that may be called", "zqparameter": "parameters of functions"}
        dropped += [part for mark, part in named.items() if mark not in first][:1]
    return dropped


def read_tokenizer(folder: Path | str) -> "PreTrainedTokenizerBase":
    """Return the tokenizer in a folder, else its adapter's base's; a DataError if it cannot be read."""
    from transformers import AutoTokenizer

    folder = Path(folder)
    if (folder / ADAPTER).exists() and not [*folder.glob("token*"), *folder.glob("vocab*")]:
        folder = adapter_base(folder)
    with _errors_of(folder, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(folder, **_SAFE)
        if len(tokenizer) == len(tokenizer.added_tokens_decoder):  # what transformers makes of a missing file
            raise ValueError("no vocabulary")
    return tokenizer


def read_config(folder: Path | str) -> "PretrainedConfig":
    """Return the configuration of the model in a folder; errors are those of :func:`read_tokenizer`."""
    from transformers import AutoConfig

    with _errors_of(folder, "config.json"):
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
    refuse_foreign(folder.glob("*.safetensors"))
    if (folder / ADAPTER).exists():
        from peft import PeftModel, get_peft_model_state_dict
        from safetensors.torch import load_file

        base = read_model(adapter_base(folder), dtype)
        with _errors_of(folder, "adapter"):
            model = PeftModel.from_pretrained(base, str(folder), is_trainable=trainable)
            # peft warns of tensors that are missing and goes on.
            stored = load_file(folder / "adapter_model.safetensors")
            expected = get_peft_model_state_dict(model, save_embedding_layers=False)
            if different := sorted(stored.keys() ^ expected.keys()):
                raise ValueError(f"missing or unexpected tensors: {', '.join(different[:3])}")
            _refuse_no_numbers(stored)
            model.peft_config["default"].base_model_name_or_path = base.name_or_path  # where it was found
            return model
    with _errors_of(folder, "model"):
        options = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True, **_SAFE}
        model, info = AutoModelForCausalLM.from_pretrained(folder, **options)
        for kind, tensors in info.items():
            if tensors:
                raise ValueError(f"{kind.replace('_', ' ')}: {', '.join(sorted(map(str, tensors))[:3])}")
        parameters = dict(model.named_parameters())
        _refuse_no_numbers(parameters)
        if empty := [name for name, tensor in parameters.items() if tensor.ndim > 1 and not tensor.any()]:
            raise ValueError(f"{empty[0]} holds nothing but zeros")
        return model


def _refuse_no_numbers(tensors: "Mapping[str, torch.Tensor]") -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds values that are no numbers")


def adapter_base(folder: Path) -> Path:
    """Return the folder of the base model that an adapter names: there, or of that name next to the adapter.

    Raises:
        DataError: it is in neither place.
    """
    named = json.loads((folder / ADAPTER).read_text("utf-8"))["base_model_name_or_path"]
    for place in (folder / named, folder.parent / Path(named).name):
        if (place / "config.json").exists():
            return place.resolve()
    expected = "the folder of its base model, or one of this name beside it"
    raise DataError(folder, ADAPTER, "base_model_name_or_path", named, expected)


def point_to_base(folder: Path) -> None:
    """Make an adapter name a base beside it by the path from its own folder: both can be moved together."""
    file = folder / ADAPTER
    config = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if not (named := config.get("base_model_name_or_path")):
        return
    base = Path(named).resolve()
    if base.parent in folder.resolve().parents:
        config["base_model_name_or_path"] = os.path.relpath(base, folder.resolve())
        write_aside(file, json.dumps(config, indent=2, sort_keys=True))


def read_gguf(file: Path) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Return the causal language model in a whole GGUF file, in float32, and its tokenizer, to be saved."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"gguf_file": file.name, **_SAFE}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype="float32", **given)
    # Without these, what is no longer quantized would be saved as if it were.
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    return model, tokenizer


@contextmanager
def _errors_of(folder: Path | str, what: str) -> Iterator[None]:
    """Raise what the libraries raise over a broken file as a DataError of one line."""
    try:
        with warnings.catch_warnings():
            # peft still uses a name that transformers has renamed.
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
            yield
    except Exception as error:
        found = shorten(f"{type(error).__name__}: {error}", 300)
        expected = "a whole model as transformers saves it (safetensors, no code of its own)"
        raise DataError(folder, what, "(files)", found, expected) from None
