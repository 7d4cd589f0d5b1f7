"""The small base model: what Qwen2.5-7B-Instruct is to the papers, a Qwen2-class model of half a million
parameters is to the presets without a GPU.

It is pre-trained on the spot, on :mod:`pwagents.orion.base` alone: it masters the form of thoughts
and calls and copies what it reads, and knows nothing of tasks. Three lessons, from short to long; each ends
when the words of held-out queries are told right, as often as the lesson asks, or after its last step.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pwagents.llm.chat import Message
from pwagents.lm import tokens as conversation_tokens
from pwagents.lm.cache import cached_model, source_hash, write_card
from pwagents.lm.small import END, END_OF_CALL, QUERY, make_small_model, make_tokenizer
from pwagents.lm.tokens import Example, tokenize_conversation
from pwagents.orion import base as base_text
from pwagents.orion.base import BaseText
from pwagents.progress import progress

HELD_OUT = 10_000_000  # dialogues from this number on are never trained on
CHECKED = 64  # held-out dialogues that a lesson's progress is measured on
CHECK_EVERY = 25  # steps
LOG = "base_log.csv"
# How a server (`transformers serve`) finds the call in a reply. Arguments stay as they were written, so that
# the client is told of a call that is no JSON; with what transformers has for Qwen the server fails.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r'\s*<tool_call>\s*\{\s*"name":\s*"(?P<name>[^"]*)",\s*"arguments":\s*',
            "close_pattern": rf"\s*\}}?\s*(?:</tool_call>\s*|{re.escape(END)})",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": rf"\s*{re.escape(END)}", "content": "text"},
    },
}


@dataclass(frozen=True)
class Lesson:
    """One part of the pre-training.

    Args:
        asked: questions in an exercise, at most; None: whole dialogues in place of exercises.
        batch_size, learning_rate: as usual; the rate falls to a tenth over the last lesson.
        accuracy: the share of held-out query words, each told from what stands before it, that ends it.
        most_steps: it ends after so many in any case.
    """

    asked: int | None
    batch_size: int
    learning_rate: float
    accuracy: float
    most_steps: int


LESSONS = (
    Lesson(asked=0, batch_size=32, learning_rate=4e-3, accuracy=0.8, most_steps=200),
    Lesson(asked=5, batch_size=16, learning_rate=3e-3, accuracy=0.92, most_steps=400),
    Lesson(asked=None, batch_size=16, learning_rate=3e-3, accuracy=1.0, most_steps=400),
)


def base_model(
    root: Path | str, text: BaseText, seed: int, lessons: Sequence[Lesson] = LESSONS, size: dict | None = None
) -> Path:
    """The folder of the base model; trained where it is not there yet.

    Args:
        root: folder of all models.
        text: what it is trained on.
        size: in place of :data:`pwagents.lm.small.SIZE`.
    """
    from pwagents.lm import pretrain as base_model
    from pwagents.lm import small as small_model
    from pwagents.lm import small as small_tokenizer

    key = {
        "seed": seed,
        "text": text.content_hash(),
        "lessons": [asdict(lesson) for lesson in lessons],
        "size": size or {},
        "code": source_hash(base_model, base_text, conversation_tokens, small_model, small_tokenizer),
    }
    return cached_model(root, "base", key, lambda folder: _pretrain(folder, text, seed, lessons, size))


def _pretrain(folder: Path, text: BaseText, seed: int, lessons: Sequence[Lesson], size: dict | None) -> None:
    import pandas as pd
    import torch

    tokenizer = make_tokenizer()
    model = make_small_model(tokenizer, seed, size)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    log: list[dict] = []
    steps = sum(lesson.most_steps for lesson in lessons)
    with progress(total=steps, desc="base model", unit="step") as bar:
        for number, lesson in enumerate(lessons):
            log += _learn(model, optimizer, tokenizer, text, lesson, number, lesson is lessons[-1], bar)
    model.save_pretrained(folder)
    _for_others(tokenizer).save_pretrained(folder)
    table = pd.DataFrame(log)
    table.to_csv(folder / LOG, index=False)
    _write_card(folder, model, text, lessons, table)


def _for_others(tokenizer: Any) -> Any:
    """The tokenizer, from now on with what others need who load it: transformers' Auto classes and servers.

    Both notes stay with it when it is saved with a model that was trained further.
    """
    # Without a class of its own, any tokenizer of a Qwen2 model is loaded as Qwen's, which splits otherwise.
    tokenizer.init_kwargs["auto_map"] = {"AutoTokenizer": [None, "transformers.TokenizersBackend"]}
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer


def _learn(model, optimizer, tokenizer, text, lesson: Lesson, number: int, is_last: bool, bar) -> list[dict]:
    """One lesson; its log, a row a check."""
    import torch

    make = _supply(text, lesson)
    held_out = [_encode(tokenizer, make(HELD_OUT + i)) for i in range(CHECKED)]
    numbers, log = count(number * HELD_OUT // 10), []
    for step in range(lesson.most_steps):
        fall = 0.9 * step / lesson.most_steps if is_last else 0.0
        for group in optimizer.param_groups:
            group["lr"] = lesson.learning_rate * min(1.0, (step + 1) / 20) * (1 - fall)
        examples = [_encode(tokenizer, make(next(numbers))) for _ in range(lesson.batch_size)]
        loss = _loss(model, *_tensors(examples))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        bar.update()
        if (step + 1) % CHECK_EVERY == 0 or step + 1 == lesson.most_steps:
            right = query_accuracy(model, tokenizer, held_out)
            log.append({"lesson": number, "step": step + 1, "loss": loss.item(), "query_accuracy": right})
            bar.set_postfix(loss=f"{loss.item():.2f}", right=f"{right:.2f}")
            if right >= lesson.accuracy:
                break
    return log


def _supply(text: BaseText, lesson: Lesson) -> Callable[[int], list[Message]]:
    if lesson.asked is None:
        return text.dialogue
    return lambda n: text.exercise(n, lesson.asked)


def _encode(tokenizer: Any, messages: list[Message]) -> Example:
    return tokenize_conversation(tokenizer, messages)


def _tensors(examples: Sequence[Example]):
    """(rows, tokens) ids and labels; labels are -100 where nothing is to be learned."""
    import torch

    width = max(len(example.input_ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    labels = torch.full((len(examples), width), -100)
    for row, example in enumerate(examples):
        tokens, written = torch.tensor(example.input_ids), torch.tensor(example.mask, dtype=torch.bool)
        ids[row, : len(tokens)] = tokens
        labels[row, : len(tokens)][written] = tokens[written]
    return ids, labels


def _loss(model, ids, labels):
    """Cross-entropy of the assistant's tokens; the others' logits are never computed."""
    import torch.nn.functional as functional

    hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
    learned = labels[:, 1:] != -100
    return functional.cross_entropy(model.lm_head(hidden[learned]), labels[:, 1:][learned])


def query_accuracy(model: Any, tokenizer: Any, examples: Sequence[Example]) -> float:
    """The share of queries' tokens that are the model's first choice after what stands before them."""
    import torch

    begin, end = tokenizer.convert_tokens_to_ids([QUERY, END_OF_CALL])
    ids, _ = _tensors(examples)
    with torch.inference_mode():
        hidden = model.model(ids, use_cache=False).last_hidden_state
        rows, places = [], []
        for row, example in enumerate(examples):
            if begin in example.input_ids:
                first = example.input_ids.index(begin)
                last = example.input_ids.index(end, first)
                places += range(first, last)
                rows += [row] * (last - first)
        rows, places = torch.tensor(rows), torch.tensor(places)
        chosen = model.lm_head(hidden[rows, places]).argmax(-1)
    return (chosen == ids[rows, places + 1]).float().mean().item()


def _write_card(folder: Path, model, text: BaseText, lessons: Sequence[Lesson], log) -> None:
    parameters = sum(weights.numel() for weights in model.parameters())
    write_card(
        folder,
        title="Small base model of the embedded shop",
        what=f"A Qwen2-class language model of {parameters:,} parameters, pre-trained from random weights. "
        "Where there is no GPU it plays the part that Qwen2.5-7B-Instruct plays in the papers: it knows the "
        "form of a thought and a call, copies what it reads, and knows nothing of any task. It knows its "
        "functions by heart (its chat template leaves tools out) and the embedded shop's words alone.",
        trained_on={
            "text": "made-up dialogues, each of another made-up user; no user, product, target or "
            "instruction of the benchmark occurs in it",
            "seed of the text": text.seed,
            "content hash": text.content_hash(),
        },
        training={f"lesson {i}": asdict(lesson) for i, lesson in enumerate(lessons)},
        results=log.groupby("lesson", as_index=False).last(),
    )
