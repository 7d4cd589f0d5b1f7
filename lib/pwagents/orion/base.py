"""The small base model: what Qwen2.5-7B-Instruct is to the papers, a Qwen2-class model of 0.7 million
parameters is to the presets without a GPU.

It is pre-trained on the spot, on :mod:`pwagents.orion.base_text` alone: it masters the form of thoughts and
calls and copies what it reads, and knows nothing of tasks. That it learns in minutes is due to two layers
that copy from the start (:mod:`pwagents.lm.copying`) and to its tokenizer, which has the words of the
embedded shop as whole tokens, and the boilerplate of calls and profiles as one token each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pandas as pd

from pwagents.cache import cached
from pwagents.data.synthetic.shop import BASIC_SLOTS, SYLLABLES, domains
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.lm.card import write_card
from pwagents.lm.copying import with_copying_layers
from pwagents.lm.pretrain import ALL_STEPS, Lesson, cut_short, pretrain
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.orion.agent import RULES
from pwagents.orion.base_text import BaseText, text_without
from pwagents.orion.base_words import shop_words
from pwagents.profiles.types import Provenance
from pwagents.project import code_hash
from pwagents.schema import Product

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

LOG = "base_log.csv"
QUERY, END_OF_CALL = '{"name": "search_product_by_query", "arguments": {"query": "', '"}}'
_CALLS = (
    QUERY,
    END_OF_CALL,
    '{"name": "get_recommendations_by_history", "arguments": {"product_sequence": ["',
    '{"name": "add_product_review", "arguments": {"review": "',
    '{"name": "respond", "arguments": {"content": "',
    '{"name": "stop", "arguments": {}}',
    '"]}}',
    '", "',
)
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", OPEN, CLOSE)
_HEADS = (
    f"\n\nProfile:\n{OPEN}\nWants:\n",
    f"Profile:\n{OPEN}\nAvoids:\n",
    "\nAvoids:\n",
    "\nWanted:",
    "Bought before:",
)

# From short to long. First comes copying, in exercises that hold little else: fine-tuning on trajectories
# alone does not teach it to so small a model.
LESSONS = (
    Lesson(asked=2, batch_size=32, learning_rate=3e-3, accuracy=0.95, most_steps=150),
    Lesson(asked=None, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=500),
)


def base_model(
    root: Path | str,
    text: BaseText,
    seed: int,
    lessons: Sequence[Lesson] = LESSONS,
    size: dict | None = None,
    *,
    stored_only: bool = False,
) -> Path:
    """The folder of the base model; trained where it is not there yet.

    Args:
        root: folder of all models.
        text: what it is trained on.
        size: in place of :data:`pwagents.lm.small.SIZE`.
        stored_only: train nothing.

    Raises:
        DataError: the model is not there, and nothing may be trained.
    """
    key = {
        "seed": seed,
        "text": text.content_hash(),
        "lessons": [asdict(lesson) for lesson in lessons],
        "size": size or {},
        "code": code_hash("orion/base", "orion/base_text", "orion/base_words", "lm"),
    }

    def make(folder: Path) -> None:
        _make(folder, text, seed, lessons, size)

    return cached(root, "base", key, make, stored_only=stored_only)


def base_for(
    products: Mapping[str, Product], root: Path | str, seed: int, steps: int = 0, *, stored_only: bool = False
) -> Path:
    """The base model of the notebooks: it has read nothing of these products.

    Args:
        steps: of each lesson, at most; 0: as many as the lesson has.
        stored_only: as of :func:`base_model`.
    """
    lessons = cut_short(LESSONS, steps)
    return base_model(root, text_without(products, seed), seed, lessons, stored_only=stored_only)


def _make(folder: Path, text: BaseText, seed: int, lessons: Sequence[Lesson], size: dict | None) -> None:
    tokenizer = base_tokenizer()
    model = with_copying_layers(make_small_model(tokenizer, seed, size), seed)
    log = pretrain(model, tokenizer, text, lessons, copied=(QUERY, END_OF_CALL))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    log.to_csv(folder / LOG, index=False)
    _write_card(folder, sum(weights.numel() for weights in model.parameters()), text, lessons, log)


def base_tokenizer() -> "PreTrainedTokenizerFast":
    """The small base model's tokenizer, which needs no training."""
    lines = [
        f"- [{provenance}] {mark}{about}: "
        for provenance in get_args(Provenance)
        for mark in ("", "not ")
        for about in _abouts()
    ]
    words = [*sorted(shop_words()), *(f"{mark}{part}" for mark in ("B0", "##") for part in SYLLABLES)]
    return make_tokenizer(words, fixed=[*_CALLS, *_MARKS, *_HEADS, *lines, RULES])


def _abouts() -> list[str]:
    """What lines of profiles are about."""
    slots = {slot for domain in domains() for slot in domain.slots if slot not in BASIC_SLOTS}
    return ["brand", "price", "topic", *sorted(slots)]


def _write_card(
    folder: Path, parameters: int, text: BaseText, lessons: Sequence[Lesson], log: pd.DataFrame
) -> None:
    write_card(
        folder,
        title="Small base model of the embedded shop",
        what=f"A Qwen2-class language model of {parameters:,} parameters, pre-trained from random weights, "
        "but for two layers that begin as a circuit that copies. Where there is no GPU it plays the part "
        "that Qwen2.5-7B-Instruct plays in the papers: it knows the form of a thought and a call, copies "
        "what it reads, and knows nothing of any task. It knows its functions by heart (its chat template "
        "leaves tools out) and the embedded shop's words alone.",
        trained_on={
            "text": "made-up dialogues, each of another made-up user; no user, product, target or "
            "instruction of the benchmark occurs in it",
            "seed of the text": text.seed,
            "content hash": text.content_hash(),
        },
        training={f"lesson {i}": asdict(lesson) for i, lesson in enumerate(lessons)},
        results=log.groupby("lesson", as_index=False).last(),
    )
