"""Words that tell what is wanted: those of an instruction, and those that recur among remembered purchases.

All are given as they are written where they stand: to a model "Oak" and "oak" are two words, and it can copy
only the one that it has read.
"""

import re
from collections import Counter
from collections.abc import Sequence

from pwagents.agents.memory import Entry
from pwagents.agents.plain import words
from pwagents.data.instructions import content_words, word_list

# A word recurs that stands in so many remembered purchases, and in such a share of them.
RECURRING, RECURRING_SHARE = 2, 0.4
MOST_RECURRING = 2  # are told


def telling_words(instruction: str) -> list[str]:
    """The content words of an instruction."""
    written = _as_written(instruction)
    return [written.get(word, word) for word in content_words(instruction)]


def recurring_words(instruction: str, entries: Sequence[Entry]) -> list[str]:
    """Words that recur in title and store of what was bought, and that the instruction does not say.

    Stop words are none of them. What was bought twice counts twice. At most :data:`MOST_RECURRING`: the most
    frequent first, of equally frequent ones the one met first.
    """
    passed_over = {*words(instruction), *word_list("stop_words")}
    texts = [f"{entry['title']} {entry['store'] or ''}" for entry in entries]
    counts = Counter(word for text in texts for word in dict.fromkeys(words(text)) if word not in passed_over)
    enough = max(RECURRING, RECURRING_SHARE * len(entries))
    found = [word for word, n in counts.most_common(MOST_RECURRING) if n >= enough]  # ties: as they were met
    written = _as_written(" ".join(texts))
    return [written.get(word, word) for word in found]


def _as_written(text: str) -> dict[str, str]:
    """Each word of a text in lower case -> as it is first written there."""
    return {word.lower(): word for word in reversed(re.findall(r"[^\W\d_]+", text))}
