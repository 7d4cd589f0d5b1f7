"""Direct preference optimization of PUMA's parameters by TRL (PersonalWAB, 5.2, equations 3 and 4).

The reference is the model that DPO starts from. That is mostly an adapter made by supervised fine-tuning: the
adapter is trained on, a frozen copy of it is the reference, and the base model is loaded once.

Settings printed in the paper (A.3): learning rate 5e-5, batch 1 a GPU. The published scripts add: LoRA of
rank 16 and alpha 32, 5 epochs, beta 0.1, accumulation 16. Pairs come to TRL as tokens and are taken as they
are.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.errors import DataError
from pwagents.lm.cache import last_checkpoint, watch
from pwagents.lm.load import load_weights, lora_config
from pwagents.lm.settings import DpoSettings, deciding
from pwagents.lm.tokens import tokenize_conversation
from pwagents.project import write_aside
from pwagents.puma.agent import parameter_tools
from pwagents.puma.pairs import Pair
from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase
    from trl import DPOConfig

Tokens = dict[str, list[list[int]]]
LOG_STEPS = 5  # steps a row of the log
LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm", "rewards/accuracies", "rewards/margins")


def optimize_preferences(
    model: Path | str,
    tokenizer: "PreTrainedTokenizerBase",
    pairs: Sequence[Pair],
    config: DpoSettings,
    out_folder: Path | str,
) -> "pd.DataFrame":
    """Train on pairs and save adapter, tokenizer and log.

    The same model, pairs and configuration give the same weights on the same machine; a training that was
    killed goes on from its last checkpoint.

    Args:
        model: the folder of a model, or of an adapter.

    Returns:
        The log, also in ``out_folder/log.csv``: a row for the first and each fifth step, columns
        :data:`LOGGED`; they are means over the steps since the row before, the loss in nats a pair.

    Raises:
        DataError: there are no pairs, or an answer with its input is longer than ``config.max_length``.
        FloatingPointError: the loss is no number any more.
    """
    tokens = tokenize_pairs(tokenizer, pairs, config.max_length)
    return train_on_pairs(model, tokenizer, tokens, config, out_folder)


def train_on_pairs(
    model: Path | str,
    tokenizer: "PreTrainedTokenizerBase",
    tokens: Tokens,
    config: DpoSettings,
    out_folder: Path | str,
) -> "pd.DataFrame":
    """:func:`optimize_preferences` on what is tokens already (:func:`tokenize_pairs`)."""
    import pandas as pd

    if not tokens["prompt_ids"]:
        raise DataError("preference pairs", 0, "pairs", "none", "at least one")
    out = Path(out_folder)
    checkpoints = out / f"checkpoints-{_hash(tokens, config)}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # TRL's own use
        trainer = _trainer(load_weights(model, config.weights), tokenizer, tokens, config, checkpoints)
        trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    log = pd.DataFrame([row for row in trainer.state.log_history if "loss" in row])[list(LOGGED)]
    if trainer.is_world_process_zero():
        trained = trainer.accelerator.unwrap_model(trainer.model)
        trained.save_pretrained(out, selected_adapters=["default"])  # and not the reference's
        tokenizer.save_pretrained(out)
        write_aside(out / "log.csv", log.to_csv(index=False, lineterminator="\n"))
        shutil.rmtree(checkpoints, ignore_errors=True)
    return log


def tokenize_pairs(tokenizer: "PreTrainedTokenizerBase", pairs: Sequence[Pair], max_length: int) -> Tokens:
    """The pairs as TRL's columns ``prompt_ids``, ``chosen_ids`` and ``rejected_ids``.

    Raises:
        DataError: a pair is longer than ``max_length``; its task is named.
    """
    columns: Tokens = {"prompt_ids": [], "chosen_ids": [], "rejected_ids": []}
    for pair in pairs:
        tools = parameter_tools(pair.item.function)
        for column, candidate in (("chosen_ids", pair.best), ("rejected_ids", pair.worst)):
            ids, mask = tokenize_conversation(tokenizer, pair.conversation(candidate), tools)
            if len(ids) > max_length:
                task = f"task {pair.item.task.task_id}"
                raise DataError("preference pairs", task, "tokens", len(ids), f"at most {max_length:,}")
            columns[column].append(ids[mask.index(1) :])
        columns["prompt_ids"].append(ids[: mask.index(1)])
    return columns


def _trainer(model, tokenizer, tokens: Tokens, config: DpoSettings, checkpoints: Path):
    from datasets import Dataset
    from peft import PeftModel
    from transformers import PrinterCallback
    from trl import DPOTrainer

    class Trainer(DPOTrainer):
        """TRL's, but for what it does beside training; tokens stay as they are."""

        def _prepare_dataset(self, dataset, *_):
            return dataset

        def _send_telemetry(self):
            pass

        def create_model_card(self, *arguments, **options):
            pass

    trainer = Trainer(
        model=model,
        args=dpo_arguments(config, checkpoints),
        train_dataset=Dataset.from_dict(tokens),
        processing_class=tokenizer,
        peft_config=None if isinstance(model, PeftModel) else lora_config(config.lora),
        callbacks=[watch("optimize preferences")],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def dpo_arguments(config: DpoSettings, checkpoints: Path) -> "DPOConfig":
    """The settings as TRL takes them; checkpoints go below ``checkpoints``."""
    import torch
    from trl import DPOConfig

    gpu = torch.cuda.is_available()
    return DPOConfig(
        output_dir=str(checkpoints),
        num_train_epochs=config.num_train_epochs,
        per_device_train_batch_size=config.per_device_train_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.lr_scheduler_type,
        warmup_steps=config.warmup_steps,
        optim=config.optim,
        beta=config.beta,
        seed=derive_seed(config.seed, "preferences") % 2**32,
        bf16=config.bf16 and gpu,
        use_cpu=not gpu,
        activation_checkpointing=config.gradient_checkpointing,
        max_length=None,
        save_steps=-(-config.save_steps // LOG_STEPS) * LOG_STEPS,
        save_total_limit=1,
        logging_steps=LOG_STEPS,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        report_to=config.report_to,
        disable_tqdm=True,
    )


def _hash(tokens: Tokens, config: DpoSettings) -> str:
    """12 hex digits over data and configuration: checkpoints of another training are never gone on from."""
    whole = json.dumps([deciding(config), tokens], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def train_on_plain(model: str, tokens: Tokens, config: dict[str, Any], out_folder: str) -> None:
    """:func:`train_on_pairs` from JSON values, for :func:`pwagents.lm.launch.launch`.

    Over several GPUs each must hold the whole model (sharding "ddp"): one process saves the adapter.

    Args:
        model: a folder; the tokenizer is in it, too.
        config: the fields of :class:`DpoSettings`.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    train_on_pairs(model, tokenizer, tokens, DpoSettings(**config), out_folder)
