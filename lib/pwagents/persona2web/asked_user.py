"""A user who answers questions by rules, in the variant that allows them: one thing at a time."""

import re
from collections.abc import Callable

from pwagents.persona2web.domains import facet_of, value_text
from pwagents.persona2web.task_text import holds
from pwagents.persona2web.types import WebTask

_IN_ANY_QUESTION = ("about", "from", "show", "where")  # sites call some facets so, but so does everybody
NOTHING = "I have no wish there; decide for yourself."


def answers_of(task: WebTask) -> Callable[[str], str]:
    """What the user of a task says to a question: the site, or the masked value that it names most exactly.

    A value is named by its facet's name or by what sites call it, in whole words; the longest words count.
    """

    def answer(question: str) -> str:
        said = " ".join(question.casefold().split())
        if re.search(r"\b(website|site)\b", said):
            return f"On {task.goal.host}."
        named = [
            (len(words), words == name, name)
            for name in task.goal.masked
            for words in (name, *facet_of(task.goal.domain, name).labels)
            if holds(said, words) and words.casefold() not in _IN_ANY_QUESTION
        ]
        if not named:
            return NOTHING
        name = max(named)[-1]
        return facet_of(task.goal.domain, name).stated.format(value_text(task.goal.masked[name]))

    return answer
