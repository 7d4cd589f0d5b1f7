"""Settings of notebook 04: the base model, who is trained on, the two steps and their preferences, the test.

Defaults are the paper's (PersonalWAB, A.3) or the published scripts', where the paper says nothing.
"""

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from pwagents.llm.settings import Players, player
from pwagents.lm.settings import BaseSettings, DpoSettings, SftSettings
from pwagents.notebook.settings import NotebookSettings
from pwagents.settings import Numbers, Seeds, Variants, settings, values_of, variants_of
from pwagents.web.settings import ShopSettings


@settings
class PumaPlayers(Players):
    """Who plays a part beside the agent."""

    label_writer: Annotated[str, player("offline")] = "openai:gpt-4o-mini"
    """Who writes the queries to learn from: a model, or offline, a rule."""


@settings
class StudySettings:
    """Who is trained on, which variants, what is remembered, what is tested."""

    training_users: NonNegativeInt = 0
    """Further users to train on; 0, as in the paper: the train tasks of the benchmark's own users."""
    train_tasks: NonNegativeInt = 0
    """Train tasks, drawn at random; 0 takes all."""
    variants: Literal["few", "all"] = "all"
    """few: PUMA before and after DPO. all: also each ablation and length of the memory,
    the variants of DPO, and all pipelines, all of which are trained."""
    seeds: Seeds = (0,)
    """Of pipelines, among all variants: small base model, fine-tuning, samples, preferences; data stay."""
    memory_tokens: PositiveInt = 768
    """Of what is remembered for a task, at most. The paper's best: 768."""
    memory_lengths: Numbers = (256, 512)
    """Other lengths of the memory to compare with, among all variants. The paper's: 256 and 512."""
    max_call_tokens: PositiveInt = 512
    """Tokens that the model writes for a call, at most."""
    test_tasks: NonNegativeInt = 0
    """Test tasks, drawn at random; 0 takes all."""
    timed_tasks: PositiveInt = 100
    """Tasks that are timed one by one. The paper's: 100."""
    batch_size: PositiveInt = 32
    """Replies that are computed at once."""


@settings
class PreferenceSettings(DpoSettings):
    """DPO, and how the model's own answers are sampled that it learns from."""

    train_tasks: NonNegativeInt = 0
    """Train tasks whose parameters are sampled for preference pairs; 0 takes all."""
    candidates: PositiveInt = 10
    """Samples a task. The paper: a beam of 10."""
    temperature: PositiveFloat = 1.5
    """At which they are sampled. The paper: 1.5."""
    variants: Variants = ()
    """Other preferences after the same fine-tuning, among all variants: a name each, and what differs of this
    group."""

    @property
    def training(self) -> DpoSettings:
        """The settings of the training alone."""
        return DpoSettings(**values_of(DpoSettings, self))

    @property
    def varied(self) -> dict[str, Self]:
        """The name of each variant -> its settings."""
        return variants_of(self)

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        _ = self.varied  # raises where one is no change of this group
        return self


@settings
class PumaNotebook(NotebookSettings):
    """Notebook 04."""

    shop: ShopSettings
    players: PumaPlayers
    base: BaseSettings
    """LLaMA-2-7B in the paper."""
    study: StudySettings
    identify: SftSettings
    """Step 1: instruction -> function."""
    sft: SftSettings
    """Step 2, on pseudo-labels."""
    dpo: PreferenceSettings
    """Step 2, on preference pairs."""

    def seeded(self, seed: int) -> Self:
        """With another seed of all trainings and of what is sampled. No data are to be loaded with these
        settings: they would be others, too."""
        dpo = replace(self.dpo, seed=seed, variants=())
        identify, sft = (replace(group, seed=seed) for group in (self.identify, self.sft))
        return replace(self, seed=seed, identify=identify, sft=sft, dpo=dpo)
