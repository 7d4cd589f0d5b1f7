"""Pre-training of a small model in lessons, from short texts to long ones.

Each lesson ends when what is to be copied in held-out texts is told right as often as the lesson asks, or
after its last step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from pwagents.cache import hash_of
from pwagents.lm.packed import states_before
from pwagents.lm.tokens import NO_LOSS, Example
from pwagents.progress import progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

HELD_OUT = 10_000_000  # texts from this number on are never trained on
HASHED = 300  # so many that another word in the shop's files is not missed
CHECKED = 64  # held-out texts that a lesson's progress is measured on
CHECK_EVERY = 25  # steps
WARMUP = 20  # steps over which each lesson's learning rate rises
ALL_STEPS = 1.1  # an accuracy that is never reached: a lesson takes all its steps


@dataclass(frozen=True)
class Lesson:
    """One part of the pre-training.

    Args:
        limit: questions or words in an exercise, at most; None: whole texts in place of exercises.
        batch_size, learning_rate: as usual; the rate falls to a tenth over the last lesson.
        accuracy: the share of the copied words of held-out texts, each told from what stands before it, that
            ends it; :data:`ALL_STEPS`: none does.
        most_steps: it ends after so many in any case.
    """

    limit: int | None
    batch_size: int
    learning_rate: float
    accuracy: float
    most_steps: int


class Text(Protocol):
    """An endless supply of texts to copy in, the n-th one of a lesson always the same."""

    lessons: Sequence[Lesson]

    def tokenizer(self) -> "PreTrainedTokenizerFast": ...

    def example(self, tokenizer: Any, n: int, lesson: Lesson) -> Example: ...

    def copied(self, tokenizer: Any, example: Example) -> list[bool]:
        """Return which tokens a lesson's progress is measured on."""


def content_hash(text: Text) -> str:
    """Return 16 hex digits that stand for a text: over its first examples of each lesson."""
    tokenizer = text.tokenizer()
    return hash_of([[text.example(tokenizer, n, each) for n in range(HASHED)] for each in text.lessons])


def cut_short(lessons: Sequence[Lesson], steps: int) -> list[Lesson]:
    """The lessons with so many steps each, at most; 0: as they are."""
    return [replace(each, most_steps=min(each.most_steps, steps or each.most_steps)) for each in lessons]


def pretrain(model: Any, tokenizer: Any, text: Text, lessons: Sequence[Lesson]) -> pd.DataFrame:
    """Train all weights of a model on the learned tokens of texts made up on the way.

    Returns:
        The log, a row a check: ``lesson`` (from 0), ``step`` of the lesson, ``loss`` of that step's batch in
        nats a token, ``query_accuracy`` on held-out texts.
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    log: list[dict] = []
    with progress(total=sum(lesson.most_steps for lesson in lessons), desc="base model", unit="step") as bar:
        for number, lesson in enumerate(lessons):
            held_out = [text.example(tokenizer, HELD_OUT + i, lesson) for i in range(CHECKED)]
            copied = [text.copied(tokenizer, example) for example in held_out]
            numbers = count(number * HELD_OUT // 10)  # of texts that no other lesson has
            for step in range(lesson.most_steps):
                for group in optimizer.param_groups:
                    group["lr"] = _learning_rate(lesson, step, falls=lesson is lessons[-1])
                fresh = [text.example(tokenizer, n, lesson) for n in islice(numbers, lesson.batch_size)]
                loss = _take_step(model, optimizer, fresh)
                bar.update()
                if (step + 1) % CHECK_EVERY and step + 1 < lesson.most_steps:
                    continue
                right = copy_accuracy(model, held_out, copied)
                log.append({"lesson": number, "step": step + 1, "loss": loss, "query_accuracy": right})
                bar.set_postfix(loss=f"{loss:.2f}", right=f"{right:.2f}")
                if right >= lesson.accuracy:
                    break
    return pd.DataFrame(log)


def _learning_rate(lesson: Lesson, step: int, falls: bool) -> float:
    fall = 0.9 * step / lesson.most_steps if falls else 0.0
    return lesson.learning_rate * min(1.0, (step + 1) / WARMUP) * (1 - fall)


def _take_step(model: Any, optimizer: Any, examples: Sequence[Example]) -> float:
    """One step of the optimizer; the loss before it."""
    import torch

    loss = _loss(model, *_tensors(examples))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _tensors(examples: Sequence[Example]) -> tuple["torch.Tensor", "torch.Tensor"]:
    """(rows, tokens) ids and labels, padded on the right."""
    import torch

    width = max(len(example.input_ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    labels = torch.full((len(examples), width), NO_LOSS)
    for row, example in enumerate(examples):
        ids[row, : len(example.input_ids)] = torch.tensor(example.input_ids)
        labels[row, : len(example.input_ids)] = torch.tensor(example.labels)
    return ids, labels


def _loss(model: Any, ids: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Cross-entropy of the assistant's tokens; the others' logits are never computed, nor is padding read."""
    import torch.nn.functional as functional

    learned = labels != NO_LOSS
    return functional.cross_entropy(model.lm_head(states_before(model, ids, learned)), labels[learned])


def copy_accuracy(model: Any, examples: Sequence[Example], copied: Sequence[Sequence[bool]]) -> float:
    """Return the share of copied tokens that are the model's first choice after what stands before them."""
    import torch

    ids, _ = _tensors(examples)
    chosen = torch.zeros_like(ids, dtype=torch.bool)
    for row, marks in enumerate(copied):
        chosen[row, : len(marks)] = torch.tensor(marks)
    with torch.inference_mode():
        first = model.lm_head(states_before(model, ids, chosen)).argmax(-1)
    return (first == ids[chosen]).float().mean().item()
