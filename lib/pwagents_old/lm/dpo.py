"""Direct preference optimization by TRL, as PUMA does it (PersonalWAB, 5.2, equations 3 and 4)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from pwagents.errors import DataError
from pwagents.llm.folder import adapter_base, read_model, read_tokenizer
from pwagents_old.lm.load import new_adapter, weights_type
from pwagents_old.lm.settings import DpoSettings
from pwagents_old.lm.trainer import quiet, run, trl_config

LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm", "rewards/accuracies", "rewards/margins")
Rows = Sequence[Mapping[str, str]]


def prefer(model: Path, rows: Rows, settings: DpoSettings, folder: Path) -> pd.DataFrame:
    """Train a new adapter on preferences and save it, the tokenizer and the log.

    The reference is the model without the adapter. As :func:`pwagents_old.lm.sft.fine_tune` the training is
    deterministic and goes on after a kill.

    Args:
        model: the folder of a whole model (:func:`pwagents_old.lm.load.merge` makes one of an adapter).
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
    with quiet():
        network = read_model(model, weights_type(settings))
        adapter = new_adapter(network, settings)
        trainer = _trainer(model, rows, settings, folder, model=network, peft_config=adapter)
        return run(trainer, "optimize preferences", folder, LOGGED)


def evaluate_pairs(model: Path, rows: Rows, settings: DpoSettings) -> tuple[float, float]:
    """Return how well an adapter of :func:`prefer` tells chosen from rejected, as TRL defines both numbers.

    Returns:
        The share of rows whose chosen answer has gained more than the rejected one since the reference, and
        how much more, on average, times beta.
    """
    from transformers import PrinterCallback

    with TemporaryDirectory() as folder, quiet():
        policy, reference = (
            read_model(where, weights_type(settings)) for where in (model, adapter_base(model))
        )
        trainer = _trainer(model, rows, settings, Path(folder), model=policy, ref_model=reference)
        trainer.remove_callback(PrinterCallback)  # both numbers are returned
        measured = trainer.evaluate()
    return measured["eval_rewards/accuracies"], measured["eval_rewards/margins"]


def _trainer(base: Path, rows: Rows, settings: DpoSettings, folder: Path, **networks):
    """TRL's trainer, on rows whose prompts have been cut.

    A prompt keeps its last tokens where it and the longer answer have more than ``max_length``. So did TRL by
    ``max_prompt_length``, which PUMA's script sets (``PUMA/dpo_llama.py``); today it cuts answers.
    """
    from datasets import Dataset
    from trl import DPOTrainer

    key_parts = [Path(base).name, list(rows)]
    arguments = trl_config(settings, folder, key_parts, chance="preferences", log_steps=5)
    arguments.per_device_eval_batch_size = 1  # TRL averages batches, whatever their sizes
    tokenizer, kept, cut = read_tokenizer(base), settings.prompt_length, []
    for row in rows:
        prompt = row["prompt"]
        read = tokenizer(prompt, return_offsets_mapping=True)
        longest = max(len(tokenizer(prompt + row[kind])["input_ids"]) + 1 for kind in ("chosen", "rejected"))
        if len(read["input_ids"]) > kept and longest > (arguments.max_length or longest):
            prompt = prompt[read["offset_mapping"][-kept][0] :]
        cut.append({**row, "prompt": prompt})
    data = Dataset.from_list(cut)
    return DPOTrainer(
        args=arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer, **networks
    )
