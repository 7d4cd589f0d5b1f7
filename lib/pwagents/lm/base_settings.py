"""Which model the trainings of a notebook start from."""

from pathlib import Path

from pydantic import NonNegativeInt, field_validator

from pwagents.llm.settings import model_folder
from pwagents.lm.smollm2 import BACKBONE, SMOLLM2, gguf_file, smollm2_folder
from pwagents.settings import settings

SMALL = "small"


@settings
class BaseSettings:
    """The model that all trainings start from."""

    model: str = SMALL
    """small, a model of 0.7 million parameters that is made here; smollm2, a real one of 135 million,
    from a package (GUIDE, "Your training"); or the folder of a model."""
    steps: NonNegativeInt = 0
    """Of each lesson of the small model, at most; 0: as many as the lesson has."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if model == SMOLLM2:
            gguf_file()  # says what to install
        elif model != SMALL and not (model_folder(model) / "config.json").exists():
            raise ValueError(f"expected {SMALL}, {SMOLLM2}, or a saved model's folder, with a config.json")
        return model

    def folder(self, models: Path, *, stored_only: bool = False) -> Path:
        """Where a model lies that is not the small one.

        Args:
            models: the folder of all models, where :func:`smollm2_folder` makes its own.
        """
        if self.model == SMOLLM2:
            return smollm2_folder(models, stored_only=stored_only)
        return model_folder(self.model)

    @property
    def is_small(self) -> bool:
        return self.model == SMALL

    @property
    def backbone(self) -> str:
        """What tables call the model."""
        named = {SMALL: "small model, 0.7M parameters", SMOLLM2: BACKBONE}
        return named.get(self.model) or model_folder(self.model).name
