"""What a step of GRPO and of PPO costs beside the plainest loop, on a CPU.

    .venv/bin/python benchmarks/rl_step.py [--episodes 64]

About two minutes on one core. The small model gets random episodes of about 270 tokens, of which it wrote
70, eight after each prompt; playing them takes no time, so what is measured is the trainer alone. Compare the
ratios. "plain loop": forward over padded episodes, backward and AdamW, written out. GRPO and PPO read no
padding and each prompt once (a usual step of PPO has one episode a prompt, and gains less). "TRL's
log-probabilities": GRPO with TRL's in place of ours.
"""

import argparse
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import torch

from pwagents.lm.small import make_small_model
from pwagents.orion.base import base_tokenizer
from pwagents.portable import one_core
from pwagents.rl.grpo import train_grpo
from pwagents.rl.log import read_rows
from pwagents.rl.ppo import train_ppo
from pwagents.rl.rollout import Rollout, pad_rollouts
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory
from pwagents.seeds import rng
from pwagents.web.environment import BeliefState

STEPS = 5  # the first one warms up and is left out
TURNS = 4
MICRO_BATCH = 16
GROUP = 8  # episodes of a task
_SCORING = "_get_per_token_logps_and_entropies"


def measure_steps(episodes: int) -> pd.DataFrame:
    """Seconds of a step (the fastest), and how that compares with the plain loop."""
    from trl import GRPOTrainer

    from pwagents.rl.grpo_trainer import EpisodeTrainer

    tokenizer = base_tokenizer()
    rollouts = [_rollout(i, len(tokenizer)) for i in range(episodes)]
    shared = {"max_steps": STEPS, "prompts_per_step": episodes // GROUP, "save_steps": 0}
    shared |= {"per_device_train_batch_size": MICRO_BATCH}
    seconds = {"plain loop": _plain_loop(make_small_model(tokenizer, 0), rollouts)}
    grpo = GrpoSettings(**shared, num_generations=GROUP)
    seconds["GRPO"] = _train(train_grpo, tokenizer, rollouts, grpo)
    seconds["PPO, one pass"] = _train(train_ppo, tokenizer, rollouts, PpoSettings(**shared))
    with patch.object(EpisodeTrainer, _SCORING, getattr(GRPOTrainer, _SCORING)):
        seconds["GRPO, TRL's log-probabilities"] = _train(train_grpo, tokenizer, rollouts, grpo)
    frame = pd.DataFrame({"seconds_per_step": seconds})
    return frame.assign(ratio=frame["seconds_per_step"] / seconds["plain loop"])


def _train(trainer, tokenizer, rollouts: list[Rollout], config) -> float:
    """Seconds of a step without playing, the fastest."""
    chance = rng(0, "rewards")
    with tempfile.TemporaryDirectory() as folder:
        trainer(
            make_small_model(tokenizer, 0),
            tokenizer,
            [_task(i) for i in range(config.prompts_per_step)],
            lambda model, tasks, seed: rollouts,
            lambda states, trajectory: list(chance.random(TURNS)),
            config,
            Path(folder) / "run",
        )
        rows = read_rows(Path(folder) / "run" / "log.jsonl")
    return float(min([row["seconds"] - row["rollout_seconds"] for row in rows[1:]]))


def _plain_loop(model, rollouts: list[Rollout]) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    parts = [pad_rollouts(rollouts[i : i + MICRO_BATCH], "cpu") for i in range(0, len(rollouts), MICRO_BATCH)]
    total, seconds = sum(len(part.old) for part in parts), []
    for _ in range(STEPS):
        start = time.perf_counter()
        for part in parts:
            hidden = model.model(part.ids, use_cache=False).last_hidden_state[:, :-1][part.scored[:, 1:]]
            told = part.ids[part.scored][:, None]
            logprobs = model.lm_head(hidden).log_softmax(-1).gather(-1, told)
            (-(logprobs * torch.randn(logprobs.shape)).sum() / total).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return float(min(seconds[1:]))


def _rollout(i: int, vocabulary: int) -> Rollout:
    """Random tokens: the group's prompt of 80 to 120, then four turns of 12 to 23, answered by 20 to 39."""
    chance, groups = rng(i, "rollout"), rng(i // GROUP, "prompt")
    prompt = groups.integers(3, vocabulary, groups.integers(80, 121)).tolist()
    mask, turns = [], []
    for turn in range(TURNS):
        said, heard = chance.integers(12, 24), chance.integers(20, 40) * (turn + 1 < TURNS)
        mask += [1] * said + [0] * heard
        turns += [turn] * (said + heard)
    completion = chance.integers(3, vocabulary, len(mask)).tolist()
    step = Step(action=Action(name="respond"), observation=Observation(text="."))
    trajectory = Trajectory(
        task_id=f"t{i // GROUP}", user_id="u", type="search", target="B1", steps=(step,) * TURNS
    )
    states = (BeliefState("u", "go", "go", None, ()),) * TURNS
    return Rollout(prompt, completion, mask, [-7.0 * m for m in mask], turns, states, trajectory)


def _task(i: int) -> Task:
    return Task(
        task_id=f"t{i}",
        user_id="u",
        type="search",
        timestamp=1,
        instruction="go",
        target="B1",
        review=Review(rating=5),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64, help=f"a step; a multiple of {GROUP}")
    with one_core():
        print(measure_steps(parser.parse_args().episodes).round(2).to_string())
