"""PUMA's small base model: that of Orion's notebooks, which then reads exercises and dialogues in PUMA's
format (:mod:`pwagents.puma.base_text`), with all of its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pwagents.cache import cached, hash_of
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.card import write_card
from pwagents.lm.pretrain import ALL_STEPS, Lesson, cut_short, pretrain
from pwagents.orion.base import END_OF_CALL, LOG, QUERY, base_for
from pwagents.orion.base_text import ids_and_titles
from pwagents.project import code_hash
from pwagents.puma.agent import IDENTIFY_RULES, OFTEN, PARAMETER_RULES
from pwagents.puma.base_text import PumaText
from pwagents.puma.settings import PumaNotebook
from pwagents.schema import FUNCTION_OF, Benchmark, Product
from pwagents.seeds import derive_seed

_FIXED_TEXTS = (IDENTIFY_RULES, *PARAMETER_RULES.values(), *FUNCTION_OF.values(), OFTEN)
# Plain repetition of words first: so small a model does not learn to copy from dialogues alone.
LESSONS = (
    Lesson(asked=2, batch_size=32, learning_rate=3e-3, accuracy=0.97, most_steps=100),
    Lesson(asked=None, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=400),
)


def puma_base(settings: PumaNotebook, benchmark: Benchmark, products: Mapping[str, Product]) -> Path:
    """The folder of the model that all trainings start from, made where it is the small one.

    That is the small base model of Orion's notebooks, which then reads dialogues in PUMA's format.

    Args:
        benchmark: the one that is tested on, as in Orion's notebooks.
        products: all real ones, those to learn with among them.

    Raises:
        DataError: with ``stored_runs_only``, a small model that is not there.
    """
    models, seed, only = settings.output_dir / "models", settings.seed, settings.stored_runs_only
    if not settings.base.is_small:
        return settings.base.folder(models, stored_only=only)
    steps = settings.base.steps
    shared = base_for(benchmark.products, models, seed, steps, stored_only=only)
    return read_puma_text(shared, models, products, seed, cut_short(LESSONS, steps), stored_only=only)


def read_puma_text(
    base: Path,
    models: Path,
    products: Mapping[str, Product],
    seed: int,
    lessons: Sequence[Lesson] = LESSONS,
    *,
    stored_only: bool = False,
) -> Path:
    """The folder of a base model that has also read PUMA's text.

    Args:
        base: the folder of the base model (:func:`pwagents.orion.base.base_model`).
        models: where the model goes.
        products: the real ones, of which no id and no title occurs.
        stored_only: train nothing; the model must be there.

    Raises:
        DataError: it is not there, and nothing may be trained.
    """
    taken = ids_and_titles(products)
    told = {"real products": len(taken) // 2, "seed": seed, "from": base.name}
    lessons_told = {f"lesson {i}": asdict(lesson) for i, lesson in enumerate(lessons)}

    def make(folder: Path) -> None:
        model, tokenizer = _with_fixed_texts(base, seed)
        log = pretrain(model, tokenizer, PumaText(taken, seed), lessons, copied=(QUERY, END_OF_CALL))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        log.to_csv(folder / LOG, index=False)
        what = "The small base model after made-up dialogues in PUMA's format; it knows no task."
        write_card(folder, "base-puma", what, told, lessons_told, base=str(base))

    code = code_hash("puma", "agents", "web", "lm", "data")
    parts = told | {"lessons": lessons_told, "taken": hash_of(sorted(taken)), "code": code}
    return cached(models, "base-puma", parts, make, stored_only=stored_only)


def _with_fixed_texts(base: Path, seed: int) -> tuple[Any, Any]:
    """A base model and its tokenizer, to which each of PUMA's fixed texts is a further token."""
    import torch
    from tokenizers import AddedToken

    tokenizer = read_tokenizer(base)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in _FIXED_TEXTS])
    model = read_model(base, torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "tokens of PUMA's texts"))
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return model, tokenizer
