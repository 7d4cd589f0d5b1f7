"""The word that recurs among remembered purchases, which says of an interest what a user likes in it."""

import re
from collections import Counter
from collections.abc import Sequence

from pwagents.agents.memory import Entry
from pwagents.agents.plain import words
from pwagents.words import word_list

# A word recurs that stands in so many remembered purchases, and in such a share of them.
RECURRING, RECURRING_SHARE = 2, 0.4


def recurring_word(instruction: str, entries: Sequence[Entry]) -> str:
    """The word that recurs the most in title and store of what was bought, and that the instruction does not
    say; empty where none recurs.

    Stop words do not count; what was bought twice counts twice. Of equally frequent words it is the one met
    first. A second word would make queries worse (labels of the preset laptop: .586 in place of .598).

    Returns:
        The word as it is first written there: to a model "Oak" and "oak" are two words, and it can copy only
        the one that it has read.
    """
    passed_over = {*words(instruction), *word_list("stop_words")}
    texts = [f"{entry['title']} {entry['store'] or ''}" for entry in entries]
    counts = Counter(word for text in texts for word in dict.fromkeys(words(text)) if word not in passed_over)
    enough = max(RECURRING, RECURRING_SHARE * len(entries))
    found = next((word for word, n in counts.most_common(1) if n >= enough), "")  # ties: as they were met
    written = re.findall(r"[^\W\d_]+", " ".join(texts))
    return next((word for word in written if word.lower() == found), "")
