"""What trainings by TRL's trainers share: settings in TRL's words, going on after a kill, a bar, losses."""

import logging
import math
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.progress import progress
from pwagents.seeds import derive_seed
from pwagents.files import damage, seal
from pwagents.code import hash_of
from pwagents.results.figures import plot_lines
from pwagents.results.style import mark_level
from pwagents.llm.folder import point_to_base
from pwagents_old.lm.load import hold_in_float32
from pwagents_old.lm.settings import TrainingSettings, deciding
from pwagents.files import write_aside

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback


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


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what libraries say to each other and to their makers while a model is loaded or trained."""
    import datasets
    from huggingface_hub import constants
    from transformers.utils.logging import disable_progress_bar

    constants.HF_HUB_DISABLE_TELEMETRY = True  # TRL's trainers tell what is trained, and on which GPU
    disable_progress_bar()  # of reading and writing weights, at each checkpoint
    datasets.disable_progress_bars()  # of each pass over the rows
    # Checkpoints of a fast training are no second apart; transformers then goes by their numbers, and warns.
    logging.getLogger("transformers.trainer_utils").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # peft and TRL still use a name that transformers has renamed.
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        yield


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


def run(trainer: "Trainer", what: str, folder: Path, logged: Sequence[str]) -> pd.DataFrame:
    """Train, from the last checkpoint on, and save model (or adapter), tokenizer and log; remove checkpoints.

    Args:
        what: the bar's name.
        folder: of the model.
        logged: columns of the log. Only rows with a loss count; the trainer adds one about all steps.

    Returns:
        The log, also in ``folder/log.csv``.

    Raises:
        FloatingPointError: the loss is infinite or not a number.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)  # the bar says it
    trainer.add_callback(watch(what))
    hold_in_float32(trainer.model)
    trainer.train(resume_from_checkpoint=last_checkpoint(Path(trainer.args.output_dir)))
    trainer.save_model(str(folder))
    log = pd.DataFrame([row for row in trainer.state.log_history if "loss" in row])[list(logged)]
    if trainer.is_world_process_zero():
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle with paths of this machine
        point_to_base(folder)
        write_aside(folder / "log.csv", log.to_csv(index=False, lineterminator="\n"))
        shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    return log


def watch(what: str) -> "TrainerCallback":
    """Return what follows a training: a bar, lists of checkpoints' files, an end where the loss is none."""
    from accelerate import PartialState
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            off = not state.is_world_process_zero
            self.bar = progress(total=state.max_steps, desc=what, unit="step", disable=off)
            self.bar.update(state.global_step)

        def on_step_end(self, args, state, control, **_):
            self.bar.update()

        def on_save(self, args, state, control, **_):
            PartialState().wait_for_everyone()  # each of several processes writes a part of a checkpoint
            if state.is_world_process_zero:
                seal(Path(args.output_dir) / f"checkpoint-{state.global_step}")

        def on_log(self, args, state, control, logs, **_):
            if "loss" not in logs:
                return
            if not math.isfinite(logs["loss"]):
                message = f"{what}: the loss is {logs['loss']} at step {state.global_step}"
                raise FloatingPointError(f"{message}; a lower learning rate may do")
            self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)

        def on_train_end(self, args, state, control, **_):
            self.bar.close()

    return Watch()


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


def plot_losses(losses: pd.DataFrame):
    """Draw the loss by step, a line a training; all are of one kind."""
    of_pairs = losses["training"].str.startswith("DPO").all()
    unit = f"loss (nats a {'pair' if of_pairs else 'token'})"
    figure = plot_lines(losses, "step", "loss", hue="training", xlabel="step", ylabel=unit)
    (ax,) = figure.axes
    if of_pairs:  # it begins at log 2, where nothing is preferred
        mark_level(ax, math.log(2), "no preference (log 2)")
    else:
        ax.set_ylim(bottom=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return figure
