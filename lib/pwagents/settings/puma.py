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
from pwagents.settings.shared import BaseSettings, DpoSettings, NotebookSettings, SftSettings, ShopSettings


class PumaPlayers(Players):
    """Who plays a part beside the agent."""

    label_writer: Annotated[str, player("offline")] = S(
        "openai:gpt-4o-mini", "Who writes the queries to learn from: a model, or offline, a rule."
    )


class PumaStudySettings(Group):
    """Who is trained on, which variants, what is remembered, what is tested."""

    protocol: Protocol = S(
        "published",
        "published: all before a task may be known, as in PersonalWAB's code. leak_free: only what lies "
        "before the user's first task of the split, and nobody's past is another's future.",
    )
    official_repo: str = S("", "A clone of HongruCai/PersonalWAB, for its prompts; empty: ours.")
    training_users: NonNegativeInt = S(
        0, "Further users to train on; 0, as in the paper: the train tasks of the benchmark's own users."
    )
    train_tasks: NonNegativeInt = S(0, "Train tasks, drawn at random; 0 takes all.")
    labels: LabelKind = S(
        "published", "What all rows but one learn from; the other kind has a row of its own."
    )
    pad_counts: bool = S(
        True,
        "Fill each label up to sft's greatest length and learn the padding, too, as published. The other "
        "way has a row of its own.",
    )
    variants: Literal["few", "all"] = S(
        "all",
        "few: PUMA, PUMA+ and PUMA without DPO. all: also each switch and each ablation by itself, other "
        "lengths of the memory, and all seeds, all of which are trained.",
    )
    seeds: Seeds = S(
        (0,),
        "Of whole trainings, among all variants: base model, fine-tuning, samples, preferences; data stay.",
    )
    worlds: tuple[NonNegativeInt, ...] = S(
        (),
        "Seeds of whole synthetic worlds, data and trainings, among all variants; none: the one at hand.",
    )
    memory_tokens: PositiveInt = S(768, "Tokens that a memory is cut to. The paper's best: 768.")
    memory_lengths: Numbers = S(
        (256, 512), "Other lengths to compare with, among all variants. The paper's: 256 and 512."
    )
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
    pairs: Literal["every_task", "differing"] = S(
        "every_task",
        "every_task: also where best and worst do equally well, as published; differing: only where not.",
    )
    held_out: Share = S(
        0.0, "Share of these tasks whose pairs choose among the variants and are not trained on."
    )
    variants: Variants = S(
        (), "Other preferences to choose from, two at most: a name each, and what differs of this group."
    )

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
