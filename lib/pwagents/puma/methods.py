"""PUMA and its variants: the paper's method, three switches of ours, and what notebook 04 compares.

*PUMA* is the paper's. *PUMA+* is ours: PUMA with three switches, each of which also has a row of its own.
"""

from typing import Literal

from pydantic import PositiveInt

from pwagents.settings import Group, LabelKind, PumaStudySettings, S

# Names in tables; the ablations are called as in PersonalWAB's Table 5.
PUMA, PLUS = "PUMA", "PUMA+"
NO_MEMORY, NO_SFT, NO_DPO = "w/o Task-specific Memory", "w/o SFT", "w/o DPO"
UNTUNED = "w/o SFT and DPO"
_PLUS = {"memory": "interest", "ids": "number", "hint": "recurring"}  # what PUMA+ changes of PUMA


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


def with_memory(tokens: int) -> str:
    """Name the variant with a memory of another length."""
    return f"{PUMA}, {tokens} tokens"


def make_variants(study: PumaStudySettings) -> dict[str, Method]:
    """Return the variants that are trained, by their names in tables; PUMA is the first."""
    puma = Method(memory_tokens=study.memory_tokens, labels=study.labels, pad_counts=study.pad_counts)
    methods = {PUMA: puma, PLUS: puma.changed(**_PLUS), NO_DPO: puma.changed(dpo=False)}
    if study.variants == "few":
        return methods
    other: LabelKind = "leak_free" if study.labels == "published" else "published"
    padding = f"padding {'not ' * study.pad_counts}learned"
    return methods | {
        NO_MEMORY: puma.changed(memory="none"),
        NO_SFT: puma.changed(sft=False),
        UNTUNED: puma.changed(sft=False, dpo=False),
        f"{PUMA}, {other.replace('_', '-')} labels": puma.changed(labels=other),
        f"{PUMA}, {padding}": puma.changed(pad_counts=not study.pad_counts),
        f"{PUMA} + interest memory": puma.changed(memory="interest"),
        f"{PUMA} + numbers for ids": puma.changed(ids="number"),
        f"{PUMA} + recurring word": puma.changed(hint="recurring"),
        **{with_memory(n): puma.changed(memory_tokens=n) for n in study.memory_lengths},
    }
