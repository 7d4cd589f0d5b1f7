"""What no simulated user may say: it would do the agent's work."""

import html
import re
import unicodedata
from collections.abc import Iterable

from pwagents.data.instructions import gives_away
from pwagents.schema import Product, Task

REFUSALS = ("I'd rather not say.", "You have to find that out for me.", "I have no clue.")


def leaks(text: str, task: Task, product: Product) -> bool:
    """Whether a user's line gives away what the task asks for.

    It does when it holds the target's id, three consecutive words of its title or all of a shorter one (each
    also backwards, or its letters apart); in review tasks also four consecutive words of the real review or
    all of a shorter one. Other widths of letters, characters without width, underscores and HTML entities
    hide nothing; other spellings ("Cafe" for "Café") and codes such as base64 do.

    Args:
        product: the target of ``task``.
    """
    plain, asin = _plain(text), product.parent_asin.lower()
    letters = re.sub(r"\W", "", plain).lower().replace("_", "")
    hidden = [asin, *_runs_of_letters(product.title)]
    if any(run in letters or run[::-1] in letters for run in hidden):
        return True
    if gives_away(text, task.type, product, task.review):
        return True
    product = product.model_copy(update={"title": _plain(product.title)})
    review = task.review.model_copy(update={"text": _plain(task.review.text)})
    return gives_away(plain, task.type, product, review)


def first_safe(lines: Iterable[str], task: Task, product: Product) -> str:
    """The first line that does not leak; a refusal, or silence, where all do."""
    return next((line for line in (*lines, *REFUSALS) if not leaks(line, task, product)), "...")


def _runs_of_letters(title: str) -> list[str]:
    """Three consecutive words of a title without their gaps; short ones would be found in anything."""
    words = re.findall(r"\w+", _plain(title).lower())
    runs = ("".join(words[i : i + 3]) for i in range(max(1, len(words) - 2)))
    return [run for run in runs if len(run) >= 8]


def _plain(text: str) -> str:
    shown = (c for c in unicodedata.normalize("NFKC", html.unescape(text)) if unicodedata.category(c) != "Cf")
    return "".join(shown).replace("_", " ")
