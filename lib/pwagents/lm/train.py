"""Supervised fine-tuning and direct preference optimization by TRL's trainers.

    folder = made(models, "sft", facts, partial(fine_tune, base, rows, settings.sft))
    folder = made(models, "dpo", facts, partial(prefer, model, rows, settings.dpo))

Both are deterministic: the same model, rows and settings give the same weights on the same machine, also if a
training is killed and started again, as checkpoints lie in its folder until it is finished. Each trains on as
many GPUs as its settings say (:mod:`pwagents.lm.launch`).
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.code import hash_of
from pwagents.errors import DataError
from pwagents.files import damage, seal, write_aside
from pwagents.llm.folder import adapter_base, point_to_base, read_model, read_tokenizer
from pwagents.lm.launch import launch
from pwagents.lm.load import hold_in_float32, load_model, new_adapter, quiet, weights_type
from pwagents.lm.packed import states_before
from pwagents.lm.tokens import NO_LOSS
from pwagents.progress import progress
from pwagents.seeds import derive_seed
from pwagents.settings import DpoSettings, SftSettings, TrainingSettings, deciding

if TYPE_CHECKING:
    import torch
    from transformers import Trainer

# The modules that decide what comes out of a training, for its key.
CODE = ("portable", "seeds", "llm.fence", "llm.folder")
CODE += tuple(f"lm.{name}" for name in ("load", "packed", "tokens", "train"))
LOGGED = ("step", "epoch", "loss", "learning_rate", "grad_norm")  # columns of log.csv
LOGGED_OF_PAIRS = (*LOGGED, "rewards/accuracies", "rewards/margins")
Pairs = Sequence[Mapping[str, str]]


def fine_tune(
    base: Path,
    rows: Sequence[Mapping[str, Any]],
    settings: SftSettings,
    folder: Path,
    *,
    pad_counts: bool = False,
) -> None:
    """Fine-tune a model; save it (or its adapter), the tokenizer and the log.

    The log, ``folder/log.csv``, has a row for the first and each tenth step, columns :data:`LOGGED`; the loss
    is the mean over the steps since the row before, in nats a token.

    Args:
        base: the folder of a model, or of an adapter, which is then trained on.
        rows: ``{"prompt": text, "completion": text}``: plain texts, of which the completion and the end token
            are learned; or ``{"input_ids": tokens, "labels": tokens}``, as
            :func:`pwagents.lm.tokens.tokenize_conversation` makes them. What is longer than ``max_length`` is
            cut, a row without a learned token left out, as TRL does.
        folder: of this model alone, as :func:`pwagents.store.made` gives it.
        pad_counts: fill each row with end tokens up to ``max_length`` and learn these, too, as PUMA's
            published script does.

    Raises:
        DataError: there are no rows.
        FloatingPointError: the loss is no number any more.
        ValueError, LaunchError: see :func:`~pwagents.lm.launch.launch`.
    """
    from datasets import Dataset
    from trl import SFTTrainer

    class Trainer(SFTTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            """Compute TRL's loss; on a CPU without padding and prompts' logits, which takes half the time."""
            alone = self.accelerator.num_processes == 1  # else TRL's also divides among processes
            if not (self.args.use_cpu and alone and not return_outputs and not pad_counts):
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            from torch.nn.functional import cross_entropy

            # The mean over the learned tokens of all passes of the step. Of a prompt of 500 tokens and a
            # turn of 50, logits of the turn alone spare nine tenths of the output layer.
            whole = model.get_base_model() if hasattr(model, "get_base_model") else model
            labels = inputs["labels"]
            chosen = labels != NO_LOSS
            logits = whole.get_output_embeddings()(states_before(whole, inputs["input_ids"], chosen))
            total = cross_entropy(logits.float(), labels[chosen], reduction="sum")
            return total / (chosen.sum() if num_items_in_batch is None else num_items_in_batch)

    if not rows:
        raise DataError("training data", 0, "rows", "none", "at least one")
    given = {"base": base, "rows": rows, "settings": settings, "folder": folder, "pad_counts": pad_counts}
    if launch(fine_tune, given, settings.n_gpus, settings.sharding):
        return
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
        _run(trainer, "fine-tune", folder, LOGGED)


def _fill(end: int, length: int, rows: list[dict[str, list[int]]]) -> dict[str, "torch.Tensor"]:
    """Return a batch of rows, each filled with end tokens that are learned and never looked at."""
    import torch

    ids = torch.full((len(rows), length), end)
    labels, seen = ids.clone(), torch.zeros_like(ids)
    for i, row in enumerate(rows):
        n = len(row["input_ids"])
        ids[i, :n], labels[i, :n] = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
        seen[i, :n] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": seen}


def prefer(model: Path, rows: Pairs, settings: DpoSettings, folder: Path) -> None:
    """Train a new adapter on preferences by DPO (PersonalWAB, 5.2, equations 3 and 4).

    The reference is the model without the adapter. Saved are adapter, tokenizer and ``folder/log.csv``: a
    row for the first and each fifth step, columns :data:`LOGGED_OF_PAIRS`; they are means over the steps
    since the row before, the loss in nats a pair.

    Args:
        model: the folder of a whole model (:func:`pwagents.lm.load.merge` makes one of an adapter).
        rows: ``{"prompt", "chosen", "rejected"}``: plain texts, to whose answers TRL adds the end token.
        folder: of this adapter alone.

    Raises:
        DataError, FloatingPointError, ValueError, LaunchError: as of :func:`fine_tune`.
    """
    if not rows:
        raise DataError("preference pairs", 0, "pairs", "none", "at least one")
    given = {"model": model, "rows": rows, "settings": settings, "folder": folder}
    if launch(prefer, given, settings.n_gpus, settings.sharding):
        return
    folder = Path(folder)
    with quiet():
        network = read_model(model, weights_type(settings))
        adapter = new_adapter(network, settings)
        trainer = _dpo_trainer(model, rows, settings, folder, model=network, peft_config=adapter)
        _run(trainer, "optimize preferences", folder, LOGGED_OF_PAIRS)


def evaluate_pairs(model: Path, rows: Pairs, settings: DpoSettings) -> dict[str, float]:
    """Measure how well an adapter of :func:`prefer` tells chosen from rejected, by TRL's own definitions.

    Returns:
        Means over rows. ``loss``: DPO's, in nats a pair. ``accuracy``: the share whose chosen answer has
        gained more than the rejected one since the reference. ``margin``: how much more, times beta.
    """
    from transformers import PrinterCallback

    with TemporaryDirectory() as folder, quiet():
        policy, reference = (
            read_model(where, weights_type(settings)) for where in (model, adapter_base(model))
        )
        trainer = _dpo_trainer(model, rows, settings, Path(folder), model=policy, ref_model=reference)
        trainer.remove_callback(PrinterCallback)  # the numbers are returned
        measured = trainer.evaluate()
    names = {"loss": "loss", "accuracy": "rewards/accuracies", "margin": "rewards/margins"}
    return {name: measured[f"eval_{own}"] for name, own in names.items()}


def _dpo_trainer(base: Path, rows: Pairs, settings: DpoSettings, folder: Path, **networks):
    """Return TRL's trainer, on rows whose prompts have been cut.

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


