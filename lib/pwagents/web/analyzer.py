"""Lucene's English analysis in Python: text -> index terms.

The chain is that of Anserini's ``DefaultEnglishAnalyzer`` (Pyserini's default): StandardTokenizer, possessive
filter, lower-casing, Lucene's 33 stop words, Porter's stemmer. Departures: letters are those of the Unicode
version of ``regex``, not of Unicode 9; quotation marks inside Hebrew words end a token.
"""

from functools import lru_cache

import regex
import Stemmer

# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_POSSESSIVES = tuple(apostrophe + s for apostrophe in "'\u2019\uff07" for s in "sS")
MAX_TOKEN = 255  # characters; StandardTokenizer cuts longer tokens
_NEVER_IN_A_TOKEN = " \t\r\n!\"$%&'()+,-./:;<=>?@[\\]^`{|}~"  # at the ends of a text


def _token_pattern() -> regex.Pattern:
    """The grammar of Lucene's StandardTokenizer: word boundaries of Unicode UAX #29, emoji as tokens."""

    def one(characters: str) -> str:  # UAX #29 WB4: marks belong to the character before them
        return rf"(?:[{characters}][\p{{WB=Extend}}\p{{WB=Format}}\p{{WB=ZWJ}}]*+)"

    letter, digit = one(r"\p{WB=ALetter}\p{WB=Hebrew_Letter}"), one(r"\p{WB=Numeric}")
    katakana, joiner = one(r"\p{WB=Katakana}"), one(r"\p{WB=ExtendNumLet}")
    in_word = one(r"\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}")
    in_number = one(r"\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}")
    letters = f"{letter}(?:(?:{joiner}*|{in_word}){letter})*"
    number = f"{digit}(?:(?:{joiner}*|{in_number}){digit})*"
    run = f"(?:{katakana}(?:{joiner}*{katakana})*|(?:{letters}|{number})+)"
    word = f"{joiner}*{run}(?:{joiner}+{run})*{joiner}*"
    # Extended_Pictographic as it was in Unicode 11: more symbols than today (a star is a token).
    pictograph = (
        r"(?!\p{WB=ALetter})[\p{Extended_Pictographic}\p{Emoji_Modifier}©®™\u2388\u2600-\u2605\u2607-\u2612"
        r"\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2763-\u2767\u3030\u303d\U0001f000-\U0001f0ff"
        r"\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f1ad-\U0001f1e5\U0001f249-\U0001f3fa"
        r"\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f"
        r"\U0001f7d5-\U0001f7ff](?:(?!\ufe0e)[\p{WB=Extend}\p{WB=Format}])*+"
    )
    emoji = rf"{pictograph}(?:\u200d+{pictograph})*+\u200d*+"
    flag = one(r"\p{WB=Regional_Indicator}") + "{2}"
    keycap = r"[0-9#*]\ufe0f?\u20e3"
    south_east_asian = one(r"\p{LB=SA}") + "+"
    ideograph = one(r"\p{Han}\p{Hiragana}")
    return regex.compile("|".join([emoji, keycap, flag, word, south_east_asian, ideograph]))


_TOKEN = _token_pattern()


def tokenize(text: str) -> list[str]:
    """Split ``text`` as Lucene's StandardTokenizer does, which cuts what is longer than MAX_TOKEN."""
    text = text.strip(_NEVER_IN_A_TOKEN)
    if text.isascii() and text.isalnum() and len(text) <= MAX_TOKEN:  # most words; saves the expression
        return [text]
    tokens = []
    for token in _TOKEN.findall(text):
        start = 0
        while len(token) - start > MAX_TOKEN and (cut := _TOKEN.search(token, start, start + MAX_TOKEN)):
            tokens.append(cut.group())
            start = cut.end()
        tokens += _TOKEN.findall(token[start:]) if start else [token]
    return tokens


_HAS_SYLLABLE = regex.compile("[aeiou][^aeiou]|[^aeiou]y[^aeiou]")  # Porter's m > 0


@lru_cache(maxsize=100_000)
def _porter(word: str) -> str:
    """Porter's stem in Lucene's form, which differs from Snowball's "porter" in four points.

    Words of one or two letters stay as they are; -bli is read as -ble (possibly, possible) and -logi as
    -log (technology, technological); every double consonant but l, s, z is halved (trekking, trek).
    """
    if len(word) <= 2:
        return word
    # A stemmer of its own for each call: it costs a microsecond, and threads must not share one.
    porter = Stemmer.Stemmer("porter", 0)
    stem = porter.stemWord(word)
    if stem.endswith("bli") and not word.endswith("e") and _HAS_SYLLABLE.search(stem[:-3]):
        return porter.stemWord(stem[:-1] + "e")
    if stem.endswith("logi") and not word.endswith("e") and _HAS_SYLLABLE.search(stem[:-4]):
        return stem[:-1]
    doubled = stem[-1:] == stem[-2:-1] and stem[-1:] not in "aeiouylsz"
    if doubled and word[len(stem) :].rstrip("s") in ("ed", "ing"):
        return stem[:-1]
    return stem


def analyze(text: str) -> list[str]:
    """Split a text into index terms, in order and as often as they occur."""
    terms = []
    for token in tokenize(text):
        word = token[:-2] if token.endswith(_POSSESSIVES) else token
        # Lower case character by character, as in Java: Python also knows rules for whole words.
        word = word.lower() if word.isascii() else "".join(c.lower()[0] for c in word)
        if word and word not in STOP_WORDS:
            terms.append(_porter(word))
    return terms
