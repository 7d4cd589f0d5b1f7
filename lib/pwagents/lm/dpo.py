"""Direct preference optimization by TRL, as PUMA does it (PersonalWAB, 5.2, equations 3 and 4).

The reference is the model that DPO starts from. That is mostly an adapter made by supervised fine-tuning: the
adapter is trained on, a frozen copy of it is the reference, and the base model is loaded once.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.cache import hash_of
from pwagents.errors import DataError
from pwagents.llm.folder import read_tokenizer
from pwagents.lm.load import load_model, new_adapter
from pwagents.lm.settings import DpoSettings, deciding
from pwagents.lm.trainer import Silent, finish, last_checkpoint, quiet, tuning_arguments, watch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl import DPOConfig, DPOTrainer

# TRL's columns prompt_ids, chosen_ids and rejected_ids, a list of tokens a pair
Tokens = dict[str, list[list[int]]]
LOG_STEPS = 5  # steps a row of the log
LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm", "rewards/accuracies", "rewards/margins")


def train_on_pairs(
    model: Path | str,
    tokenizer: "PreTrainedTokenizerBase",
    tokens: Tokens,
    config: DpoSettings,
    out_folder: Path | str,
) -> pd.DataFrame:
    """Train on pairs and save adapter, tokenizer and log.

    The same model, pairs and configuration give the same weights on the same machine; a training that was
    killed goes on from its last checkpoint.

    Args:
        model: the folder of a model, or of an adapter.
        tokens: taken as they are, none too long for the model.

    Returns:
        The log, also in ``out_folder/log.csv``: a row for the first and each fifth step, columns
        :data:`LOGGED`; they are means over the steps since the row before, the loss in nats a pair.

    Raises:
        DataError: there are no pairs, or the model has another adapter than ``config.lora`` asks for.
        FloatingPointError: the loss is no number any more.
    """
    if not tokens["prompt_ids"]:
        raise DataError("preference pairs", 0, "pairs", "none", "at least one")
    out = Path(out_folder)
    # Named by data and settings: checkpoints of another training are never gone on from.
    checkpoints = out / f"checkpoints-{hash_of([deciding(config), tokens])}"
    with quiet():
        trainer = _trainer(load_model(model, config), tokenizer, tokens, config, checkpoints)
        trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    if trainer.is_world_process_zero():
        trained = trainer.accelerator.unwrap_model(trainer.model)
        trained.save_pretrained(out, selected_adapters=["default"])  # the other is the reference
        tokenizer.save_pretrained(out)
    return finish(trainer, out, LOGGED)


def dpo_arguments(config: DpoSettings, checkpoints: Path) -> "DPOConfig":
    """The settings as TRL takes them; checkpoints go into the folder ``checkpoints``."""
    from trl import DPOConfig

    return DPOConfig(
        output_dir=str(checkpoints),
        beta=config.beta,
        **tuning_arguments(config, "preferences", LOG_STEPS),
    )


def _trainer(
    model: Any, tokenizer: Any, tokens: Tokens, config: DpoSettings, checkpoints: Path
) -> "DPOTrainer":
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import DPOTrainer

    class Trainer(Silent, DPOTrainer):
        def _prepare_dataset(self, dataset, *_):
            """TRL would look for texts and tokenise them; tokens stay as they are."""
            return dataset

    trainer = Trainer(
        model=model,
        args=dpo_arguments(config, checkpoints),
        train_dataset=Dataset.from_dict(tokens),
        processing_class=tokenizer,
        peft_config=new_adapter(model, config),
        callbacks=[watch("optimize preferences")],
    )
    trainer.remove_callback(PrinterCallback)  # the bar says it
    return trainer


def train_on_plain(model: str, tokens: Tokens, config: dict[str, Any], out_folder: str) -> None:
    """:func:`train_on_pairs` from JSON values, for :func:`pwagents.lm.launch.launch`.

    Args:
        model: a folder; the tokenizer is in it, too.
        config: the fields of :class:`DpoSettings`.
    """
    tokenizer = read_tokenizer(model)
    train_on_pairs(model, tokenizer, tokens, DpoSettings(**config), out_folder)
