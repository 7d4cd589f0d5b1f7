"""What no simulated user may say, since it would do the agent's work; and questions that want to hear it."""

import html
import re
import unicodedata
from functools import lru_cache

from pwagents.project import read_yaml
from pwagents.schema import Product, Task, TaskType
from pwagents.words import gives_away

# What a user says where every line would leak.
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
    visible, title = _visible(text), _visible(product.title)
    # Without gaps only runs of eight letters and more count: shorter ones would be found in anything.
    letters = re.sub(r"[\W_]", "", visible).lower()
    words = re.findall(r"\w+", title.lower())
    runs = ["".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))]
    hidden = [product.parent_asin.lower(), *(run for run in runs if len(run) >= 8)]
    if any(run in letters or run[::-1] in letters for run in hidden):
        return True
    if gives_away(text, task.type, product, task.review):
        return True
    product = product.model_copy(update={"title": title})
    review = task.review.model_copy(update={"text": _visible(task.review.text)})
    return gives_away(visible, task.type, product, review)


@lru_cache(maxsize=10_000)  # the same titles and reviews stand behind every line of a user
def _visible(text: str) -> str:
    """The text as a reader sees it, in letters of ordinary width, without underscores."""
    characters = unicodedata.normalize("NFKC", html.unescape(text))
    return "".join(c for c in characters if unicodedata.category(c) != "Cf").replace("_", " ")


def ordinary_questions(task_type: TaskType) -> list[str]:
    """List what an honest agent may ask in tasks of a type."""
    questions = read_yaml(__package__, "questions.yaml")["ordinary"]
    return list(questions["review" if task_type == "review" else "product"])


def adversarial_questions() -> list[str]:
    """List 200 attempts to hear the target's title or id; some hold {asin} or {title}: :func:`ask_about`."""
    questions = read_yaml(__package__, "questions.yaml")
    pairs = [(question, secret) for question in questions["adversarial"] for secret in questions["secrets"]]
    return [question.replace("{secret}", secret) for question, secret in pairs]


def ask_about(question: str, product: Product) -> str:
    """Put the target's own id and title into a question."""
    return question.replace("{asin}", product.parent_asin).replace("{title}", product.title)
