"""The policy at the start of online learning: all of its weights are trained, or an adapter on them."""

import warnings
from pathlib import Path
from typing import Any

from pwagents.errors import DataError
from pwagents.rl.settings import RlSettings
from pwagents.seeds import derive_seed

ADAPTER = "adapter_config.json"


def load_policy(model: Any, config: RlSettings) -> Any:
    """The model itself, or the one in a folder, with what ``config.lora`` asks for.

    A folder may hold an adapter (of fine-tuning, say): then this adapter is trained on.

    Raises:
        DataError: the folder holds an adapter, and ``config.lora`` asks for another one or for none.
        ValueError: a reference model is asked for (``beta``), but the model was not given as a folder.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of reading and writing weights, at each checkpoint
    if isinstance(model, str | Path):
        model = _load(Path(model), config)
    elif config.beta and not getattr(model.config, "_name_or_path", ""):
        raise ValueError("beta needs the model it starts from once more: give it as a folder")
    return _with_adapter(model, config)


def lora_config(lora: tuple[int, int] | None) -> Any:
    """peft's settings of an adapter on all linear layers; None for none.

    Args:
        lora: rank and alpha.
    """
    if lora is None:
        return None
    from peft import LoraConfig

    rank, alpha = lora
    return LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def load_weights(folder: Path | str, weights: str) -> Any:
    """The model of a folder; of an adapter's folder, its base model with the adapter, to be trained on.

    Args:
        weights: their type; peft keeps the adapter's in float32.
    """
    from transformers import AutoModelForCausalLM

    if not (Path(folder) / ADAPTER).exists():
        return AutoModelForCausalLM.from_pretrained(str(folder), dtype=weights)
    from peft import PeftConfig, PeftModel

    adapter = PeftConfig.from_pretrained(str(folder))
    base = AutoModelForCausalLM.from_pretrained(adapter.base_model_name_or_path, dtype=weights)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # peft's own use
        return PeftModel.from_pretrained(base, str(folder), is_trainable=True)


def _load(folder: Path, config: RlSettings) -> Any:
    """The model of a folder, whose adapter, where it has one, must be the one asked for."""
    if (folder / ADAPTER).exists():
        from peft import PeftConfig

        adapter = PeftConfig.from_pretrained(str(folder))
        found = (adapter.r, adapter.lora_alpha)
        if config.lora is None or tuple(config.lora) != found:
            expected = f"lora: {list(found)}, as it was trained"
            raise DataError(folder, ADAPTER, "lora", config.lora, expected)
    return load_weights(folder, config.weights)


def _with_adapter(model: Any, config: RlSettings) -> Any:
    """The model with a new adapter, where one is asked for and none is on it."""
    import torch
    from peft import get_peft_model

    if config.lora is None or hasattr(model, "get_base_model"):
        return model
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # peft's own use
        torch.manual_seed(derive_seed(config.seed, "adapter"))
        return get_peft_model(model, lora_config(config.lora))
