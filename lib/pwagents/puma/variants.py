"""PUMA and its variants that notebook 04 trains and compares.

*PUMA* is the paper's. *PUMA+* is ours: PUMA with three switches, each of which also has a row of its own.
"""

from pwagents.puma.methods import Method
from pwagents.settings import LabelKind, PumaStudySettings

# Names in tables; the ablations are called as in PersonalWAB's Table 5.
PUMA, PLUS = "PUMA", "PUMA+"
NO_MEMORY, NO_SFT, NO_DPO = "w/o Task-specific Memory", "w/o SFT", "w/o DPO"
UNTUNED = "w/o SFT and DPO"
_PLUS = {"memory": "interest", "ids": "number", "hint": "recurring"}  # what PUMA+ changes of PUMA


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
