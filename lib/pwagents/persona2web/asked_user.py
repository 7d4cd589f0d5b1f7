"""A user who answers questions by rules, in the variant that allows them: one thing at a time."""

import re
from collections.abc import Callable

from pwagents.persona2web.domains import facet_of, value_text
from pwagents.persona2web.types import WebTask

NOTHING = "I have no wish there; decide for yourself."


def answers_of(task: WebTask) -> Callable[[str], str]:
    """What the user of a task says to a question: the site or the first masked value that it names."""

    def answer(question: str) -> str:
        said = " ".join(question.casefold().split())
        if re.search(r"\b(website|site)\b", said):
            return f"On {task.goal.host}."
        for name, value in task.goal.masked.items():
            facet = facet_of(task.goal.domain, name)
            if any(word.casefold() in said for word in (name, *facet.labels)):
                return facet.stated.format(value_text(value))
        return NOTHING

    return answer
