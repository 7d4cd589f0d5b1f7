"""Settings of online reinforcement learning, shared by GRPO and PPO."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pwagents.lm.memory_plan import Weights
from pwagents.rl.advantages import Credit, Scale
from pwagents.schema import Task, TaskType, check_choice
from pwagents.seeds import rng

Tracker = Literal["none", "trackio", "wandb", "tensorboard"]
Schedule = Literal["constant", "constant_with_warmup", "linear", "cosine"]
Loss = Literal["dapo", "grpo"]


@dataclass(frozen=True)
class RlConfig:
    """What GRPO and PPO share, so that they are compared with equal means.

    Args:
        steps: updates of the policy.
        prompts_per_step: tasks a step, over all processes.
        generations: episodes of each of them.
        learning_rate: of AdamW, without weight decay.
        schedule: of the learning rate, by transformers' name; ``warmup_steps`` go first.
        temperature: at which ``play`` samples; ``review_temperature`` for review tasks.
        clip: how far the ratio of new to old probability may leave 1.
        kl_beta: weight of the divergence from the model one started with; 0: no such model is kept.
        entropy_coef: weight of the tokens' mean entropy, which is added to the goal.
        gamma: discount of rewards, per step with GRPO (credit per turn alone), per sampled token with PPO.
        max_grad_norm: the gradient is scaled down to it.
        micro_batch: episodes in one forward pass, per process. On a CPU 8 to 32 are fastest: what they
            compute stays in its cache.
        seed: of the order of tasks and of all sampling, together with the step's number.
        save_steps: a checkpoint every so many steps; 0: none.
        eval_steps: an evaluation every so many steps, before the first and after the last; 0: none.
        report_to: who else is told the log.
        lora: rank and alpha of an adapter on all linear layers; None trains all weights.
        weights: their type, of a model from a folder. In bfloat16 they take half the memory, but updates
            smaller than about 1/256 of a weight are lost: good for what an adapter leaves as it is.
        bf16: compute in bfloat16 where there is a GPU.
        gradient_checkpointing: activations are computed again in place of being kept; for large models.
    """

    steps: int
    prompts_per_step: int = 8
    generations: int = 8
    learning_rate: float = 5e-4
    schedule: Schedule = "constant"
    warmup_steps: int = 0
    temperature: float = 1.0
    review_temperature: float = 1.0
    clip: float = 0.2
    kl_beta: float = 0.0
    entropy_coef: float = 0.0
    gamma: float = 1.0
    max_grad_norm: float = 1.0
    micro_batch: int = 16
    seed: int = 0
    save_steps: int = 25
    eval_steps: int = 0
    report_to: Tracker = "none"
    lora: tuple[int, int] | None = None
    weights: Weights = "float32"
    bf16: bool = False
    gradient_checkpointing: bool = False

    def __post_init__(self):
        check_choice("report_to", self.report_to, Tracker)
        check_choice("schedule", self.schedule, Schedule)
        check_choice("weights", self.weights, Weights)
        for name in ("steps", "prompts_per_step", "generations", "micro_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        for name in ("temperature", "review_temperature"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; sampling needs more than 0")

    @property
    def episodes(self) -> int:
        """Episodes a step, over all processes."""
        return self.prompts_per_step * self.generations

    def evaluates_after(self, step: int) -> bool:
        """Whether an evaluation follows a step; 0 is the model at the start."""
        return bool(self.eval_steps) and (step % self.eval_steps == 0 or step == self.steps)

    def temperature_of(self, type_: TaskType) -> float:
        return self.review_temperature if type_ == "review" else self.temperature


@dataclass(frozen=True)
class GrpoConfig(RlConfig):
    """Settings of GRPO.

    Args:
        credit: one advantage an episode, or one a turn.
        scale: by what advantages are divided: their group's deviation (GRPO's own), or nothing.
        loss: ``dapo`` takes the mean over all sampled tokens of a step, as PPO does here; ``grpo`` the mean
            over episodes of each one's mean (Guo et al. 2025), which favours short episodes.
        optim: the optimizer by transformers' name; "adamw_bnb_8bit" (package bitsandbytes) takes a quarter of
            the memory.
        use_vllm: ``play`` gets the ``vllm.LLM`` that TRL runs in the same process, its weights up to date, in
            place of the model; GPUs only.
        vllm_memory: the share of a GPU's memory that vLLM may take.
        vllm_length: tokens of an episode, prompt included, at most.
    """

    credit: Credit = "episode"
    scale: Scale = "group"
    loss: Loss = "dapo"
    optim: str = "adamw_torch_fused"
    use_vllm: bool = False
    vllm_memory: float = 0.3
    vllm_length: int = 8192

    def __post_init__(self):
        super().__post_init__()
        check_choice("credit", self.credit, Credit)
        check_choice("scale", self.scale, Scale)
        check_choice("loss", self.loss, Loss)
        if self.generations < 2:
            raise ValueError(f"generations is {self.generations}; a group to compare within has at least 2")


@dataclass(frozen=True)
class PpoConfig(RlConfig):
    """Settings of PPO.

    Args:
        lam: GAE's lambda, per sampled token. Below 1 a reward reaches back about 1 / (1 - lam) tokens by
            itself, farther only through the critic; as long as the critic foresees nothing, that is a
            discount, and a policy learns within a few steps to ask less, for questions make the way to
            the reward longer.
        epochs: passes over a step's episodes, one update each.
        value_learning_rate, value_epochs: of the critic, which makes four updates a pass.
    """

    lam: float = 1.0
    epochs: int = 1
    value_learning_rate: float = 1e-3
    value_epochs: int = 4


def tasks_in_order(tasks: Sequence[Task], config: RlConfig) -> list[Task]:
    """The tasks of the whole run, ``prompts_per_step`` for each step: every pass over them shuffled anew.

    Raises:
        ValueError: there are no tasks.
    """
    if not tasks:
        raise ValueError("there are no tasks to train on")
    ordered: list[Task] = []
    while len(ordered) < config.steps * config.prompts_per_step:
        epoch = str(len(ordered) // len(tasks))
        ordered += [tasks[i] for i in rng(config.seed, "order of tasks", epoch).permutation(len(tasks))]
    return ordered[: config.steps * config.prompts_per_step]
