"""The policy at the start of online learning."""

from pathlib import Path
from typing import Any

from pwagents.training.rl_config import RlConfig


def load_policy(model: Any, config: RlConfig) -> Any:
    """The model itself, or the one in a folder, in float32: small updates would be lost in bfloat16.

    Raises:
        ValueError: a reference model is asked for (``kl_beta``), but the model was not given as a folder.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of reading and writing weights, at each checkpoint
    if not isinstance(model, str | Path):
        if config.kl_beta and not getattr(model.config, "_name_or_path", ""):
            raise ValueError("kl_beta needs the model it starts from once more: give it as a folder")
        return model
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32)
