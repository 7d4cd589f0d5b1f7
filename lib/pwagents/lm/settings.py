"""Settings of trainings of a language model, by the names that transformers and TRL have for them."""

from typing import Any, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from pwagents.settings import Lora, plain, settings

Weights = Literal["float32", "bfloat16"]
Schedule = Literal["constant", "constant_with_warmup", "linear", "cosine"]
Optimizer = Literal["adamw_torch_fused", "adamw_bnb_8bit"]
Tracker = Literal["none", "trackio", "wandb", "tensorboard"]
Sharding = Literal["fsdp", "deepspeed", "ddp"]


@settings
class Tuning:
    """What every training has, by imitation, by preferences or by rewards."""

    learning_rate: PositiveFloat
    """Of AdamW, the highest of the schedule."""
    lr_scheduler_type: Schedule = "linear"
    """How the learning rate goes on after the warm-up."""
    warmup_steps: NonNegativeFloat = 0.0
    """Steps over which the learning rate rises; below 1 a share of all steps."""
    per_device_train_batch_size: PositiveInt
    """What one GPU takes in one pass."""
    lora: Lora | None = None
    """Rank and alpha of an adapter on all linear layers; None trains all weights."""
    bf16: bool = False
    """On a GPU: compute in bfloat16, activations a second time in the backward pass (a third more time)."""
    optim: Optimizer = "adamw_torch_fused"
    """The optimizer; the 8-bit one takes a quarter of the memory and needs the package bitsandbytes."""
    seed: int = 0
    """Of all that is drawn at random."""
    save_steps: PositiveInt = 100
    """Steps between checkpoints, from which a killed training goes on; rounded up to the log's rows."""
    report_to: Tracker = "none"
    """A tracker that is told the log as well."""
    n_gpus: PositiveInt = 1
    """GPUs to train on, where there are any; batch sizes are for each of them. Orion, 5.1: 2."""
    sharding: Sharding = "ddp"
    """How several GPUs share a training: fsdp and deepspeed spread the model, with ddp each has all of it."""

    @property
    def weights(self) -> Weights:
        """Type of the weights of a model from a folder.

        In bfloat16 they take half the memory, but updates smaller than about 1/256 of a weight are lost: good
        for what an adapter leaves as it is (peft keeps the adapter in float32), bad for what is trained.
        """
        return "bfloat16" if self.bf16 and self.lora else "float32"

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether the backward pass computes activations again: models in need of bfloat16 are large."""
        return self.bf16


@settings
class SftSettings(Tuning):
    """Supervised fine-tuning (:mod:`pwagents.lm.sft`)."""

    max_steps: NonNegativeInt = 0
    """Optimizer steps; 0 goes by num_train_epochs."""
    num_train_epochs: PositiveFloat = 3.0
    """Passes over the conversations. Orion, 5.1: 3; PUMA's script: 10."""
    learning_rate: PositiveFloat = 2e-3
    """Of AdamW. Orion, 5.1: 2e-6 for all weights; PUMA: 4e-3 (A.3), 3e-4 in the script."""
    warmup_steps: NonNegativeFloat = 0.05
    per_device_train_batch_size: PositiveInt = 8
    """Conversations a GPU and pass; both papers: 1."""
    gradient_accumulation_steps: PositiveInt = 1
    """Passes that make a step; PUMA's script: 16."""
    weight_decay: NonNegativeFloat = 0.0
    """Of AdamW."""
    max_length: PositiveInt = 4096
    """Tokens; a longer conversation is refused, never cut."""
    sharding: Sharding = "fsdp"


@settings
class DpoSettings(Tuning):
    """Direct preference optimization (:mod:`pwagents.lm.dpo`)."""

    num_train_epochs: PositiveFloat = 5.0
    """Passes over the pairs; PUMA's script: 5."""
    learning_rate: PositiveFloat = 5e-5
    """Of AdamW; PUMA, A.3: 5e-5."""
    per_device_train_batch_size: PositiveInt = 1
    """Pairs a GPU and pass; PUMA, A.3: 1."""
    gradient_accumulation_steps: PositiveInt = 16
    """Passes that make a step; PUMA's script: 16."""
    beta: PositiveFloat = 0.1
    """How much a departure from the reference costs; PUMA's script: 0.1."""
    lora: Lora = (16, 32)
    """Rank and alpha of a new adapter, as in PUMA's script; one that the model has already is trained on."""
    max_length: PositiveInt = 4096
    """Tokens; a longer answer with its input is refused, never cut."""
    sharding: Literal["ddp"] = "ddp"
    """Each GPU has all of the model: only then one of them can save the adapter."""


def deciding(tuning: Tuning) -> dict[str, Any]:
    """The settings that decide what comes out of a training, as JSON values.

    Not where it is tracked, nor how often it is saved; how GPUs share it where there are several.
    """
    aside = {"report_to", "save_steps"} | ({"n_gpus", "sharding"} if tuning.n_gpus == 1 else set())
    return {name: value for name, value in plain(tuning).items() if name not in aside}
