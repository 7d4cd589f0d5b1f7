"""Supervised fine-tuning by TRL: the loss is on the assistant's tokens, and on nothing else.

Conversations come to TRL as tokens and labels (:mod:`pwagents.lm.tokens`), which it takes
as they are: nothing is rendered, tokenised or cut a second time.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.errors import DataError
from pwagents.llm.chat import Message, Tool
from pwagents.lm.cache import last_checkpoint, watch
from pwagents.lm.load import lora_config
from pwagents.lm.settings import SftSettings, deciding
from pwagents.lm.tokens import Example, tokenize_conversation
from pwagents.project import write_aside
from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import SFTConfig

NO_LOSS = -100  # the label of tokens that are not in the loss
LOG_STEPS = 10  # steps a row of the log
LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm")


def fine_tune(
    model: "PreTrainedModel | Path | str",
    tokenizer: "PreTrainedTokenizerBase",
    conversations: Sequence[Sequence[Message]],
    config: SftSettings,
    out_folder: Path | str,
    tools: Sequence[Tool] = (),
) -> "pd.DataFrame":
    """Fine-tune on conversations in OpenAI's format and save model (or adapter), tokenizer and log.

    The same model, data and configuration give the same weights on the same machine, also where the training
    was killed and started again: checkpoints lie in ``out_folder`` until it is finished.

    Args:
        model: a folder, or a model in memory, which is then changed in place.
        out_folder: of this model alone, as :func:`pwagents.lm.cache.cached_model` gives it.
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
) -> "pd.DataFrame":
    """:func:`fine_tune` on what is tokens already."""
    import pandas as pd

    if not examples:
        raise DataError("training data", 0, "examples", "none", "at least one")
    for i, example in enumerate(examples):
        if len(example.input_ids) > config.max_length:
            expected = f"at most max_length = {config.max_length:,}; raise it or leave the example out"
            raise DataError("training data", i, "tokens", f"{len(example.input_ids):,}", expected)
    out = Path(out_folder)
    checkpoints = out / f"checkpoints-{_hash(examples, config)}"
    trainer = _trainer(model, tokenizer, examples, config, checkpoints)
    trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    trainer.save_model(str(out))
    log = pd.DataFrame([row for row in trainer.state.log_history if "loss" in row])[list(LOGGED)]
    if trainer.is_world_process_zero():
        (out / "training_args.bin").unlink(missing_ok=True)  # a pickle with paths of this machine
        write_aside(out / "log.csv", log.to_csv(index=False, lineterminator="\n"))
        shutil.rmtree(checkpoints, ignore_errors=True)
    return log


def _hash(examples: Sequence[Example], config: SftSettings) -> str:
    """12 hex digits over data and configuration: checkpoints of another training are never gone on from."""
    digest = hashlib.sha256(json.dumps(deciding(config), sort_keys=True).encode())
    for example in examples:
        digest.update(json.dumps(example).encode())
    return digest.hexdigest()[:12]


def _trainer(model, tokenizer, examples: Sequence[Example], config: SftSettings, checkpoints: Path):
    from datasets import Dataset
    from transformers import PrinterCallback
    from transformers.utils.logging import disable_progress_bar
    from trl import SFTTrainer

    class Trainer(SFTTrainer):
        """TRL's, without what it does beside training: sending usage data, a card with each checkpoint."""

        def _send_telemetry(self):
            pass

        def create_model_card(self, *arguments, **options):
            pass

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            alone = self.accelerator.num_processes == 1
            if self.args.use_cpu and alone and not return_outputs:
                return _cpu_loss(model, inputs, num_items_in_batch)
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    disable_progress_bar()  # of writing weights
    if isinstance(model, Path | str):
        model = _load(model, config.weights)
    labels = [[t if m else NO_LOSS for t, m in zip(*example, strict=True)] for example in examples]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # peft's own use
        trainer = Trainer(
            model=model,
            args=sft_arguments(config, checkpoints),
            train_dataset=Dataset.from_dict({"input_ids": [e.input_ids for e in examples], "labels": labels}),
            processing_class=tokenizer,
            peft_config=lora_config(config.lora),
            callbacks=[watch("fine-tune")],
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _cpu_loss(model: "PreTrainedModel", inputs: dict, num_items_in_batch: "torch.Tensor | None"):
    """The mean loss of the tokens that are in it, as TRL's, which without a GPU takes twice the time.

    It scores only the positions that count; and as padding stands on the right, where no token looks, it
    needs no attention mask.
    """
    from torch.nn.functional import cross_entropy

    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    hidden = whole.base_model(inputs["input_ids"], use_cache=False).last_hidden_state[:, :-1]
    labels = inputs["labels"][:, 1:]
    chosen = labels != NO_LOSS
    logits = whole.get_output_embeddings()(hidden[chosen])
    total = cross_entropy(logits.float(), labels[chosen], reduction="sum")
    return total / (chosen.sum() if num_items_in_batch is None else num_items_in_batch)


def sft_arguments(config: SftSettings, checkpoints: Path) -> "SFTConfig":
    """The settings as TRL takes them; checkpoints go below ``checkpoints``."""
    import torch
    from trl import SFTConfig

    gpu = torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(checkpoints),
        max_steps=config.max_steps or -1,
        num_train_epochs=config.num_train_epochs,
        per_device_train_batch_size=config.per_device_train_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,  # below 1 it is a share
        lr_scheduler_type=config.lr_scheduler_type,
        weight_decay=config.weight_decay,
        seed=derive_seed(config.seed, "fine-tuning") % 2**32,
        bf16=config.bf16 and gpu,
        use_cpu=not gpu,
        activation_checkpointing=config.gradient_checkpointing,
        optim=config.optim,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},  # tokens stay as they are
        save_steps=-(-config.save_steps // LOG_STEPS) * LOG_STEPS,
        save_total_limit=1,
        logging_steps=LOG_STEPS,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        report_to=config.report_to,
        disable_tqdm=True,
    )


def _load(folder: Path | str, weights: str) -> "PreTrainedModel":
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=weights)


def train_on_plain(model: str, examples: list, config: dict[str, Any], out_folder: str) -> None:
    """:func:`train_on` from JSON values, for :func:`pwagents.lm.launch.launch`.

    Args:
        model: a folder; the tokenizer is in it, too.
        examples: the fields of each :class:`Example`, as a list.
        config: the fields of :class:`SftSettings`.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    train_on(model, tokenizer, [Example(*each) for each in examples], SftSettings(**config), out_folder)
