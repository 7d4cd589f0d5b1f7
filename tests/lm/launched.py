"""What two processes do in the tests, one after another, as they take long to begin. The last one fails."""

from pathlib import Path

from pwagents.lm.dpo import prefer
from pwagents.lm.sft import fine_tune
from pwagents.rl.settings import GrpoSettings
from pwagents.rl.train import train_policy

from ..rl.game import make_tasks, make_tokenizer, pay_cue, play_cue
from . import tiny

# Of one length, so that shares of a batch weigh the same in any split.
ROWS = [{"input_ids": [50 + i] * 4 + [60 + i] * 4, "labels": [-100] * 4 + [60 + i] * 4} for i in range(8)]
PAIRS = [{"prompt": "red mug", "chosen": "yoga", "rejected": "lamp"}] * 4
GAME = GrpoSettings(
    max_steps=2, prompts_per_step=2, num_generations=4, per_device_train_batch_size=4, eval_steps=2
)


def train_all(base: Path, start: Path, folder: Path, size: int) -> None:
    """Train in a folder, with batches of ``size`` a process."""
    fine_tune(base, ROWS, tiny.sft(max_steps=3, per_device_train_batch_size=size), folder / "sft")
    prefer(base, PAIRS, tiny.dpo(max_steps=4, per_device_train_batch_size=size), folder / "dpo")
    if size == 1:
        train_policy(
            start, make_tokenizer(), make_tasks(4), play_cue, pay_cue, GAME, folder / "run", vocabulary
        )
        fine_tune(base, [], tiny.sft(), folder / "nothing")


def vocabulary(model) -> dict[str, float]:
    return {"vocabulary": float(model.config.vocab_size)}
