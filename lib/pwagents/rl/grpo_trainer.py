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
from trl.trainer.utils import split_tensor_dict

from pwagents.lm.trainer import Silent, seal_checkpoint
from pwagents.progress import progress
from pwagents.rl.advantages import step_advantages, token_advantages
from pwagents.rl.log import RunLog
from pwagents.rl.rollout import (
    Evaluate,
    Play,
    StepRewards,
    loss_mask,
    play_batch,
    summarize,
    tasks_in_order,
)
from pwagents.rl.scoring import add_scoring
from pwagents.rl.settings import GrpoSettings
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
_SAME = (  # settings that TRL takes as they are
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "optim",
    "report_to",
    "max_steps",
    "num_generations",
    "max_grad_norm",
    "epsilon",
    "beta",
    "entropy_coef",
    "temperature",
    "loss_type",
    "use_vllm",
    "vllm_gpu_memory_utilization",
    "vllm_max_model_length",
)


class EpisodeTrainer(Silent, GRPOTrainer):
    """GRPO on whole episodes.

    What is overridden, in the order in which a step calls it, and why:

    - ``rollout_func`` (a setting of TRL's): episodes come from ``play``.
    - ``_prepare_inputs``: TRL shuffles the episodes before it takes them some at a time; here the episodes of
      a task stay together, and their prompt is read once.
    - ``_generate_and_score_completions``: TRL has one advantage an episode; ours are one a token, so that a
      turn can have its own, and not divided where that is asked for.
    - ``_get_per_token_logps_and_entropies``: TRL computes logits of every token and at one temperature. Here
      only sampled tokens are scored, each at its task's temperature; on a CPU TRL's way takes several times
      as long as all the rest.
    - ``_compute_loss``: tells the method above which tokens these are, and which episodes move the policy.
    - ``log``: joins evaluations and seconds to TRL's numbers.
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
            warnings.filterwarnings("ignore", ".*'rollout_func'", UserWarning)  # experimental, as TRL says
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

    def roll_out(self, prompts: list[str]) -> dict[str, list]:
        """The episodes of some task ids, as tokens for TRL. All chance depends on the seed and the step."""
        names = ("rollouts", str(self.state.global_step), str(self.accelerator.process_index))
        seed = derive_seed(self.config.seed, *names)
        tasks = [self.tasks[task_id] for task_id in prompts]
        with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as model:
            player = self.vllm_generation.llm if self.use_vllm else model
            self.played = play_batch(player, tasks, self.play, self.rewards, seed)
        rollouts = self.played.rollouts
        masks = [loss_mask(rollout) for rollout in rollouts]
        self._scored = _pad(masks).bool().to(self.accelerator.device)
        self._moves = torch.ones(len(masks), dtype=torch.bool)
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

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        steps = self.args.steps_per_generation
        if self._step % steps == 0 or self._buffered_inputs is None:  # none after a checkpoint
            batch = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(batch, steps)
        return self._buffered_inputs[self._step % steps]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        per_step = step_advantages(self.played, self.config)
        advantages = _pad(list(map(token_advantages, self.played.rollouts, per_step)))
        return batch | {
            "advantages": advantages.to(self.accelerator.device),
            "temperatures": self._temperatures,
        }

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._scored = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        self._temperatures = inputs["temperatures"]
        self._moves = self._moved_by(inputs["advantages"])
        return super()._compute_loss(model, inputs)

    def _moved_by(self, advantages: torch.Tensor) -> torch.Tensor:
        """Which episodes move the policy, (episodes,): those with an advantage, where nothing else counts."""
        # Several processes have to read equally often: they exchange something each time.
        if self.config.beta or self.config.entropy_coef or self.accelerator.num_processes > 1:
            return torch.ones(len(advantages), dtype=torch.bool)
        moves = advantages.ne(0).any(1)
        moves[0] |= not moves.any()  # a loss needs a gradient, if only of zeros
        return moves

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **_
    ):
        """Log-probabilities and entropies (episodes, completion tokens); 0 where nothing is learned."""
        scored = torch.cat([torch.zeros_like(input_ids[:, :-logits_to_keep]).bool(), self._scored], dim=1)
        parts = (input_ids, attention_mask, scored, self._temperatures.to(input_ids.device))
        logprobs, entropies = (torch.zeros(input_ids.shape, device=input_ids.device) for _ in range(2))
        # Episodes of groups that all earned the same are in the log, and spared the backward pass.
        moves = self._moves.to(input_ids.device)
        for rows in torch.arange(len(moves), device=moves.device).split(batch_size or len(moves)):
            for chosen in (rows[moves[rows]], rows[~moves[rows]]):
                if not len(chosen):
                    continue
                with torch.set_grad_enabled(torch.is_grad_enabled() and bool(moves[chosen[0]])):
                    found = _score_rows(model, *(part[chosen] for part in parts))
                logprobs = logprobs.index_copy(0, chosen, found[0])
                entropies = entropies.index_copy(0, chosen, found[1])
        return logprobs[:, -logits_to_keep:], entropies[:, -logits_to_keep:], None

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


def grpo_arguments(config: GrpoSettings, folder: Path) -> GRPOConfig:
    """The settings in TRL's words: one optimizer step a batch of episodes, all of them fresh."""
    from accelerate import PartialState

    on_gpu = torch.cuda.is_available()
    processes = PartialState(cpu=not on_gpu).num_processes
    if config.prompts_per_step % processes:
        raise ValueError(
            f"{config.prompts_per_step} prompts a step do not divide among {processes} processes"
        )
    here = config.episodes // processes
    most = min(config.per_device_train_batch_size, here)
    batch = next(size for size in range(most, 0, -1) if here % size == 0)  # TRL wants equal passes
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=here // batch,
        steps_per_generation=here // batch,
        num_iterations=1,
        shuffle_dataset=False,
        weight_decay=0.0,
        logging_steps=1,
        save_strategy="steps" if config.save_steps else "no",
        save_steps=config.save_steps or 1,
        max_completion_length=config.vllm_max_model_length,
        vllm_mode="colocate",
        # vLLM's probabilities differ a little from the trainer's: each token's weight is limited by itself.
        vllm_importance_sampling_mode="token_truncate",
        **{name: getattr(config, name) for name in _SAME},
        seed=derive_seed(config.seed, "trainer") % 2**32,
        bf16=config.bf16 and on_gpu,
        use_cpu=not on_gpu,
        activation_checkpointing=config.bf16,
        disable_tqdm=True,  # bars are ours
        save_total_limit=1,  # the one before it goes when a checkpoint is whole
    )


def _pad(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def _score_rows(model, ids, attention_mask, scored, temperatures):
    """Score rows that are padded on both sides; log-probabilities and entropies of ``ids``' shape.

    TRL pads prompts on the left and completions on the right; here they move together to the left.
    """
    order = (1 - attention_mask).sort(dim=1, stable=True).indices  # tokens first, padding last
    width = int(attention_mask.sum(1).max())
    packed = [part.gather(1, order)[:, :width] for part in (ids, scored)]
    found = model(packed[0], scored=packed[1], temperatures=temperatures)
    return [torch.zeros(ids.shape, device=ids.device).masked_scatter(scored, values) for values in found[:2]]


class _LogCallback(TrainerCallback):
    """Writes the log and shows the progress."""

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

    def on_save(self, args, state, control, **_):
        seal_checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}")

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

    def on_train_end(self, args, state, control, **_):
        self.bar.close()
