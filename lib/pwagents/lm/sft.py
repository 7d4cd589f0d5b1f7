"""Supervised fine-tuning by TRL: the loss is on the assistant's tokens, and on nothing else.

Conversations come to TRL as tokens and labels (:mod:`pwagents.lm.tokens`), which it takes as they are:
nothing is rendered, tokenised or cut a second time.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.cache import hash_of
from pwagents.errors import DataError
from pwagents.llm.chat import Message, Tool
from pwagents.llm.folder import read_tokenizer
from pwagents.lm.load import load_model, new_adapter
from pwagents.lm.packed import states_before
from pwagents.lm.settings import SftSettings, deciding
from pwagents.lm.tokens import NO_LOSS, Example, tokenize_conversation
from pwagents.lm.trainer import Silent, finish, last_checkpoint, quiet, tuning_arguments, watch

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import SFTConfig, SFTTrainer

LOG_STEPS = 10  # steps a row of the log
LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm")


def fine_tune(
    model: "PreTrainedModel | Path | str",
    tokenizer: "PreTrainedTokenizerBase",
    conversations: Sequence[Sequence[Message]],
    config: SftSettings,
    out_folder: Path | str,
    tools: Sequence[Tool] = (),
) -> pd.DataFrame:
    """Fine-tune on conversations in OpenAI's format and save model (or adapter), tokenizer and log.

    The same model, data and configuration give the same weights on the same machine, also where the training
    was killed and started again: checkpoints lie in ``out_folder`` until it is finished.

    Args:
        model: a folder, or a model in memory, which is then changed in place.
        out_folder: of this model alone, as :func:`pwagents.cache.cached` gives it.
        tools: what the template tells the model about its functions; the same as when it acts.

    Returns:
        The log, also in ``out_folder/log.csv``: a row for the first and each tenth step, columns
        :data:`LOGGED`; the loss is the mean over the steps since the row before, in nats a token.

    Raises:
        DataError: as :func:`tokenize_conversation`; a conversation is longer than ``config.max_length``.
        FloatingPointError: the loss is no number any more.
    """
    examples = [tokenize_conversation(tokenizer, messages, tools) for messages in conversations]
    return train_on(model, tokenizer, examples, config, out_folder)


def train_on(
    model: "PreTrainedModel | Path | str",
    tokenizer: "PreTrainedTokenizerBase",
    examples: Sequence[Example],
    config: SftSettings,
    out_folder: Path | str,
) -> pd.DataFrame:
    """:func:`fine_tune` on what is tokens already."""
    if not examples:
        raise DataError("training data", 0, "examples", "none", "at least one")
    for i, example in enumerate(examples):
        if len(example.input_ids) > config.max_length:
            expected = f"at most max_length = {config.max_length:,}; raise it or leave the example out"
            raise DataError("training data", i, "tokens", f"{len(example.input_ids):,}", expected)
    out = Path(out_folder)
    # Named by data and settings: checkpoints of another training are never gone on from.
    checkpoints = out / f"checkpoints-{hash_of([deciding(config), examples])}"
    with quiet():
        trainer = _trainer(load_model(model, config), tokenizer, examples, config, checkpoints)
        trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    trainer.save_model(str(out))
    (out / "training_args.bin").unlink(missing_ok=True)  # a pickle with paths of this machine
    return finish(trainer, out, LOGGED)


def sft_arguments(config: SftSettings, checkpoints: Path) -> "SFTConfig":
    """The settings as TRL takes them; checkpoints go into the folder ``checkpoints``."""
    from trl import SFTConfig

    return SFTConfig(
        output_dir=str(checkpoints),
        max_steps=config.max_steps or -1,
        weight_decay=config.weight_decay,
        dataset_kwargs={"skip_prepare_dataset": True},  # tokens stay as they are
        **tuning_arguments(config, "fine-tuning", LOG_STEPS),
    )


def _trainer(
    model: Any, tokenizer: Any, examples: Sequence[Example], config: SftSettings, checkpoints: Path
) -> "SFTTrainer":
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTTrainer

    class Trainer(Silent, SFTTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            """TRL's loss; on a CPU computed by :func:`_cpu_loss`, which takes half the time."""
            alone = self.accelerator.num_processes == 1  # else TRL's also divides among processes
            if self.args.use_cpu and alone and not return_outputs:
                return _cpu_loss(model, inputs, num_items_in_batch)
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    trainer = Trainer(
        model=model,
        args=sft_arguments(config, checkpoints),
        train_dataset=Dataset.from_list([{"input_ids": e.input_ids, "labels": e.labels} for e in examples]),
        processing_class=tokenizer,
        peft_config=new_adapter(model, config),
        callbacks=[watch("fine-tune")],
    )
    trainer.remove_callback(PrinterCallback)  # the bar says it
    return trainer


def _cpu_loss(model: "PreTrainedModel", inputs: dict, num_items_in_batch: "torch.Tensor | None"):
    """The mean cross-entropy of the tokens that are learned.

    Only their logits are computed: of a prompt of 500 tokens and a turn of 50, that spares nine tenths of the
    output layer. Padding, which stands on the right, is not read (:mod:`pwagents.lm.packed`).

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


def train_on_plain(model: str, examples: list, config: dict[str, Any], out_folder: str) -> None:
    """:func:`train_on` from JSON values, for :func:`pwagents.lm.launch.launch`.

    Args:
        model: a folder; the tokenizer is in it, too.
        examples: the fields of each :class:`Example`, as a list.
        config: the fields of :class:`SftSettings`.
    """
    tokenizer = read_tokenizer(model)
    train_on(model, tokenizer, [Example(*each) for each in examples], SftSettings(**config), out_folder)
