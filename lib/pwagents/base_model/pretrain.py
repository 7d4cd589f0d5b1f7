"""The small base model: what LLaMA-2-7B and Qwen2.5-7B are to the papers, a Qwen2-class model of 0.7 million
parameters is to the presets without a GPU.

It is pre-trained on the spot, on made-up text alone: it masters the form and copies what it reads, and knows
nothing of tasks. That it learns in minutes is due to two layers that copy from the start and to its tokenizer
(:mod:`pwagents.base_model.small`), which has the words of the embedded shop as whole tokens, and boilerplate
as one token each. Orion's and PUMA's differ in what they have read.

Lessons go from short texts to long ones. Each ends when what is to be copied in held-out texts is told right
as often as the lesson asks, or after its last step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from pwagents.base_model.small import make_small_model, with_copying_layers
from pwagents.base_model.smollm2 import smollm2_folder
from pwagents.code import hash_of
from pwagents.lm.packed import states_before
from pwagents.lm.tokens import NO_LOSS, Example
from pwagents.progress import progress
from pwagents.settings import BaseSettings, project_path
from pwagents.store import made

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

LOG = "base_log.csv"
# Beside it, the first texts stand in the key (:func:`content_hash`), and what they are made of through them.
CODE = (
    "portable",
    "seeds",
    *(f"base_model.{name}" for name in ("dialogues", "exercises", "pretrain", "small")),
    *(f"lm.{name}" for name in ("packed", "tokens")),
)
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


def base_model(
    base: BaseSettings, models: Path, make_text: Callable[[], Text], seed: int, *, stored_only: bool = False
) -> Path:
    """Return the folder of the model that trainings start from; arguments are those of :func:`small_base`."""
    if base.model == "smollm2":
        return smollm2_folder(models, stored_only=stored_only)
    if not base.is_small:
        return project_path(base.model)
    return small_base(models, make_text(), seed, base.steps, stored_only=stored_only)


def small_base(
    models: Path,
    text: Text,
    seed: int,
    steps: int = 0,
    *,
    size: Mapping[str, int] | None = None,
    stored_only: bool = False,
) -> Path:
    """Return the folder of the small base model; trained where it is not there yet.

    Args:
        models: folder of all models.
        text: what it is trained on.
        seed: of its first weights.
        steps: of each lesson, at most; 0: as many as the lesson has.
        size: in place of :data:`pwagents.base_model.small.SIZE`.
        stored_only: train nothing.

    Raises:
        DataError: the model is not there, and nothing may be trained.
    """
    lessons = [
        replace(each, most_steps=min(each.most_steps, steps or each.most_steps)) for each in text.lessons
    ]
    facts = {f"lesson {i}": asdict(lesson) for i, lesson in enumerate(lessons)}

    def make(folder: Path) -> None:
        tokenizer = text.tokenizer()
        model = with_copying_layers(make_small_model(tokenizer, seed, size), seed)
        log = pretrain(model, tokenizer, text, lessons)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        log.to_csv(folder / LOG, index=False)

    key = {"seed": seed, "text": content_hash(text), "lessons": facts, "size": dict(size or {})}
    return made(models, "base", key | {"code": CODE}, make, stored_only=stored_only)


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
