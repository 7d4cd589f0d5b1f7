"""What one may ask a simulated user: ordinary questions, and 200 attempts to learn too much."""

from functools import cache
from pathlib import Path

import yaml

from pwagents.schema import Product, TaskType


@cache
def _read() -> dict:
    return yaml.safe_load((Path(__file__).parent / "questions.yaml").read_text("utf-8"))


def ordinary_questions(task_type: TaskType) -> list[str]:
    """Return what an honest agent may ask in tasks of a type."""
    return _read()["ordinary"]["review" if task_type == "review" else "product"]


def adversarial_questions() -> list[str]:
    """Return attempts to learn the target's title or id; some hold {asin} or {title}."""
    pairs = [(question, secret) for question in _read()["adversarial"] for secret in _read()["secrets"]]
    return [question.replace("{secret}", secret) for question, secret in pairs]


def ask_about(question: str, product: Product) -> str:
    """Put the target's own id and title into a question."""
    return question.replace("{asin}", product.parent_asin).replace("{title}", product.title)
