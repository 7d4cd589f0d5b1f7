"""How step 2 of PUMA learns and what it is told: the paper's method and its switches, which are ours."""

from typing import Literal

from pwagents.settings import Group, LabelKind


class Method(Group):
    """A variant of PUMA. Without changes it is the paper's, whose script also turns ``pad_counts`` on."""

    # paper: the closest of all purchases; interest: those of the closest one's section.
    memory: Literal["paper", "interest", "none"] = "paper"
    memory_tokens: int = 768  # that a memory is cut to
    # What a recommendation calls products by: their ids, or numbers in the order of the memory.
    ids: Literal["asin", "number"] = "asin"
    # recurring: a search is told the word that recurs in the closest purchase's section.
    hint: Literal["none", "recurring"] = "none"
    labels: LabelKind = "published"  # those that know the target's category, or none of it
    pad_counts: bool = False  # whether labels are filled up to the greatest length, and the padding learned
    sft: bool = True  # whether step 2 is fine-tuned on labels
    dpo: bool = True  # whether step 2 learns from preferences
