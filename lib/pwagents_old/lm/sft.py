"""Supervised fine-tuning by TRL, on two of its kinds of rows: prompts with completions, and tokens."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.errors import DataError
from pwagents.llm.folder import read_tokenizer
from pwagents_old.lm.load import load_model, new_adapter
from pwagents_old.lm.packed import states_before
from pwagents_old.lm.settings import SftSettings
from pwagents_old.lm.tokens import NO_LOSS
from pwagents_old.lm.trainer import quiet, run, trl_config

if TYPE_CHECKING:
    import torch

LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm")


def fine_tune(
    base: Path,
    rows: Sequence[Mapping[str, Any]],
    settings: SftSettings,
    folder: Path,
    *,
    pad_counts: bool = False,
) -> pd.DataFrame:
    """Fine-tune a model and save it (or its adapter), the tokenizer and the log.

    The same model, rows and settings give the same weights on the same machine, also where the training was
    killed and started again: checkpoints lie in ``folder`` until it is finished.

    Args:
        base: the folder of a model, or of an adapter, which is then trained on.
        rows: ``{"prompt": text, "completion": text}``: plain texts, of which the completion and the end token
            are learned; or ``{"input_ids": tokens, "labels": tokens}``, as
            :func:`pwagents_old.lm.tokens.tokenize_conversation` makes them. What is longer than ``max_length`` is
            cut, a row without a learned token left out, as TRL does.
        folder: of this model alone, as :func:`pwagents.store.made` gives it.
        pad_counts: fill each row with end tokens up to ``max_length`` and learn these, too, as PUMA's
            published script does.

    Returns:
        The log, also in ``folder/log.csv``: a row for the first and each tenth step, columns :data:`LOGGED`;
        the loss is the mean over the steps since the row before, in nats a token.

    Raises:
        DataError: there are no rows.
        FloatingPointError: the loss is no number any more.
    """
    from datasets import Dataset
    from trl import SFTTrainer

    class Trainer(SFTTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            """TRL's loss; on a CPU computed by :func:`_cpu_loss`, which takes half the time."""
            alone = self.accelerator.num_processes == 1  # else TRL's also divides among processes
            if self.args.use_cpu and alone and not return_outputs and not pad_counts:
                return _cpu_loss(model, inputs, num_items_in_batch)
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    if not rows:
        raise DataError("training data", 0, "rows", "none", "at least one")
    folder, tokenizer = Path(folder), read_tokenizer(base)
    key_parts = [Path(base).name, list(rows), pad_counts]
    arguments = trl_config(settings, folder, key_parts, chance="fine-tuning", log_steps=10)
    fill = partial(_fill, tokenizer.eos_token_id, arguments.max_length)
    with quiet():
        network = load_model(base, settings)
        trainer = Trainer(
            model=network,
            args=arguments,
            train_dataset=Dataset.from_list(list(rows)),
            processing_class=tokenizer,
            peft_config=new_adapter(network, settings),
            data_collator=fill if pad_counts else None,
        )
        return run(trainer, "fine-tune", folder, LOGGED)


def _fill(end: int, length: int, rows: list[dict[str, list[int]]]) -> dict[str, "torch.Tensor"]:
    """A batch of rows, each filled with end tokens that are learned and never looked at."""
    import torch

    ids = torch.full((len(rows), length), end)
    labels, seen = ids.clone(), torch.zeros_like(ids)
    for i, row in enumerate(rows):
        n = len(row["input_ids"])
        ids[i, :n], labels[i, :n] = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
        seen[i, :n] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": seen}


def _cpu_loss(model: Any, inputs: Mapping[str, "torch.Tensor"], num_items_in_batch: "torch.Tensor | None"):
    """The mean cross-entropy of the tokens that are learned.

    Only their logits are computed: of a prompt of 500 tokens and a turn of 50, that spares nine tenths of the
    output layer. Padding, which stands on the right, is not read (:mod:`pwagents_old.lm.packed`).

    Args:
        num_items_in_batch: learned tokens in all passes of the step, over which the mean is taken.
    """
    from torch.nn.functional import cross_entropy

    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    labels = inputs["labels"]
    chosen = labels != NO_LOSS
    logits = whole.get_output_embeddings()(states_before(whole, inputs["input_ids"], chosen))
    total = cross_entropy(logits.float(), labels[chosen], reduction="sum")
    return total / (chosen.sum() if num_items_in_batch is None else num_items_in_batch)