def trl_config(
    settings: TrainingSettings, folder: Path, key_parts: Sequence[Any], *, chance: str, log_steps: int
) -> Any:
    """Make TRL's configuration: fields of the settings, and what follows from this machine.

    Args:
        folder: of the model.
        key_parts: what it learns from; checkpoints of another training are never gone on from.
        chance: what the seed is for, in words; each training draws its own numbers from ``settings.seed``.
        log_steps: steps a row of the log, where the settings have no ``logging_steps``.
    """
    import torch
    import trl

    given = {"logging_steps": log_steps, "save_steps": 100, "save_total_limit": 1, **settings.trainer}
    if not torch.cuda.is_available():
        given |= {"use_cpu": True, "bf16": False, "activation_checkpointing": False}
    # A checkpoint needs a row to itself: between rows the trainer sums losses up, and a kill loses the sum.
    given["save_steps"] = math.ceil(given["save_steps"] / given["logging_steps"]) * given["logging_steps"]
    given |= {
        "output_dir": str(folder / f"checkpoints-{hash_of([deciding(settings), *key_parts])}"),
        "seed": derive_seed(settings.seed, chance) % 2**32,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a loss that is no number must be seen, not smoothed away
        "disable_tqdm": True,  # bars are ours
    }
    return getattr(trl, settings.CONFIG)(**given)


