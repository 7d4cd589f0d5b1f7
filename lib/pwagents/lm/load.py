"""The model that a training starts from, in the type and with the adapter that its settings ask for."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pwagents.errors import DataError
from pwagents.llm.folder import ADAPTER, read_model, read_tokenizer
from pwagents.seeds import derive_seed


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what libraries say to each other and to their makers while a model is loaded or trained."""
    import datasets
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_TELEMETRY = True  # TRL's trainers tell what is trained, and on which GPU
    datasets.disable_progress_bars()  # of each pass over the rows
    # Checkpoints of a fast training are no second apart; transformers then goes by their numbers, and warns.
    logging.getLogger("transformers.trainer_utils").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # peft and TRL still use a name that transformers has renamed.
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        yield


def load_model(model: Any, settings: Any) -> Any:
    """Return a model as it is, or the one in a folder; an adapter in the folder is trained on.

    Args:
        settings: of a training.

    Raises:
        DataError: the folder holds an adapter, and ``settings.lora`` asks for another one or for none; or
            there is no whole model in it.
    """
    if not isinstance(model, str | Path):
        return model
    network = read_model(model, weights_type(settings), trainable=True)
    if hasattr(network, "peft_config"):
        adapter = network.peft_config["default"]
        shape = (adapter.r, adapter.lora_alpha)
        if settings.lora != shape:
            raise DataError(model, ADAPTER, "lora", settings.lora, f"lora: {list(shape)}, as it was trained")
    return network


def weights_type(settings: Any) -> str:
    """Return the type of the weights that a training reads from a folder.

    In bfloat16 they take half the memory, but lose updates smaller than about 1/256 of a weight: good for
    what an adapter leaves as it is, bad for what is trained. Without a GPU no training reads two types.
    """
    import torch

    half = getattr(settings, "trainer", vars(settings)).get("bf16") and settings.lora
    return "bfloat16" if half and torch.cuda.is_available() else "float32"


def new_adapter(model: Any, settings: Any) -> Any:
    """Return the settings, for peft, of the adapter to be put on a model; None where there is none to be put.

    That is where the settings ask for none, or the model has one.
    """
    if settings.lora is None or hasattr(model, "peft_config"):
        return None
    from peft import LoraConfig

    rank, alpha = settings.lora
    whole = list(getattr(settings, "modules_to_save", ())) or None
    return LoraConfig(
        r=rank, lora_alpha=alpha, target_modules="all-linear", modules_to_save=whole, task_type="CAUSAL_LM"
    )


def hold_in_float32(model: Any) -> list[Any]:
    """Put what is trained into float32, and return it: in bfloat16 small steps would round away.

    It is whole modules beside an adapter, too.
    """
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    for weights in trained:
        weights.data = weights.data.float()
    return trained


def with_adapter(model: Any, settings: Any) -> Any:
    """Return the model with its adapter, whose random weights follow from ``settings.seed`` alone."""
    import torch
    from peft import get_peft_model

    adapter = new_adapter(model, settings)
    if adapter is None:
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "adapter"))
        return get_peft_model(model, adapter)


def merge(adapter: Path, folder: Path) -> None:
    """Write the whole model that an adapter and its base make together, and its tokenizer, into a folder."""
    network = read_model(adapter, "auto").merge_and_unload()
    network.save_pretrained(folder)
    read_tokenizer(adapter).save_pretrained(folder)
