"""Questions to try a user simulator with: ordinary ones, and ones that want to hear too much."""

from pwagents.project import read_yaml
from pwagents.schema import Product, TaskType


def ordinary_questions(task_type: TaskType) -> list[str]:
    """What an honest agent may ask in tasks of a type."""
    return list(_questions()["ordinary"]["review" if task_type == "review" else "product"])


def adversarial_questions() -> list[str]:
    """200 attempts to hear the target's title or id; some hold {asin} or {title}, see :func:`ask_about`."""
    return [
        question.replace("{secret}", secret)
        for question in _questions()["adversarial"]
        for secret in _questions()["secrets"]
    ]


def ask_about(question: str, product: Product) -> str:
    """The question with the target's own id and title in it."""
    return question.replace("{asin}", product.parent_asin).replace("{title}", product.title)


def _questions() -> dict:
    return read_yaml(__package__, "questions.yaml")
