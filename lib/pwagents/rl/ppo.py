"""PPO on whole episodes: the baseline that Orion compares GRPO with (section 5.1).

A loop of our own, for TRL has none any more: play a step's episodes, let the critic say what it expected
before each token, estimate advantages (GAE), update the policy within the clip range, fit the critic. Start,
episodes, reward and token budget are GRPO's (:mod:`pwagents.rl.grpo`), and so are folder and log.

Departures: Orion gives no settings for PPO beyond clip range, temperatures and reward. The probabilities at
sampling are the rollouts' own; the critic reads the policy's hidden states and is fitted to them apart.
Nothing is compared within a task, so equally many episodes serve better as one of each of many tasks
(``num_generations`` 1): from a few tasks the critic learns by heart how these ended, and says nothing true
of the next step's.

GAE's lambda is 1 unless asked otherwise. Below 1 a reward reaches back about 1 / (1 - lambda) tokens by
itself, farther only through the critic; as long as the critic foresees nothing, that is a discount, and a
policy learns within a few steps to ask less, for questions make the way to the reward longer.
"""

import copy
import math
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.cache import seal
from pwagents.lm.load import load_model, with_adapter
from pwagents.lm.trainer import checkpoint_step
from pwagents.progress import progress
from pwagents.rl.log import RunLog
from pwagents.rl.ppo_loss import estimate_advantages, fit_critic, make_critic, policy_loss
from pwagents.rl.rollout import (
    Evaluate,
    Play,
    Played,
    StepRewards,
    pad_rollouts,
    play_batch,
    summarize,
    tasks_in_order,
)
from pwagents.rl.run import open_run, save_policy
from pwagents.rl.scoring import add_scoring
from pwagents.rl.settings import PpoSettings
from pwagents.schema import Task
from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    import torch


def train_ppo(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[Task],
    play: Play,
    rewards: StepRewards,
    config: PpoSettings,
    folder: Path | str,
    evaluate: Evaluate | None = None,
) -> Path:
    """Train a policy by PPO; a run that was killed goes on from its last checkpoint.

    Arguments, result and errors are those of :func:`pwagents.rl.grpo.train_grpo`. The log has
    ``explained`` besides: the share of the returns' variance that the critic foresaw.
    """
    folder = Path(folder).resolve()
    checkpoint, log = open_run(folder, "ppo", config, tasks)
    if (folder / "model").exists():
        return folder / "model"
    first = checkpoint_step(checkpoint)
    learner = _Learner(with_adapter(load_model(model, config), config), config, folder)
    if checkpoint:
        learner.accelerator.load_state(checkpoint)
    elif evaluate and config.evaluates_after(0) and not log.has_first:
        learner.write(log, {"step": 0, **learner.evaluate(evaluate)})
    ordered = tasks_in_order(tasks, config)
    hidden = not learner.accelerator.is_main_process
    steps = range(first, config.max_steps)
    bar = progress(steps, initial=first, total=config.max_steps, desc="PPO", disable=hidden)
    for step in bar:
        start, done = time.perf_counter(), step + 1
        prompts = ordered[step * config.prompts_per_step :][: config.prompts_per_step]
        row = {"step": done, **learner.step(prompts, play, rewards, step)}
        row["seconds"] = time.perf_counter() - start
        if evaluate and config.evaluates_after(done):
            row |= learner.evaluate(evaluate)
        learner.write(log, row)
        bar.set_postfix(reward=f"{row['reward']:.2f}", refresh=False)
        if config.save_steps and done % config.save_steps == 0:
            learner.save(folder, done)
    save_policy(learner.accelerator, learner.policy, tokenizer, folder / "model")
    learner.accelerator.end_training()
    return folder / "model"


class _Batch(NamedTuple):
    """One step's episodes as the update needs them; all but the first two are (tokens learned from, ...)."""

    ids: "torch.Tensor"
    scored: "torch.Tensor"
    temperatures: "torch.Tensor"  # (episodes,)
    old: "torch.Tensor"
    advantages: "torch.Tensor"
    reference: "torch.Tensor | None"


