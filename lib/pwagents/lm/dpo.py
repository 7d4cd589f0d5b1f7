"""Direct preference optimization by TRL, as PUMA does it (PersonalWAB, 5.2, equations 3 and 4)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from pwagents.cache import hash_of
from pwagents.errors import DataError
from pwagents.llm.folder import adapter_base, read_model, read_tokenizer
from pwagents.lm.load import new_adapter, weights_type
from pwagents.lm.settings import DpoSettings, deciding
from pwagents.lm.trainer import Silent, quiet, run, trl_fields

LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm", "rewards/accuracies", "rewards/margins")
Rows = Sequence[Mapping[str, str]]


def prefer(model: Path, rows: Rows, settings: DpoSettings, folder: Path) -> pd.DataFrame:
    """Train a new adapter on preferences and save it, the tokenizer and the log.

    The reference is the model without the adapter. As :func:`pwagents.lm.sft.fine_tune` the training is
    deterministic and goes on after a kill.

    Args:
        model: the folder of a whole model (:func:`pwagents.lm.load.merge` makes one of an adapter).
        rows: ``{"prompt", "chosen", "rejected"}``: plain texts, to whose answers TRL adds the end token.
        folder: of this adapter alone.

    Returns:
        The log, also in ``folder/log.csv``: a row for the first and each fifth step, columns :data:`LOGGED`;
        they are means over the steps since the row before, the loss in nats a pair.

    Raises:
        DataError: there are no rows.
        FloatingPointError: the loss is no number any more.
    """
    if not rows:
        raise DataError("preference pairs", 0, "pairs", "none", "at least one")
    folder = Path(folder)
    # Named by data and settings: checkpoints of another training are never gone on from.
    checkpoints = folder / f"checkpoints-{hash_of([Path(model).name, deciding(settings), list(rows)])}"
    fields = trl_fields(settings, checkpoints, chance="preferences", log_steps=5)
    with quiet():
        network = read_model(model, weights_type(settings))
        kept, adapter = settings.prompt_length, new_adapter(model, settings)
        trainer = _trainer(model, rows, kept, fields, model=network, peft_config=adapter)
        return run(trainer, "optimize preferences", folder, LOGGED)


def evaluate_pairs(model: Path, rows: Rows, settings: DpoSettings) -> tuple[float, float]:
    """Return how well an adapter of :func:`prefer` tells chosen from rejected, as TRL defines both numbers.

    Returns:
        The share of rows whose chosen answer has gained more than the rejected one since the reference, and
        how much more, on average, times beta.
    """
    from transformers import PrinterCallback

    with TemporaryDirectory() as folder, quiet():
        fields = trl_fields(settings, Path(folder), chance="preferences", log_steps=5)
        fields |= {"per_device_eval_batch_size": 1}  # TRL averages batches, whatever their sizes
        policy, reference = (
            read_model(where, weights_type(settings)) for where in (model, adapter_base(model))
        )
        kept = settings.prompt_length
        trainer = _trainer(model, rows, kept, fields, model=policy, ref_model=reference)
        trainer.remove_callback(PrinterCallback)  # both numbers are returned
        measured = trainer.evaluate()
    return measured["eval_rewards/accuracies"], measured["eval_rewards/margins"]


def _trainer(folder: Path, rows: Rows, kept: int, fields: dict, **models):
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Trainer(Silent, DPOTrainer):
        pass

    arguments, tokenizer = DPOConfig(**fields), read_tokenizer(folder)
    data = Dataset.from_list([_cut_prompt(row, tokenizer, kept, arguments.max_length) for row in rows])
    return Trainer(
        args=arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer, **models
    )


def _cut_prompt(row: Mapping[str, str], tokenizer: Any, kept: int, longest: int | None) -> dict[str, str]:
    """Leave a prompt its last tokens where it and the longer answer have more than ``longest``.

    So did TRL by ``max_prompt_length``, which PUMA's script sets (``PUMA/dpo_llama.py``); today it cuts
    answers.
    """
    read = tokenizer(row["prompt"], return_offsets_mapping=True)
    answers = (len(tokenizer(row["prompt"] + row[kind])["input_ids"]) + 1 for kind in ("chosen", "rejected"))
    if longest is None or len(read["input_ids"]) <= kept or max(answers) <= longest:
        return dict(row)
    return dict(row) | {"prompt": row["prompt"][read["offset_mapping"][-kept][0] :]}
