"""The small base model: what LLaMA-2-7B and Qwen2.5-7B are to the papers, a Qwen2-class model of 0.7 million
parameters is to the presets without a GPU.

It is pre-trained on made-up text alone: it masters the form and copies what it reads, and knows nothing of
tasks. That it learns in minutes is due to two layers that copy from the start and to its tokenizer
(:mod:`base_model.small`), which has the words of the embedded shop as whole tokens, and boilerplate
as one token each. Orion's and PUMA's differ in what they have read.

Lessons go from short texts to long ones. Each ends when what is to be copied in held-out texts is told right
as often as the lesson asks, or after its last step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from base_model.small import make_small_model, with_copying_layers
from pwagents.code import hash_of
from pwagents.lm.packed import states_before
from pwagents.lm.tokens import NO_LOSS, Example
from pwagents.progress import progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

LOG = "base_log.csv"
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


def small_base(folder: Path, text: Text, seed: int, size: Mapping[str, int] | None = None) -> pd.DataFrame:
    """Train the small base model and write it into a folder, with its tokenizer and its log.

    Args:
        text: what it is trained on.
        seed: of its first weights.
        size: in place of :data:`base_model.small.SIZE`.

    Returns:
        The log (:func:`pretrain`).
    """
    tokenizer = text.tokenizer()
    model = with_copying_layers(make_small_model(tokenizer, seed, size), seed)
    log = pretrain(model, tokenizer, text, text.lessons)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    log.to_csv(folder / LOG, index=False)
    return log


def content_hash(text: Text) -> str:
    """Return 16 hex digits that stand for a text: over its first examples of each lesson."""
    tokenizer = text.tokenizer()
    return hash_of([[text.example(tokenizer, n, each) for n in range(HASHED)] for each in text.lessons])


def pretrain(model: Any, tokenizer: Any, text: Text, lessons: Sequence[Lesson]) -> pd.DataFrame:
    """Train all weights of a model on the learned tokens of texts made up on the way.

    Returns:
        The log, a row a check: ``lesson`` (from 0), ``step`` of the lesson, ``loss`` of that step's batch in
        nats a token, ``query_accuracy`` on held-out texts.
    """
    import torch
    from torch.nn.functional import cross_entropy

    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    log: list[dict] = []
    with progress(total=sum(lesson.most_steps for lesson in lessons), desc="base model", unit="step") as bar:
        for number, lesson in enumerate(lessons):
            held_out = [text.example(tokenizer, HELD_OUT + i, lesson) for i in range(CHECKED)]
            held_out_ids, _ = _tensors(held_out)
            copied = torch.zeros_like(held_out_ids, dtype=torch.bool)
            for row, example in enumerate(held_out):
                copied[row, : len(example.mask)] = torch.tensor(text.copied(tokenizer, example))
            numbers = count(number * HELD_OUT // 10)  # of texts that no other lesson has
            for step in range(lesson.most_steps):
                # The rate rises over the first steps, and falls over the last lesson.
                fall = 0.9 * step / lesson.most_steps if lesson is lessons[-1] else 0.0
                rate = lesson.learning_rate * min(1.0, (step + 1) / WARMUP) * (1 - fall)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                # Logits of what is not learned are never computed, nor is padding read.
                fresh = [text.example(tokenizer, n, lesson) for n in islice(numbers, lesson.batch_size)]
                ids, labels = _tensors(fresh)
                learned = labels != NO_LOSS
                loss = cross_entropy(model.lm_head(states_before(model, ids, learned)), labels[learned])
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                bar.update()
                if (step + 1) % CHECK_EVERY and step + 1 < lesson.most_steps:
                    continue
                # The share of copied tokens that are the first choice after what stands before them.
                with torch.inference_mode():
                    first = model.lm_head(states_before(model, held_out_ids, copied)).argmax(-1)
                right = (first == held_out_ids[copied]).float().mean().item()
                row = {"lesson": number, "step": step + 1, "loss": loss.item(), "query_accuracy": right}
                log.append(row)
                bar.set_postfix(loss=f"{row['loss']:.2f}", right=f"{right:.2f}")
                if right >= lesson.accuracy:
                    break
    return pd.DataFrame(log)


def _tensors(examples: Sequence[Example]) -> tuple["torch.Tensor", "torch.Tensor"]:
    """(rows, tokens) ids and labels, padded on the right."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = [torch.tensor(example.input_ids) for example in examples]
    labels = [torch.tensor(example.labels) for example in examples]
    return pad_sequence(ids, True), pad_sequence(labels, True, NO_LOSS)
