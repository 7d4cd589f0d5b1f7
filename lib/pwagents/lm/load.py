"""The model that a training starts from, in the type and with the adapter that its settings ask for."""

from pathlib import Path
from typing import Any

from pwagents.errors import DataError
from pwagents.llm.folder import read_model
from pwagents.lm.settings import Tuning
from pwagents.lm.trainer import quiet
from pwagents.seeds import derive_seed

ADAPTER = "adapter_config.json"


def load_model(model: Any, tuning: Tuning) -> Any:
    """A model as it is, or the one in a folder, its weights as ``tuning.weights`` says.

    A folder may hold an adapter, of fine-tuning, say: then its base model is loaded, and this adapter is
    trained on.

    Raises:
        DataError: the folder holds an adapter, and ``tuning.lora`` asks for another one or for none; or
            there is no whole model in it.
    """
    if not isinstance(model, str | Path):
        return model
    with quiet():
        if not (Path(model) / ADAPTER).exists():
            return read_model(model, tuning.weights)
        from peft import PeftConfig, PeftModel

        adapter = PeftConfig.from_pretrained(str(model))
        found = (adapter.r, adapter.lora_alpha)
        if tuning.lora != found:
            raise DataError(model, ADAPTER, "lora", tuning.lora, f"lora: {list(found)}, as it was trained")
        base = read_model(adapter.base_model_name_or_path, tuning.weights)
        return PeftModel.from_pretrained(base, str(model), is_trainable=True)


def new_adapter(model: Any, tuning: Tuning) -> Any:
    """peft's settings of the adapter that is to be put on the model; None where none is asked for, or one
    is on it already."""
    if tuning.lora is None or hasattr(model, "get_base_model"):
        return None
    from peft import LoraConfig

    rank, alpha = tuning.lora
    return LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def with_adapter(model: Any, tuning: Tuning) -> Any:
    """The model with its adapter, whose random weights follow from ``tuning.seed`` alone."""
    import torch
    from peft import get_peft_model

    adapter = new_adapter(model, tuning)
    if adapter is None:
        return model
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(derive_seed(tuning.seed, "adapter"))
        return get_peft_model(model, adapter)
