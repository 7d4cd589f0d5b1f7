"""TRL's GRPOTrainer, fed with episodes (TRL 1.16). Importing this imports TRL."""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from pwagents.progress import progress
from pwagents.rl.advantages import group_advantages, token_advantages
from pwagents.rl.log import RunLog, complete_checkpoint
from pwagents.rl.rollout import Evaluate, Play, Played, StepRewards, loss_mask, play_batch, summarize
from pwagents.rl.scoring import add_scoring
from pwagents.rl.settings import GrpoSettings, tasks_in_order
from pwagents.schema import Task
from pwagents.seeds import derive_seed

_LOGGED = {  # TRL's name -> ours
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/region_mean": "clip_fraction",
}


class EpisodeTrainer(GRPOTrainer):
    """GRPO on whole episodes.

    Three things differ from TRL's trainer: episodes come from ``play`` (its ``rollout_func``); advantages are
    ours, one a token; log-probabilities are computed for sampled tokens alone, each at its task's
    temperature (TRL computes them for every token of a batch on a CPU, which takes several times as long as
    all the rest).
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        tasks: Sequence[Task],
        play: Play,
        rewards: StepRewards,
        config: GrpoSettings,
        log: RunLog,
        evaluate: Evaluate | None,
    ):
        self.tasks = {task.task_id: task for task in tasks}
        self.play, self.rewards, self.config, self.evaluate_model = play, rewards, config, evaluate
        # One row a task and step, in order: TRL shuffles nothing, and a resumed run skips the first rows.
        rows = Dataset.from_dict({"prompt": [task.task_id for task in tasks_in_order(tasks, config)]})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*'rollout_func'", UserWarning)
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # TRL's own use
            super().__init__(
                model=model,
                reward_funcs=self._episode_return,
                args=grpo_arguments(config, log.path.parent),
                train_dataset=rows,
                processing_class=tokenizer,
                rollout_func=lambda prompts, trainer: trainer.roll_out(prompts),
                callbacks=[_LogCallback(self, log)],
            )
        self.remove_callback(PrinterCallback)
        for scorer in (self.model, self.ref_model):
            if scorer is not None:
                add_scoring(scorer)

    def train(self, *arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # TRL's own use
            return super().train(*arguments, **options)

    def roll_out(self, prompts: list[str]) -> dict[str, list]:
        """The episodes of some task ids, as tokens for TRL. All chance depends on the seed and the step."""
        names = ("rollouts", str(self.state.global_step), str(self.accelerator.process_index))
        seed = derive_seed(self.config.seed, *names)
        torch.manual_seed(seed)  # TRL shuffles the episodes
        tasks = [self.tasks[task_id] for task_id in prompts]
        with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as model:
            player = self.vllm_generation.llm if self.use_vllm else model
            self.played = play_batch(player, tasks, self.play, self.rewards, seed)
        rollouts = self.played.rollouts
        masks = [loss_mask(rollout) for rollout in rollouts]
        self._scored = _pad(masks).bool().to(self.accelerator.device)
        self._temperatures = torch.tensor([self.config.temperature_of(task.type) for task in tasks])
        return {
            "prompt_ids": [rollout.prompt_ids for rollout in rollouts],
            "completion_ids": [rollout.completion_ids for rollout in rollouts],
            "logprobs": [rollout.logprobs for rollout in rollouts],
            "env_mask": masks,
            "episode_return": [sum(steps) for steps in self.played.rewards],
        }

    def _episode_return(self, episode_return: list[float], log_metric: Any, **_: Any) -> list[float]:
        """TRL's reward function; the episodes' means go to the log with it."""
        self.means = summarize(self.played)
        for name, value in self.means.items():
            log_metric(name, value)  # TRL takes the mean over processes
        return episode_return

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        advantages = _pad(_advantages(self.played, self.config))
        return batch | {
            "advantages": advantages.to(self.accelerator.device),
            "temperatures": self._temperatures,
        }

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._scored = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        self._temperatures = inputs["temperatures"]
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **_
    ):
        """Log-probabilities and entropies (episodes, completion tokens); 0 where nothing is learned."""
        scored = torch.cat([torch.zeros_like(input_ids[:, :-logits_to_keep]).bool(), self._scored], dim=1)
        temperatures = self._temperatures.to(input_ids.device)
        results = []
        for rows in torch.arange(len(input_ids)).split(batch_size or len(input_ids)):
            results.append(
                _score_rows(model, input_ids[rows], attention_mask[rows], scored[rows], temperatures[rows])
            )
        logprobs, entropies = (
            torch.cat(column)[:, -logits_to_keep:] for column in zip(*results, strict=True)
        )
        return logprobs, entropies, None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:  # not the summary at the end
            logs["seconds"] = time.perf_counter() - self.step_start
            if self.evaluate_model and self.config.evaluates_after(self.state.global_step):
                logs |= self.evaluate_now()
        super().log(logs, start_time)

    def evaluate_now(self) -> dict[str, float]:
        with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as model:
            was_training = model.training
            found = self.evaluate_model(model)
            model.train(was_training)
        return {f"eval_{name}": value for name, value in found.items()}

    def _send_telemetry(self) -> None:
        """TRL would send usage data."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Checkpoints have none; the trained model's card is not TRL's business."""