def last_checkpoint(folder: Path) -> str | None:
    """Return the last checkpoint that is whole, for ``resume_from_checkpoint``; None where there is none.

    A damaged one is set aside, with a line that says so: the training goes on from the one before it, or
    begins anew.
    """
    numbered = [path for path in folder.glob("checkpoint-*") if path.name[len("checkpoint-") :].isdigit()]
    for checkpoint in sorted(numbered, key=checkpoint_step, reverse=True):
        if not (wrong := damage(checkpoint, all_bytes=True)):
            return str(checkpoint)
        aside = checkpoint.with_name(f"damaged-{checkpoint.name}")
        shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
        checkpoint.rename(aside)
        print(f"{checkpoint} is damaged ({wrong}): set aside as {aside.name}; the one before it is tried")
    return None


def checkpoint_step(checkpoint: Path | str | None) -> int:
    """Return the number of steps behind a checkpoint; 0 without one."""
    return int(Path(checkpoint).name.rpartition("-")[2]) if checkpoint else 0


def _run(trainer: "Trainer", what: str, folder: Path, logged: Sequence[str]) -> None:
    """Train, from the last checkpoint on, and save model (or adapter), tokenizer and log; remove checkpoints.

    Args:
        what: the bar's name.
        folder: of the model.
        logged: columns of the log. Only rows with a loss count; the trainer adds one about all steps.

    Raises:
        FloatingPointError: the loss is infinite or not a number.
    """
    from accelerate import PartialState
    from transformers import PrinterCallback, TrainerCallback

    class Watch(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            bar.total = state.max_steps
            bar.update(state.global_step - bar.n)

        def on_save(self, args, state, control, **_):
            PartialState().wait_for_everyone()  # each of several processes writes a part of a checkpoint
            if state.is_world_process_zero:
                seal(Path(args.output_dir) / f"checkpoint-{state.global_step}")

        def on_log(self, args, state, control, logs, **_):
            if "loss" in logs and not math.isfinite(logs["loss"]):
                message = f"{what}: the loss is {logs['loss']} at step {state.global_step}"
                raise FloatingPointError(f"{message}; a lower learning rate may do")
            if "loss" in logs:
                bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)

    trainer.remove_callback(PrinterCallback)  # the bar says it
    trainer.add_callback(Watch())
    hold_in_float32(trainer.model)
    with progress(desc=what, unit="step", disable=not trainer.is_world_process_zero()) as bar:
        trainer.train(resume_from_checkpoint=last_checkpoint(Path(trainer.args.output_dir)))
    trainer.save_model(str(folder))
    if trainer.is_world_process_zero():
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle with paths of this machine
        point_to_base(folder)
        log = pd.DataFrame([row for row in trainer.state.log_history if "loss" in row])[list(logged)]
        write_aside(folder / "log.csv", log.to_csv(index=False, lineterminator="\n"))
        shutil.rmtree(trainer.args.output_dir, ignore_errors=True)


def read_losses(folders: Mapping[str, Path]) -> pd.DataFrame:
    """Read the logs of trainings, name -> folder: ``training`` (the name), ``step``, ``loss`` and more.

    A folder without a log is passed over: a model that was not trained here has none.
    """
    files = {name: folder / "log.csv" for name, folder in folders.items()}
    logs = [pd.read_csv(file).assign(training=name) for name, file in files.items() if file.exists()]
    return pd.concat(logs, ignore_index=True)


def not_falling(losses: pd.DataFrame) -> list[str]:
    """Name trainings that did not learn: the last third of the losses is not below the first one.

    A log of a single row, of a training of a few steps, says nothing and is passed over.

    Args:
        losses: from :func:`read_losses`.
    """
    idle = []
    for name, log in losses.groupby("training", sort=False):
        last = log["loss"].tail(max(1, len(log) // 3))
        if len(log) > 1 and not last.mean() < log["loss"].iloc[0]:  # written so that nan is not below
            idle.append(name)
    return idle
