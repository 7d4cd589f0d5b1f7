"""The small base model: what LLaMA-2-7B and Qwen2.5-7B are to the papers, a Qwen2-class model of 0.7 million
parameters is to the presets without a GPU.

It is pre-trained on the spot, on made-up text alone: it masters the form and copies what it reads, and knows
nothing of tasks. That it learns in minutes is due to two layers that copy from the start
(:mod:`pwagents.lm.copying`) and to its tokenizer, which has the words of the embedded shop as whole tokens,
and boilerplate as one token each. Orion's and PUMA's differ in what they have read.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from pwagents.cache import cached
from pwagents.lm.card import write_card
from pwagents.lm.copying import with_copying_layers
from pwagents.lm.exercises import ExerciseText
from pwagents.lm.pretrain import Text, content_hash, cut_short, pretrain
from pwagents.lm.settings import BaseSettings
from pwagents.lm.small import make_small_model
from pwagents.project import code_hash
from pwagents.schema import Product

LOG = "base_log.csv"
CODE = ("base", "copying", "dialogues", "exercises", "made_up", "packed", "pretrain", "small", "tokens")


def base_model(
    base: BaseSettings,
    models: Path,
    products: Mapping[str, Product],
    seed: int,
    text: Callable[[Mapping[str, Product], int], Text] = ExerciseText,
    *,
    stored_only: bool = False,
) -> Path:
    """Return the folder of the model that trainings start from; arguments are those of :func:`small_base`."""
    if not base.is_small:
        return base.folder(models, stored_only=stored_only)
    return small_base(models, products, seed, base.steps, text, stored_only=stored_only)


def small_base(
    models: Path,
    products: Mapping[str, Product],
    seed: int,
    steps: int = 0,
    text: Callable[[Mapping[str, Product], int], Text] = ExerciseText,
    *,
    size: Mapping[str, int] | None = None,
    stored_only: bool = False,
) -> Path:
    """Return the folder of the small base model; trained where it is not there yet.

    Args:
        models: folder of all models.
        products: real ones, of which it reads nothing.
        seed: of its text and its first weights.
        steps: of each lesson, at most; 0: as many as the lesson has.
        text: makes, of products and seed, what it is trained on.
        size: in place of :data:`pwagents.lm.small.SIZE`.
        stored_only: train nothing.

    Raises:
        DataError: the model is not there, and nothing may be trained.
    """
    supply = text(products, seed)
    lessons = {f"lesson {i}": lesson for i, lesson in enumerate(cut_short(supply.lessons, steps))}
    facts = {name: asdict(lesson) for name, lesson in lessons.items()}

    def make(folder: Path) -> None:
        tokenizer = supply.tokenizer()
        model = with_copying_layers(make_small_model(tokenizer, seed, dict(size or {})), seed)
        log = pretrain(model, tokenizer, supply, list(lessons.values()))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        log.to_csv(folder / LOG, index=False)
        what = (
            f"A Qwen2-class language model of {model.num_parameters():,} parameters, pre-trained from random "
            "weights, but for two layers that begin as a circuit that copies. It knows the form of what it "
            "writes and the embedded shop's words, copies what it reads, and knows nothing of any task."
        )
        data = {"text": f"{type(supply).__name__}, made up; nothing of the benchmark occurs in it"}
        results = log.groupby("lesson", as_index=False).last()
        write_card(folder, "Small base model", what, data | {"seed": seed}, facts, results)

    key = {"seed": seed, "text": content_hash(supply), "lessons": facts, "size": dict(size or {})}
    key["code"] = code_hash(*(f"lm/{module}" for module in CODE))
    return cached(models, "base", key, make, stored_only=stored_only)
