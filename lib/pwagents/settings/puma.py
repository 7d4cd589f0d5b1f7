"""Settings of notebook 04."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pwagents.schema import Protocol
from pwagents.settings.group import (
    Group,
    LabelKind,
    Numbers,
    Players,
    S,
    Seeds,
    Share,
    Variants,
    player,
    values_of,
    variants_of,
)
from pwagents.settings.shared import NotebookSettings, ShopSettings
from pwagents.settings.training import BaseSettings, DpoSettings, SftSettings


class PumaPlayers(Players):
    """Who plays a part beside the agent."""

    label_writer: Annotated[str, player("offline")] = S("openai:gpt-4o-mini", "Writes labels; or offline.")


class PumaStudySettings(Group):
    """Who is trained on, which variants, what is remembered, what is tested."""

    protocol: Protocol = S("published", "What may be known: published, all before a task; or leak_free.")
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    training_users: NonNegativeInt = S(0, "Further users to train on; the paper: 0, the benchmark's own.")
    train_tasks: NonNegativeInt = S(0, "Train tasks, drawn at random; 0 takes all.")
    labels: LabelKind = S("published", "What all rows but one learn from; the other has a row of its own.")
    pad_counts: bool = S(True, "Fill labels up and learn the padding, as published; a row has the other way.")
    # Few: PUMA, PUMA+ and PUMA without DPO. All: also each switch and each ablation by itself, other lengths
    # of the memory, and all seeds, all of which are trained.
    variants: Literal["few", "all"] = S("all", "few: PUMA, PUMA+, PUMA without DPO; all: also ablations.")
    seeds: Seeds = S((0,), "Of whole trainings, among all variants; data stay.")
    worlds: tuple[NonNegativeInt, ...] = S((), "Seeds of further synthetic worlds, among all variants.")
    memory_tokens: PositiveInt = S(768, "Tokens that a memory is cut to. The paper's best: 768.")
    memory_lengths: Numbers = S((256, 512), "Other lengths, among all variants. The paper's: 256 and 512.")
    max_new_tokens: PositiveInt = S(256, "Tokens of a parameter, at most.")
    test_tasks: NonNegativeInt = S(0, "Test tasks, drawn at random; 0 takes all.")
    timed_tasks: PositiveInt = S(100, "Tasks that are timed one by one. The paper's: 100.")
    batch_size: PositiveInt = S(8, "Prompts that are completed at once.")


# What variants of DPO may differ in: all else decides which pairs there are.
_OF_THE_TRAINING = {"name", "pairs", "trainer", "lora", "modules_to_save"}


class PreferenceSettings(DpoSettings):
    """DPO, and how the model's own parameters are sampled that it learns from."""

    train_tasks: NonNegativeInt = S(0, "Train tasks whose parameters are sampled; 0 takes all.")
    candidates: PositiveInt = S(10, "Beams, all of which are candidates.")
    temperature: PositiveFloat = S(1.5, "At which beams are sampled.")
    pairs: Literal["every_task", "differing"] = S("every_task", "differing: only of two that differ.")
    held_out: Share = S(0.0, "Share of these tasks whose pairs choose among the variants, not trained on.")
    variants: Variants = S((), "Other preferences to choose from, two at most: a name, and what differs.")

    @property
    def training(self) -> DpoSettings:
        """Return the settings of the training alone."""
        return DpoSettings(**values_of(DpoSettings, self))

    @property
    def varied(self) -> dict[str, Self]:
        """Return the name of each variant -> its settings, these first."""
        own = self.changed(variants=()) if self.variants else self
        return {"as set": own, **variants_of(self)}

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        if len(self.varied) > 3:  # raises where one is no change of this group
            raise ValueError("expected two variants at most: the best of many may be best by chance")
        others = {name for variant in self.variants for name in variant} - _OF_THE_TRAINING
        if others:
            raise ValueError(
                f"expected variants judged by the same pairs; they differ in {', '.join(others)}"
            )
        if self.variants and not self.held_out:
            raise ValueError("expected held_out above 0, as variants are chosen on tasks that are held out")
        return self


class PumaNotebook(NotebookSettings):
    """Notebook 04."""

    FOLLOWS: ClassVar[Mapping[str, str]] = {"identify.seed": "seed", "sft.seed": "seed", "dpo.seed": "seed"}

    shop: ShopSettings
    players: PumaPlayers
    base: BaseSettings
    study: PumaStudySettings
    identify: SftSettings
    sft: SftSettings
    dpo: PreferenceSettings

    def seeded(self, seed: int) -> Self:
        """Change the seed of all trainings and samples; data loaded with it are those of another world."""
        return self.changed(seed=seed, identify={"seed": seed}, sft={"seed": seed}, dpo={"seed": seed})