def grpo_arguments(config: GrpoSettings, folder: Path) -> GRPOConfig:
    """The settings in TRL's words: one optimizer step a batch of episodes, all of them fresh."""
    from accelerate import PartialState

    on_gpu = torch.cuda.is_available()
    processes = PartialState(cpu=not on_gpu).num_processes
    here, group = config.episodes // processes, config.num_generations
    if config.prompts_per_step % processes:
        raise ValueError(
            f"{config.prompts_per_step} prompts a step do not divide among {processes} processes"
        )
    most = min(config.per_device_train_batch_size, here)
    micro = next(size for size in range(most, 0, -1) if here % size == 0)
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=config.max_steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=here // micro,
        steps_per_generation=here // micro,
        num_generations=group,
        num_iterations=1,
        shuffle_dataset=False,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.lr_scheduler_type,
        warmup_steps=config.warmup_steps,
        weight_decay=0.0,
        optim=config.optim,
        max_grad_norm=config.max_grad_norm,
        epsilon=config.epsilon,
        beta=config.beta,
        entropy_coef=config.entropy_coef,
        temperature=config.temperature,
        loss_type=config.loss_type,
        logging_steps=1,
        save_strategy="steps" if config.save_steps else "no",
        save_steps=config.save_steps or 1,
        seed=derive_seed(config.seed, "trainer") % 2**32,
        report_to=config.report_to,
        disable_tqdm=True,
        use_cpu=not on_gpu,
        bf16=config.bf16 and on_gpu,
        activation_checkpointing=config.gradient_checkpointing,
        max_completion_length=config.vllm_max_model_length,
        use_vllm=config.use_vllm,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=config.vllm_gpu_memory_utilization,
        vllm_max_model_length=config.vllm_max_model_length,
        vllm_importance_sampling_mode="token_truncate",
    )


def _advantages(played: Played, config: GrpoSettings) -> list[list[float]]:
    """One advantage a completion token of each rollout. The episodes of a task stand in a row."""
    advantages = []
    for i in range(0, len(played.rollouts), config.num_generations):
        group = slice(i, i + config.num_generations)
        per_step = group_advantages(played.rewards[group], config.credit, config.gamma, config.scale_rewards)
        advantages += map(token_advantages, played.rollouts[group], per_step)
    return advantages


def _pad(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def _score_rows(model, ids, attention_mask, scored, temperatures):
    """Score rows that are padded on both sides; log-probabilities and entropies of ``ids``' shape."""
    order = (1 - attention_mask).sort(dim=1, stable=True).indices  # tokens first, padding last
    width = int(attention_mask.sum(1).max())
    packed = [part.gather(1, order)[:, :width] for part in (ids, scored)]
    found = model(packed[0], scored=packed[1], temperatures=temperatures)
    return [torch.zeros(ids.shape, device=ids.device).masked_scatter(scored, values) for values in found[:2]]


class _LogCallback(TrainerCallback):
    """Writes the log, shows the progress, declares checkpoints complete."""

    def __init__(self, trainer: EpisodeTrainer, log: RunLog):
        self.trainer, self.rows = trainer, log

    def on_train_begin(self, args, state, control, **_):
        trainer = self.trainer
        if trainer.evaluate_model and trainer.config.evaluates_after(0) and not self.rows.has_first:
            found = trainer.evaluate_now()
            if state.is_world_process_zero:
                self.rows.append({"step": 0, **found})
        hidden = not state.is_world_process_zero
        self.bar = progress(total=args.max_steps, initial=state.global_step, desc="GRPO", disable=hidden)

    def on_step_begin(self, args, state, control, **_):
        self.trainer.step_start = time.perf_counter()

    def on_log(self, args, state, control, logs, **_):
        if "loss" not in logs or not state.is_world_process_zero:
            return
        row = {"step": state.global_step} | {name: logs[name] for name in self.trainer.means}
        row |= {"kl": 0.0} | {ours: logs[theirs] for theirs, ours in _LOGGED.items() if theirs in logs}
        row["seconds"] = logs["seconds"]
        row |= {name: value for name, value in logs.items() if name.startswith("eval_")}
        self.rows.append(row)
        self.bar.set_postfix(reward=f"{row['reward']:.2f}", refresh=False)
        self.bar.update(1)

    def on_save(self, args, state, control, **_):
        if state.is_world_process_zero:
            complete_checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_train_end(self, args, state, control, **_):
        self.bar.close()
