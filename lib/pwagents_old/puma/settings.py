"""Settings of notebook 04: the base model, who is trained on, the two steps and their preferences, the test.

Defaults are the published scripts' (PersonalWAB's ``PUMA/scripts``), or the paper's (A.3) where they differ
and the text says so.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pwagents.llm.prompts import check_clone
from pwagents.schema import Protocol
from pwagents.settings import (
    Group,
    NotebookSettings,
    Numbers,
    Players,
    S,
    Seeds,
    Share,
    ShopSettings,
    Variants,
    player,
    values_of,
    variants_of,
)
from pwagents_old.lm.settings import BaseSettings, DpoSettings, SftSettings

LabelKind = Literal["published", "leak_free"]


class Method(Group):
    """How step 2 learns and what it is told. Without changes it is the paper's; the switches are ours."""

    memory: Literal["paper", "interest", "none"] = S(
        "paper", "paper: the closest of all purchases; interest: those of the closest one's section; none."
    )
    memory_tokens: PositiveInt = S(768, "Tokens that a memory is cut to.")
    ids: Literal["asin", "number"] = S(
        "asin", "What a recommendation calls products by: their ids, or numbers in the order of the memory."
    )
    hint: Literal["none", "recurring"] = S(
        "none", "recurring: a search is told the word that recurs in the closest purchase's section."
    )
    labels: LabelKind = S(
        "published", "What is learned: labels that know the target's category, or none of it."
    )
    pad_counts: bool = S(False, "Fill each label up to the greatest length and learn the padding, too.")
    sft: bool = S(True, "Whether step 2 is fine-tuned on labels.")
    dpo: bool = S(True, "Whether step 2 learns from preferences.")


class PumaPlayers(Players):
    """Who plays a part beside the agent."""

    label_writer: Annotated[str, player("offline")] = S(
        "openai:gpt-4o-mini", "Who writes the queries to learn from: a model, or offline, a rule."
    )


class StudySettings(Group):
    """Who is trained on, which variants, what is remembered, what is tested."""

    protocol: Protocol = S(
        "published",
        "published: all before a task may be known, as in PersonalWAB's code. leak_free: only what lies "
        "before the user's first task of the split, and nobody's past is another's future.",
    )
    official_repo: Annotated[str, AfterValidator(check_clone)] = S(
        "", "A clone of PersonalWAB's repository to read the prompts from; empty: prompts in our words."
    )
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
        "few: PUMA and PUMA+. all: also each switch and each ablation by itself, other lengths of the "
        "memory, and all seeds, all of which are trained.",
    )
    seeds: Seeds = S(
        (0,),
        "Of whole trainings, among all variants: base model, fine-tuning, samples, preferences; data stay.",
    )
    worlds: tuple[NonNegativeInt, ...] = S(
        (),
        "Seeds of whole embedded worlds, data and trainings, among all variants; with them, PUMA is also "
        "trained where nothing is bought twice. None: only the world at hand.",
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
        """The settings of the training alone."""
        return DpoSettings(**values_of(DpoSettings, self))

    @property
    def varied(self) -> dict[str, Self]:
        """The name of each variant -> its settings, these first."""
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

    FOLLOWS = {"identify.seed": "seed", "sft.seed": "seed", "dpo.seed": "seed"}

    shop: ShopSettings
    players: PumaPlayers
    base: BaseSettings
    study: StudySettings
    identify: SftSettings
    sft: SftSettings
    dpo: PreferenceSettings

    @property
    def method(self) -> Method:
        """The paper's method, with these settings' memory and labels."""
        study = self.study
        return Method(memory_tokens=study.memory_tokens, labels=study.labels, pad_counts=study.pad_counts)

    def methods(self) -> dict[str, Method]:
        """The variants that are trained, by their names in tables."""
        puma, study = self.method, self.study
        plus = {"memory": "interest", "ids": "number", "hint": "recurring"}
        methods = {PUMA: puma, PLUS: puma.changed(**plus), NO_DPO: puma.changed(dpo=False)}
        if study.variants == "few":
            return methods
        other: LabelKind = "leak_free" if study.labels == "published" else "published"
        methods |= {
            NO_MEMORY: puma.changed(memory="none"),
            NO_SFT: puma.changed(sft=False),
            UNTUNED: puma.changed(sft=False, dpo=False),
            f"{PUMA}, {other.replace('_', '-')} labels": puma.changed(labels=other),
            f"{PUMA}, padding {'not ' * study.pad_counts}learned": puma.changed(
                pad_counts=not study.pad_counts
            ),
        }
        methods |= {
            f"{PUMA} + {name}": puma.changed(**{switch: plus[switch]}) for switch, name in SWITCHES.items()
        }
        return methods | {with_memory(n): puma.changed(memory_tokens=n) for n in study.memory_lengths}

    def seeded(self, seed: int) -> Self:
        """Change the seed of all trainings and samples; data loaded with it are those of another world."""
        return self.changed(seed=seed, identify={"seed": seed}, sft={"seed": seed}, dpo={"seed": seed})


# Names of agents in tables; the ablations are called as in PersonalWAB's Table 5.
PUMA, PLUS = "PUMA", "PUMA+"
NO_MEMORY, NO_SFT, NO_DPO = "w/o Task-specific Memory", "w/o SFT", "w/o DPO"
UNTUNED = "w/o SFT and DPO"
SWITCHES = {"memory": "interest memory", "ids": "numbers for ids", "hint": "recurring word"}


def with_memory(tokens: int) -> str:
    """Name the agent with a memory of another length."""
    return f"{PUMA}, {tokens} tokens"