class _Learner:
    """Policy, critic and their optimizers, placed where they compute."""

    def __init__(self, policy: Any, config: PpoSettings, folder: Path):
        import torch
        from accelerate import Accelerator
        from accelerate.utils import set_seed
        from transformers import get_scheduler

        on_gpu = torch.cuda.is_available()
        tracker = None if config.report_to == "none" else config.report_to
        precision = "bf16" if config.bf16 and on_gpu else "no"
        self.config = config
        self.accelerator = Accelerator(
            cpu=not on_gpu, mixed_precision=precision, log_with=tracker, project_dir=str(folder)
        )
        if tracker:
            self.accelerator.init_trackers("pwagents")
        if config.prompts_per_step % self.accelerator.num_processes:
            n = self.accelerator.num_processes
            raise ValueError(f"{config.prompts_per_step} prompts a step do not divide among {n} processes")
        set_seed(derive_seed(config.seed, "trainer") % 2**32)
        if config.bf16:
            policy.activation_checkpointing_enable()
        # What is not trained is the same in both, and held once.
        frozen = {id(weights): weights for weights in policy.parameters() if not weights.requires_grad}
        reference = copy.deepcopy(policy, frozen).eval() if config.beta else None
        add_scoring(policy)
        adam = partial(torch.optim.AdamW, weight_decay=0.0, fused=on_gpu)
        trained = [p for p in policy.parameters() if p.requires_grad]
        optimizer = adam(trained, lr=config.learning_rate)
        critic = make_critic(policy.config.hidden_size)
        critic_optimizer = adam(critic.parameters(), lr=config.value_learning_rate)
        share = config.max_steps if config.warmup_steps < 1 else 1
        warmup = math.ceil(config.warmup_steps * share)
        schedule = get_scheduler(config.lr_scheduler_type, optimizer, warmup, config.max_steps)
        prepare = self.accelerator.prepare
        self.policy, self.optimizer = prepare(policy, optimizer)
        self.critic, self.critic_optimizer = prepare(critic, critic_optimizer)
        self.schedule = schedule
        self.accelerator.register_for_checkpointing(schedule)
        self.reference = None
        if reference is not None:
            add_scoring(reference)
            self.reference = reference.to(self.accelerator.device)

    def step(self, prompts: Sequence[Task], play: Play, rewards: StepRewards, step: int) -> dict[str, float]:
        """Play, estimate, update, fit; the row of the log."""
        rank, share = self.accelerator.process_index, len(prompts) // self.accelerator.num_processes
        mine = prompts[rank * share :][:share]
        tasks = [task for task in mine for _ in range(self.config.num_generations)]
        seed = derive_seed(self.config.seed, "rollouts", str(step), str(rank))
        played = play_batch(self.accelerator.unwrap_model(self.policy), tasks, play, rewards, seed)
        batch, features, returns = self._look_back(played, tasks)
        means = summarize(played) | self._update_policy(batch)
        explained = fit_critic(
            self.accelerator, self.critic, self.critic_optimizer, features, returns, self.config, seed
        )
        return self._mean_over_processes(means | {"explained": explained})

    def _look_back(self, played: Played, tasks: Sequence[Task]):
        """What critic and reference say to the episodes before the policy moves."""
        import torch

        device = self.accelerator.device
        ids, scored, old = pad_rollouts(played.rollouts, device)
        temperatures = torch.tensor([self.config.temperature_of(t.type) for t in tasks], device=device)
        self.policy.eval()  # as it was when it sampled: no dropout of an adapter
        features, reference = [], []
        with torch.no_grad():
            for rows in torch.arange(len(ids), device=device).split(self.config.per_device_train_batch_size):
                part = (ids[rows], scored[rows], temperatures[rows])
                features.append(self.policy(part[0], scored=part[1], temperatures=part[2])[2].float())
                if self.reference is not None:
                    reference.append(self.reference(part[0], scored=part[1], temperatures=part[2])[0])
            features = torch.cat(features)
            values = self.critic(features)[:, 0]
        self.policy.train()
        advantages, returns = estimate_advantages(played, values, self.config)
        # Over the whole step, as PPO is mostly run, and not within a task: so whether all episodes of a task
        # went well still counts.
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        known = torch.cat(reference) if reference else None
        return _Batch(ids, scored, temperatures, old, advantages, known), features, returns

    def _update_policy(self, batch: _Batch) -> dict[str, float]:
        """``epochs`` updates, each over all episodes; numbers of the last one."""
        for _ in range(self.config.epochs):
            numbers = self._update_once(batch)
        self.schedule.step()
        return numbers

    def _update_once(self, batch: _Batch) -> dict[str, float]:
        import torch

        accelerator, config = self.accelerator, self.config
        n = int(batch.scored.sum())
        # Gradients are averaged over processes, so each one's sum is divided by the mean number of tokens.
        mean_n = float(accelerator.reduce(torch.tensor(float(n), device=batch.ids.device), "mean"))
        sums, done = {"loss": 0.0, "entropy": 0.0, "kl": 0.0, "clip_fraction": 0.0}, 0
        chunks = torch.arange(len(batch.ids), device=batch.ids.device).split(
            config.per_device_train_batch_size
        )
        for i, rows in enumerate(chunks):
            tokens = slice(done, done + int(batch.scored[rows].sum()))
            done = tokens.stop
            last = i == len(chunks) - 1
            with nullcontext() if last else accelerator.no_sync(self.policy):
                logprobs, entropies, _ = self.policy(
                    batch.ids[rows], scored=batch.scored[rows], temperatures=batch.temperatures[rows]
                )
                reference = batch.reference[tokens] if batch.reference is not None else None
                found = policy_loss(
                    logprobs, entropies, batch.old[tokens], batch.advantages[tokens], reference, config
                )
                accelerator.backward(found.loss / mean_n)
            sums["loss"] += float(found.loss.detach())
            sums["entropy"] += float(entropies.detach().sum())
            sums["kl"] += found.kl
            sums["clip_fraction"] += found.clipped
        norm = accelerator.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        rate = self.schedule.get_last_lr()[0]
        return {name: value / n for name, value in sums.items()} | {
            "grad_norm": float(norm),
            "learning_rate": rate,
        }

    def evaluate(self, evaluate: Evaluate) -> dict[str, float]:
        model = self.accelerator.unwrap_model(self.policy)
        model.eval()
        found = evaluate(model)
        model.train()
        return {f"eval_{name}": value for name, value in found.items()}

    def write(self, log: RunLog, row: dict[str, float]) -> None:
        if self.accelerator.is_main_process:
            log.append(row)
        self.accelerator.log({k: v for k, v in row.items() if k != "step"}, step=row["step"])

    def save(self, folder: Path, step: int) -> None:
        """Write a checkpoint beside its place and move it there; then the one before it may go."""
        checkpoint = folder / f"checkpoint-{step}"
        aside = folder / f".{checkpoint.name}"  # the same in all processes: each adds its part
        self.accelerator.save_state(str(aside), safe_serialization=False)  # tied weights stay tied
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            seal(aside)
            os.replace(aside, checkpoint)
            for old in set(folder.glob("checkpoint-*")) - {checkpoint}:
                shutil.rmtree(old)
        self.accelerator.wait_for_everyone()

    def _mean_over_processes(self, means: dict[str, float]) -> dict[str, float]:
        import torch

        values = torch.tensor(list(means.values()), dtype=torch.float64, device=self.accelerator.device)
        values = self.accelerator.reduce(values, "mean")
        return dict(zip(means, values.tolist(), strict=True))
