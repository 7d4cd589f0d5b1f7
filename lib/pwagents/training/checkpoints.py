"""What trainings by transformers' Trainer need beside it: whole checkpoints, a bar, a watch on the loss."""

import json
import logging
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pwagents.progress import progress

if TYPE_CHECKING:
    from transformers import TrainerCallback


def last_checkpoint(folder: Path) -> str | None:
    """The last checkpoint written to its end, for ``resume_from_checkpoint``; broken ones are removed.

    Trainers write their state last. A folder without checkpoints gives None: a training from the beginning.
    """
    found = {int(path.name.split("-")[1]): path for path in folder.glob("checkpoint-*") if path.is_dir()}
    for step in sorted(found, reverse=True):
        try:
            json.loads((found[step] / "trainer_state.json").read_text("utf-8"))
            return str(found[step])
        except (OSError, ValueError):
            shutil.rmtree(found[step])
    return None


def watch(what: str) -> "TrainerCallback":
    """A progress bar named ``what``, and an end to a training whose loss is no number any more.

    Raises (while training):
        FloatingPointError: the loss is infinite or not a number.
    """
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            logging.getLogger("transformers.trainer_utils").addFilter(_no_word_on_mtime)
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


def _no_word_on_mtime(record: logging.LogRecord) -> bool:
    """Checkpoints of a fast training are no second apart; transformers then goes by their numbers."""
    return "mtime may not be reliable" not in record.getMessage()
