"""Settings of a training: the model that it starts from, and TRL's own fields under ``trainer``."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, get_type_hints

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError, field_validator

from pwagents.settings import Fields, Group, Lora, Names, S, plain, project_path
from pwagents_old.lm.smollm2 import BACKBONE, SMOLLM2, gguf_file, smollm2_folder

SMALL = "small"
Sharding = Literal["fsdp", "deepspeed", "ddp", "cpu"]  # files of params/accelerate; cpu is for tests
# TRL's fields that have no value of their own: folder and seed follow from ours, bars are ours.
DERIVED = ("output_dir", "seed", "disable_tqdm")


class BaseSettings(Group):
    """The model that all trainings start from."""

    model: str = S(
        SMALL,
        "small, a model of 0.7 million parameters that is made here; smollm2, a real one of 135 million, "
        'from a package (GUIDE, "Your training"); or the folder of a model.',
    )
    steps: NonNegativeInt = S(0, "Of each lesson of the small model, at most; 0: as many as the lesson has.")

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if model == SMOLLM2:
            gguf_file()  # says what to install
        elif model != SMALL and not (project_path(model) / "config.json").exists():
            raise ValueError(f"expected {SMALL}, {SMOLLM2}, or a saved model's folder, with a config.json")
        return model

    def folder(self, models: Path, *, stored_only: bool = False) -> Path:
        """Return where a model lies that is not the small one.

        Args:
            models: the folder of all models, where :func:`smollm2_folder` makes its own.
        """
        if self.model == SMOLLM2:
            return smollm2_folder(models, stored_only=stored_only)
        return project_path(self.model)

    @property
    def is_small(self) -> bool:
        return self.model == SMALL

    @property
    def backbone(self) -> str:
        """What tables call the model."""
        names = {SMALL: "small model, 0.7M parameters", SMOLLM2: BACKBONE}
        return names.get(self.model) or project_path(self.model).name


class TrainingSettings(Group):
    """What fine-tuning and preference optimization share."""

    CONFIG: ClassVar[str]  # the class of TRL that has the fields of ``trainer``

    lora: Lora | None = S(None, "Rank and alpha of an adapter on all linear layers; None trains all weights.")
    modules_to_save: Names = S((), "Modules that the adapter trains and stores whole, by peft's name.")
    trainer: Fields = S(
        {}, "Fields of TRL's configuration, by TRL's names; what is not here has TRL's default."
    )
    n_gpus: PositiveInt = S(
        1, "GPUs to train on, where there are any; batch sizes are for each of them. Orion, 5.1: 2."
    )
    sharding: Sharding = S(
        "fsdp",
        "How several GPUs share a training: fsdp and deepspeed spread the model, with ddp each has all of"
        " it; cpu, processes without one, is for tests.",
    )
    seed: int = S(0, "Of all that is drawn at random.")

    @field_validator("trainer")
    @classmethod
    def _check_trainer(cls, given: dict[str, Any]) -> dict[str, Any]:
        if not given:
            return {}
        import trl

        kinds, checked = get_type_hints(getattr(trl, cls.CONFIG)), {}
        for name, value in given.items():
            if name in DERIVED or name not in kinds:
                near = get_close_matches(name, kinds.keys() - {*DERIVED}, 1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{name!r} is no field of TRL's {cls.CONFIG} that can be set here{hint}")
            try:
                checked[name] = TypeAdapter(kinds[name]).validate_python(value)
            except ValidationError as error:
                raise ValueError(f"{name}: {error.errors()[0]['msg']} (found {value!r})") from None
        return checked


class SftSettings(TrainingSettings):
    """Supervised fine-tuning (:mod:`pwagents_old.lm.sft`)."""

    CONFIG: ClassVar[str] = "SFTConfig"


class DpoSettings(TrainingSettings):
    """Direct preference optimization (:mod:`pwagents_old.lm.dpo`)."""

    CONFIG: ClassVar[str] = "DPOConfig"

    lora: Lora = S((16, 32), "Rank and alpha of the new adapter, as in PUMA's script.")
    prompt_length: PositiveInt = S(
        768, "Tokens that a prompt keeps, its last, where it and its answer have more than max_length."
    )
    sharding: Literal["ddp"] = S(
        "ddp", "Each GPU has all of the model: only then one of them can save the adapter."
    )


def deciding(training: Any) -> dict[str, Any]:
    """Return the settings that decide what comes out of a training, as JSON values.

    Not where it is tracked, nor how often it is saved; how GPUs share it where there are several.
    """
    aside = {"report_to", "save_steps"} | ({"n_gpus", "sharding"} if training.n_gpus == 1 else set())
    facts = {name: value for name, value in plain(training).items() if name not in aside}
    if "trainer" in facts:
        facts["trainer"] = {name: value for name, value in facts["trainer"].items() if name not in aside}
    return facts
