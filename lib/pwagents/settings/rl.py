"""Settings of online reinforcement learning, by TRL's names wherever it has them."""

from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from pwagents.settings.group import Group, Lora, S, Share

Credit = Literal["episode", "turn"]
Scale = Literal["group", "none"]
Schedule = Literal["constant", "constant_with_warmup", "linear", "cosine"]


class RlSettings(Group):
    """What GRPO and PPO share, so that they are compared with equal means."""

    max_steps: PositiveInt = S(
        ..., "Steps, each of episodes played anew; the policy is updated epochs times minibatches in each."
    )
    prompts_per_step: PositiveInt = S(8, "Tasks a step, over all GPUs.")
    num_generations: PositiveInt = S(8, "Episodes of each of them.")
    learning_rate: PositiveFloat = S(
        5e-4, "Of AdamW, without weight decay; Orion prints none (5.1, of fine-tuning: 2e-6)."
    )
    lr_scheduler_type: Schedule = S("constant", "How the learning rate goes on after the warm-up.")
    warmup_steps: NonNegativeFloat = S(
        0.0, "Steps over which the learning rate rises; below 1 a share of all steps."
    )
    lora: Lora | None = S(None, "Rank and alpha of an adapter on all linear layers; None trains all weights.")
    bf16: bool = S(
        False,
        "On a GPU: compute in bfloat16, activations a second time in the backward pass (a third more time).",
    )
    seed: int = S(0, "Of all that is drawn at random.")
    n_gpus: PositiveInt = S(
        1, "GPUs to train on, where there are any; batch sizes are for each of them. Orion, 5.1: 2."
    )
    sharding: Literal["ddp", "fsdp", "cpu"] = S(
        "ddp",
        "How several GPUs share a training: fsdp spreads the model, with ddp each has it all. cpu: for "
        "tests.",
    )
    per_device_train_batch_size: PositiveInt = S(
        16, "Episodes a GPU and pass. On a CPU 8 to 32 are fastest: what they compute stays in its cache."
    )
    temperature: PositiveFloat = S(1.0, "Of sampled episodes; Orion, 5.1: 0.6.")
    review_temperature: PositiveFloat = S(1.0, "Of sampled review tasks; Orion, 5.1: 1.0.")
    epochs: PositiveInt = S(1, "Passes over a step's episodes.")
    minibatches: PositiveInt = S(
        1, "Parts of a step's tasks, drawn anew in each pass; the policy is updated once by each."
    )
    epsilon: PositiveFloat = S(
        0.2, "How far the ratio of new to old probability may leave 1; Orion, 5.1: 0.2."
    )
    beta: NonNegativeFloat = S(
        0.0, "Weight of the divergence from the model at the start; 0: that model is not kept."
    )
    entropy_coef: NonNegativeFloat = S(0.0, "Weight of the tokens' mean entropy, which is added to the goal.")
    gamma: Share = S(
        1.0,
        'Discount of rewards: a step with GRPO (credit "turn" alone), a sampled token with PPO.',
    )
    loss_type: Literal["dapo", "grpo"] = S(
        "dapo",
        "The loss is the mean over all sampled tokens of an update (dapo), or over episodes of each one's"
        " mean (grpo; Guo et al. 2025), which favours short episodes.",
    )
    max_grad_norm: PositiveFloat = S(1.0, "The gradient is scaled down to it.")
    use_vllm: bool = S(
        False,
        "vLLM plays the episodes, in the same process, with the weights as they are at each step; GPUs only.",
    )
    vllm_gpu_memory_utilization: Share = S(0.3, "Share of a GPU's memory that vLLM may take.")
    vllm_max_model_length: PositiveInt = S(
        8192, "Tokens of an episode that vLLM has room for, prompt included."
    )
    save_steps: NonNegativeInt = S(
        25, "Steps between checkpoints, from which a killed training goes on; 0: none."
    )
    eval_steps: NonNegativeInt = S(
        0, "Steps between evaluations, the first before step 1, the last at the end; 0: none."
    )
    stop_when_flat: bool = S(
        False, "Stop where the evaluations' return has not risen for a third of the steps so far."
    )

    @property
    def episodes(self) -> int:
        """Episodes a step, over all GPUs."""
        return self.prompts_per_step * self.num_generations


class GrpoSettings(RlSettings):
    """Group relative policy optimization (:mod:`pwagents.rl.train`)."""

    num_generations: Annotated[int, Field(ge=2)] = S(
        8, "Episodes of each task: the group within which they are compared."
    )
    credit: Credit = S("episode", "One advantage for the whole episode, or one a turn.")
    scale_rewards: Scale = S(
        "group", "Whether advantages are divided by their group's deviation, as GRPO has it, or by nothing."
    )


class PpoSettings(RlSettings):
    """Proximal policy optimization (:mod:`pwagents.rl.train`)."""

    lam: Share = S(
        1.0, "GAE's lambda per sampled token; what a value below 1 means here: :mod:`pwagents.rl.train`."
    )
    value_learning_rate: PositiveFloat = S(1e-3, "Of the critic, whose rate does not fall.")
    value_epochs: PositiveInt = S(4, "Passes of the critic over a step's tokens, four updates each.")
    value_warmup_steps: NonNegativeInt = S(0, "Steps at the start in which the critic alone learns.")


def use_vllm(asked: bool | None) -> bool:
    """Whether vLLM plays the episodes, on the GPU that the training is on.

    Args:
        asked: None takes it where the package is installed and there is a GPU; True insists on it.

    Raises:
        ValueError: it is insisted on, but it is not there.
    """
    if asked is False:
        return False
    import torch

    is_there = find_spec("vllm") is not None and torch.cuda.is_available()
    if asked and not is_there:
        raise ValueError("the package vllm or a GPU is missing; expected both, or None to do without")
    return is_there
