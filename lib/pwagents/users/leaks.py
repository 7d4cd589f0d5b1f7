"""What no simulated user may say: it would do the agent's work."""

import re
import unicodedata
from collections.abc import Iterable

from pwagents.data.instructions import gives_away
from pwagents.schema import Product, Task

REFUSALS = ("I'd rather not say.", "You have to find that out for me.", "I have no clue.")


def leaks(text: str, task: Task, product: Product) -> bool:
    """Whether a user's line gives away what the task asks for.

    It does when it holds the target's id (also backwards, or its letters apart), three consecutive words of
    its title or all of a shorter one; in review tasks also four consecutive words of the real review or all
    of a shorter one. Other widths of letters, characters without width and underscores hide nothing.

    Args:
        product: the target of ``task``.
    """
    plain, asin = _plain(text), product.parent_asin.lower()
    letters = re.sub(r"\W", "", plain).lower().replace("_", "")
    if asin in letters or asin[::-1] in letters or gives_away(text, task.type, product, task.review):
        return True
    product = product.model_copy(update={"title": _plain(product.title)})
    review = task.review.model_copy(update={"text": _plain(task.review.text)})
    return gives_away(plain, task.type, product, review)


def first_safe(lines: Iterable[str], task: Task, product: Product) -> str:
    """The first line that does not leak; a refusal, or silence, where all do."""
    return next((line for line in (*lines, *REFUSALS) if not leaks(line, task, product)), "...")


def _plain(text: str) -> str:
    shown = (c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    return "".join(shown).replace("_", " ")
