"""GRPO and PPO on whole episodes, in one loop (Orion, 4.3 and Algorithm 1; PPO is the baseline of its 5.1).

A step plays episodes, pays them, turns rewards into an advantage of each sampled token, and updates the
policy by the clipped loss, once by each of ``minibatches`` parts of its episodes. GRPO compares the
episodes of one task with each other (Guo et al. 2025), PPO each token's outcome with what a critic foresaw
(Schulman et al. 2017). All else is the same: start, episodes, reward, loss, folder, log.

Where we depart from the papers:

1. Orion trains by veRL and prints no learning rate, number of updates or critic for it; ours are settings,
   and constants of :mod:`pwagents.rl.learner`.
2. The loss is the mean over a part's sampled tokens, not over episodes.
3. PPO's critic reads the policy's hidden states and is fitted to them apart, to what was really still to
   come (:class:`pwagents.rl.learner.Critic`).
4. Nothing is compared within a task by PPO, so equally many episodes serve better as one of each of many
   tasks (``num_generations`` 1): from a few tasks the critic learns by heart how these ended.
5. GAE's lambda is 1, and nothing is discounted. Below 1 a reward reaches back about 1 / (1 - lambda) tokens
   by itself, farther only through the critic. As long as that foresees nothing, this is a discount:
   questions make the way to the reward longer, so they cost.

With one update a step the ratio is 1 and the clipping never acts; ``clip_fraction`` says so.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.lm.launch import launch
from pwagents.lm.load import quiet
from pwagents.lm.train import checkpoint_step
from pwagents.progress import progress
from pwagents.rl.advantages import critic_advantages, token_advantages
from pwagents.rl.draw import Stream, draw_groups
from pwagents.rl.learner import Learner, make_accelerator
from pwagents.rl.log import append_row, open_log
from pwagents.rl.rollout import Game, summarize
from pwagents.seeds import derive_seed, rng
from pwagents.settings import GrpoSettings, PpoSettings


@quiet()
def train_policy(
    model: Any, tokenizer: Any, game: Game, config: GrpoSettings | PpoSettings, folder: Path
) -> None:
    """Train a policy by GRPO or PPO, as ``config`` says; a killed run goes on from its last checkpoint.

    It leaves the log (:func:`pwagents.rl.log.read_curves`) and, in ``folder/model``, the trained model with
    its tokenizer. Where that stands already, nothing is trained.

    Args:
        model: a folder, or a model, which is then trained in place (peft's adapters may be on it), in this
            process alone. From a folder, other processes may train, which get the game by pickle.
        tokenizer: the model's.
        game: every ``eval_steps`` its evaluation joins the log as ``eval_<name>``.
        folder: of this run alone, as :func:`pwagents.store.made` gives it.

    Raises:
        RuntimeError: training diverged.
        ValueError: no tasks, settings that do not go together, or a rollout that contradicts itself.
        ValueError, LaunchError: see :func:`~pwagents.lm.launch.launch`.
    """
    import torch

    folder = Path(folder).resolve()
    given = {"model": model, "tokenizer": tokenizer, "game": game, "config": config, "folder": folder}
    if (folder / "model").exists():  # killed since
        _drop_checkpoints(folder)
        return
    if isinstance(model, Path) and launch(train_policy, given, config.n_gpus, config.sharding):
        return
    accelerator = make_accelerator(config)
    rank, main = accelerator.process_index, accelerator.is_main_process
    share = config.prompts_per_step // accelerator.num_processes
    stream = Stream(game.tasks, getattr(config, "draws", 1), config.seed)
    # One process removes broken checkpoints and rows; the others then find all in order.
    with accelerator.main_process_first():
        checkpoint, rows = open_log(folder)

    def write(row: dict[str, float]) -> None:
        if main:
            append_row(folder, row)

    learner = Learner(model, config, accelerator)
    if checkpoint:
        accelerator.load_state(checkpoint, strict=False)  # what is not trained is not in it
    elif config.eval_steps and not rows:
        write({"step": 0} | learner.evaluate(game, tokenizer))
    first, method = checkpoint_step(checkpoint), "PPO" if learner.critic else "GRPO"
    steps = range(first, config.max_steps)
    bar = progress(steps, initial=first, total=config.max_steps, desc=method, disable=not main)
    for step in bar:
        # Play each task of the step several times in a row, and pay: R_t of each step of each episode. Draw
        # groups anew that teach nothing; those that still do are left out.
        start, done, n = time.perf_counter(), step + 1, config.num_generations
        slots = range(step * config.prompts_per_step, done * config.prompts_per_step)[rank * share :][:share]
        seed = derive_seed(config.seed, "rollouts", str(step), str(rank))
        drawn = draw_groups(game, learner.player, tokenizer, stream, slots, config, seed)
        row, counts = summarize(drawn.first), drawn.counts
        row["rollout_seconds"] = time.perf_counter() - start

        if rollouts := [rollout for group in drawn.groups for rollout in group.rollouts]:
            # Look back at what was sampled before the policy moves. The old log-probabilities of the ratio
            # are the trainer's own; one update of fresh episodes computes them itself.
            look = learner.look_back(rollouts)

            # Compare each episode with the others of its task, or each token's outcome with the critic's
            # value.
            if learner.critic:
                values = learner.critic.values(learner.features).cpu()
                advantages, returns = critic_advantages(drawn.groups, values)
            else:
                advantages = token_advantages(drawn.groups, config, seed)
            advantages = look.spread(advantages)
            for kind in stream.kinds:
                own = torch.tensor([rollout.trajectory.type == kind for rollout in rollouts])
                counts[f"moved_{kind}"] = int(advantages[own].ne(0).sum())  # tokens

            # Update the policy: several times where the settings say so. Episodes of a task stay together.
            groups, order = torch.arange(len(rollouts)).view(-1, n), range(len(drawn.groups))  # a task each
            if config.minibatches > 1:
                chance = rng(config.seed, "minibatches", str(step), "0", str(rank))
                order = chance.permutation(len(drawn.groups))
            parts = groups[list(order)].tensor_split(config.minibatches)
            numbers = pd.DataFrame([learner.update(look, advantages, part) for part in parts if len(part)])
            row |= numbers.drop(columns="cosine").mean(skipna=False).to_dict()
            cosines = numbers["cosine"].dropna()
            row |= {"cosine": cosines.mean()} if len(cosines) else {}
        row["learning_rate"] = learner.schedule.get_last_lr()[0]
        learner.schedule.step()
        if learner.critic:
            row["explained"] = learner.critic.fit(learner.features, returns, seed)
        # Of a count, the mean over processes of as many times their own is the sum.
        row |= {name: count * accelerator.num_processes for name, count in counts.items()}

        # Log, evaluate, save.
        means = torch.tensor(list(row.values()), dtype=torch.float64, device=accelerator.device)
        row = {"step": done} | dict(zip(row, accelerator.reduce(means, "mean").tolist(), strict=True))
        row["seconds"] = time.perf_counter() - start
        if config.eval_steps and (done % config.eval_steps == 0 or done == config.max_steps):
            row |= learner.evaluate(game, tokenizer)
        write(row)
        bar.set_postfix(reward=f"{row['reward']:.2f}", refresh=False)
        if config.save_steps and done % config.save_steps == 0:
            learner.save_checkpoint(folder / f"checkpoint-{done}")
    learner.save(tokenizer, folder / "model")
    if main:
        _drop_checkpoints(folder)


def _drop_checkpoints(folder: Path) -> None:
    """Remove checkpoints, also those that are half written or damaged."""
    for checkpoint in folder.glob("*checkpoint-*"):
        shutil.rmtree(checkpoint)
