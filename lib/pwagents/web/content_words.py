"""The words of an instruction that say what is wanted: a query that needs no model and no history.

The search engine drops 33 stop words itself. What people wrap a wish into ("could you help me find") stays,
and misleads BM25 wherever products share such words.
"""

from functools import cache

from pwagents.web.analyzer import tokenize

# Besides scikit-learn's list: greetings, thanks, and the verbs that people ask with.
_ASKING = (
    "buy hello help hi like look looking love need recommend search searching thank thanks try trying want"
)


@cache
def _stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS | frozenset(_ASKING.split())


def content_words(instruction: str) -> str:
    """The instruction without stop words, in its order and spelling; all of it where nothing else is left.

    Stop words: scikit-learn's English list, and the words that people ask with ("looking", "thanks").
    """
    words = [word for word in tokenize(instruction) if word.lower().partition("'")[0] not in _stop_words()]
    return " ".join(words) or instruction
