"""What trainings by TRL's trainers share: settings in TRL's words, going on after a kill, a bar, a log."""

import json
import logging
import math
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.lm.settings import DpoSettings, SftSettings, Tuning
from pwagents.progress import progress
from pwagents.project import write_aside
from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback


def shared_arguments(tuning: Tuning, chance: str) -> dict[str, Any]:
    """What the configurations of all of TRL's trainers have in common.

    Args:
        chance: what the seed is for, in words; each training draws its own numbers from ``tuning.seed``.
    """
    import torch

    gpu = torch.cuda.is_available()
    names = ("learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "report_to")
    return {name: getattr(tuning, name) for name in names} | {
        "seed": derive_seed(tuning.seed, chance) % 2**32,
        "bf16": tuning.bf16 and gpu,
        "use_cpu": not gpu,
        "activation_checkpointing": tuning.gradient_checkpointing,
        "disable_tqdm": True,  # bars are ours
        "save_total_limit": 1,  # the one before it goes when a checkpoint is whole
    }


def tuning_arguments(tuning: SftSettings | DpoSettings, chance: str, log_steps: int) -> dict[str, Any]:
    """Those, and what fine-tuning and preference optimization have in common besides.

    Args:
        log_steps: steps a row of the log. A checkpoint needs a row to itself: between rows the trainer sums
            losses up, and after a kill the sum would be lost.
    """
    names = ("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps")
    return (
        shared_arguments(tuning, chance)
        | {name: getattr(tuning, name) for name in names}
        | {
            "max_length": None,  # what is too long was refused before; TRL would cut it
            "save_steps": math.ceil(tuning.save_steps / log_steps) * log_steps,
            "logging_steps": log_steps,
            "logging_first_step": True,
            "logging_nan_inf_filter": False,  # a loss that is no number must be seen, not smoothed away
        }
    )


class Silent:
    """Mixed into TRL's trainers: no usage data is sent, and no card is written with each checkpoint."""

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *_: Any, **__: Any) -> None:
        pass


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the libraries say to each other while a model is loaded or trained."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of reading and writing weights, at each checkpoint
    logging.getLogger("transformers.trainer_utils").addFilter(_no_word_on_mtime)
    with warnings.catch_warnings():
        # peft and TRL still use a name that transformers has renamed.
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        yield


def _no_word_on_mtime(record: logging.LogRecord) -> bool:
    """Checkpoints of a fast training are no second apart; transformers then goes by their numbers."""
    return "mtime may not be reliable" not in record.getMessage()


def last_checkpoint(folder: Path) -> str | None:
    """The last checkpoint that is whole, for ``resume_from_checkpoint``; broken ones are removed.

    A trainer writes ``trainer_state.json`` last: where it can be read, all else is there. A folder without
    checkpoints gives None: a training from the beginning.
    """
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=checkpoint_step, reverse=True):
        try:
            json.loads((checkpoint / STATE).read_text("utf-8"))
            return str(checkpoint)
        except (OSError, ValueError):
            shutil.rmtree(checkpoint)
    return None


STATE = "trainer_state.json"


def checkpoint_step(checkpoint: Path | str | None) -> int:
    """The number of steps behind a checkpoint; 0 without one."""
    return int(Path(checkpoint).name.rpartition("-")[2]) if checkpoint else 0


def finish(trainer: "Trainer", folder: Path, logged: Sequence[str]) -> pd.DataFrame:
    """The log of a training that is over, also as ``folder/log.csv``; its checkpoints are removed.

    Args:
        logged: columns. Only rows with a loss count; the trainer adds one about the whole training.
    """
    log = pd.DataFrame([row for row in trainer.state.log_history if "loss" in row])[list(logged)]
    if trainer.is_world_process_zero():
        write_aside(folder / "log.csv", log.to_csv(index=False, lineterminator="\n"))
        shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    return log


def watch(what: str) -> "TrainerCallback":
    """A progress bar named ``what``, and an end to a training whose loss is no number any more.

    Raises (while training):
        FloatingPointError: the loss is infinite or not a number.
    """
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            off = not state.is_world_process_zero
            self.bar = progress(total=state.max_steps, desc=what, unit="step", disable=off)
            self.bar.update(state.global_step)

        def on_step_end(self, args, state, control, **_):
            self.bar.update()

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
