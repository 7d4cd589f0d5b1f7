"""The product search of the shop: BM25 with the ranking of Lucene, and no Java.

PersonalWAB's search function is Pyserini's BM25 (Lucene with Anserini's defaults, k1 = 0.9, b = 0.4) over
the products' text. :class:`Bm25Engine` ranks as it does, ties included; :mod:`pwagents.web.pyserini_search`
is Pyserini itself behind the same interface.
"""

import hashlib
import os
import zipfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from scipy.sparse import csc_array, csr_array

from pwagents.progress import progress
from pwagents.schema import Product
from pwagents.web import analyzer
from pwagents.web.documents import Hit, content_key, product_text

K1, B = np.float32(0.9), np.float32(0.4)  # Anserini's; Lucene computes impacts in single precision, too
PROBE = 256  # so many rows of a query's strongest term tell what score the best hits have at least


class SearchEngine(Protocol):
    """What the environment asks of a search engine; safe to call from several threads."""

    def search(self, query: str, k: int = 10) -> list[Hit]: ...


def build_search_engine(
    products: Mapping[str, Product],
    engine: Literal["bm25", "pyserini"] = "bm25",
    cache_dir: Path | None = None,
) -> SearchEngine:
    """A search engine over ``products`` (parent_asin -> Product).

    With ``cache_dir`` the index is kept there under a name made from its content, and read the next time.

    Raises:
        InfrastructureError: "pyserini" is asked for and there is no Java 21 or no Pyserini.
        ValueError: there is no engine of that name.
    """
    if engine not in ("bm25", "pyserini"):
        raise ValueError(f"search engine {engine!r}; expected 'bm25' or 'pyserini'")
    documents = {asin: product_text(product) for asin, product in products.items()}
    if engine == "pyserini":
        from pwagents.web.pyserini_search import PyseriniEngine

        return PyseriniEngine(documents, cache_dir)
    return Bm25Engine(documents, cache_dir)


class Bm25Engine:
    """BM25 over documents (id -> text), scored as Lucene's BM25Similarity with k1 = 0.9 and b = 0.4.

    score(d, q) = sum over terms t of q of idf(t) * (1 - 1 / (1 + tf(t, d) * norm(d)))
    norm(d) = 1 / (k1 * (1 - b + b * length(d) / mean length))

    The impact of each term in each document is computed once, in float32 as Lucene does, and stored by term,
    the highest first. Lengths are rounded as Lucene rounds them (:func:`lossy_length`).
    A term that occurs twice in the query counts twice. Documents of equal score are ordered by id, as
    Pyserini does. Scores are Lucene's own; Pyserini shows them rounded to four decimals.
    """

    def __init__(self, documents: Mapping[str, str], cache_dir: Path | None = None):
        self._ids = sorted(documents)  # row = rank of the id, so that lower rows win ties
        file = cache_dir and Path(cache_dir) / f"bm25-{_code_key()}-{content_key(documents)}.npz"
        index = _read(file) if file else None
        if index is None:
            index = _build([documents[docid] for docid in self._ids])
            if file:
                _write(file, *index)
        terms, starts, rows, impacts = index
        # Wider than they need to be: np.add.at is several times faster on 64 bits than with a cast.
        self._rows, self._impacts = rows.astype(np.intp), impacts.astype(np.float64)
        # Numbers, not one slice object a term: the garbage collector visits objects again and again.
        self._terms, self._starts = dict(zip(terms, range(len(terms)), strict=True)), starts.tolist()

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """At most ``k`` (id, score), best first; documents without any term of the query are left out."""
        scores = np.zeros(len(self._ids))  # Lucene, too, adds in double precision
        probe, strongest = self._rows[:0], 0.0
        for term, times in Counter(query_terms(query)).items():
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


def lossy_length(length: np.ndarray) -> np.ndarray:
    """Document lengths as Lucene keeps them in one byte (``SmallFloat.intToByte4``), as float32.

    Exact below 40; above, the four highest binary digits of length - 24, and 24. Most products' texts are
    longer, so nearly all lengths are rounded, and with exact ones the ranking would be another than Lucene's.
    """
    rest = np.maximum(length - 24, 0)
    dropped = np.maximum(np.frexp(rest)[1] - 4, 0)  # frexp's exponent: the number of binary digits
    return np.where(length < 24, length, 24 + (rest >> dropped << dropped)).astype(np.float32)


def top_rows(scores: np.ndarray, k: int, probe: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and float32 values of the ``k`` highest ``scores`` (float64) above zero, best first, ties by row.

    ``probe``: different rows, of which many should be among the best. The k-th highest score of any rows is
    a lower bound of the k-th highest of all; few rows reach it, and only these are sorted. With fewer than
    ``k`` rows in it, all rows above zero are. (A partition of all scores takes several times as long.)
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


@lru_cache(maxsize=50_000)
def _word_terms(word: str) -> tuple[str, ...]:
    return tuple(analyzer.analyze(word))


def query_terms(query: str) -> list[str]:
    """The index terms of a query.

    A space ends a token in any case, so the words between spaces can be analysed one by one, and those that
    occur again and again are remembered.
    """
    return [term for word in query.split(" ") for term in _word_terms(word)]


Index = tuple[list[str], np.ndarray, np.ndarray, np.ndarray]  # terms, starts of postings, rows, impacts


def _build(texts: Sequence[str]) -> Index:
    frequency, terms = _count_terms(texts)
    length = np.asarray(frequency.sum(axis=1))
    n_documents = max(int(np.count_nonzero(length)), 1)  # Lucene counts documents that have a term
    mean_length = np.float32(length.sum() / n_documents)  # of the exact lengths, in Lucene as well
    one = np.float32(1)
    norm = one / (K1 * ((one - B) + B * lossy_length(length) / max(mean_length, one)))
    document_frequency = np.diff(frequency.indptr)
    # Lucene's idf, with one added within the logarithm: a word in most documents never counts against one.
    idf = np.log(1 + (n_documents - document_frequency + 0.5) / (document_frequency + 0.5))
    rows, starts = frequency.indices.astype(np.int32), frequency.indptr.astype(np.int64)
    impacts = _impacts(np.repeat(idf.astype(np.float32), document_frequency), frequency.data, norm[rows])
    for term in np.flatnonzero(document_frequency > 1).tolist():
        postings = slice(starts[term], starts[term + 1])
        # Stable: equal impacts stay in the order of the rows.
        highest_first = (-impacts[postings]).argsort(kind="stable")
        rows[postings], impacts[postings] = rows[postings][highest_first], impacts[postings][highest_first]
    return terms, starts, rows, impacts


def _impacts(weight: np.ndarray, frequency: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """weight - weight / (1 + frequency * norm) in float32, in one array: they are large."""
    impacts = np.multiply(frequency, norm, dtype=np.float32)
    impacts += 1
    np.divide(weight, impacts, out=impacts)
    return np.subtract(weight, impacts, out=impacts)


def _count_terms(texts: Sequence[str]) -> tuple[csc_array, list[str]]:
    """How often each term (column) occurs in each text (row), and the terms.

    A chunk between two spaces is analysed once, however often it occurs: (texts x chunks) times
    (chunks x terms) is (texts x terms).
    """
    chunk_ids: dict[str, int] = defaultdict(count().__next__)
    term_ids: dict[str, int] = defaultdict(count().__next__)
    split_texts = (text.split(" ") for text in progress(texts, "search index: texts"))
    in_texts = _occurrences(split_texts, chunk_ids)
    analyzed = (analyzer.analyze(chunk) for chunk in progress(chunk_ids, "search index: words"))
    in_chunks = _occurrences(analyzed, term_ids)
    in_texts.resize(len(texts), len(chunk_ids))
    in_chunks.resize(len(chunk_ids), len(term_ids))
    return (in_texts @ in_chunks).tocsc(), list(term_ids)


def _occurrences(lists, ids: dict[str, int]) -> csr_array:
    """One row a list, one column an id, one entry for each element; new elements get the next id."""
    columns, ends = array("i"), array("i", [0])  # 32 bits each, or scipy computes with 64
    for elements in lists:
        columns.fromlist([ids[element] for element in elements])
        ends.append(len(columns))
    columns, ends = np.frombuffer(columns, np.int32), np.frombuffer(ends, np.int32)
    shape = (len(ends) - 1, len(ids))
    return csr_array((np.ones(len(columns), dtype=np.int32), columns, ends), shape=shape)


def _code_key() -> str:
    """Changes when the code that makes an index changes."""
    code = Path(__file__).read_bytes() + Path(analyzer.__file__).read_bytes()
    return hashlib.sha256(code).hexdigest()[:8]


def _write(file: Path, terms: list[str], starts: np.ndarray, rows: np.ndarray, impacts: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(f".{os.getpid()}.npz")
    text = np.frombuffer("\n".join(terms).encode(), dtype=np.uint8)  # no term holds a line break
    np.savez(aside, terms=text, starts=starts, rows=rows, impacts=impacts)
    os.replace(aside, file)


def _read(file: Path) -> Index | None:
    """The index in ``file``; None where there is none or it is damaged, so that it is built anew."""
    try:
        with np.load(file) as stored:
            text = stored["terms"].tobytes().decode()
            terms = text.split("\n") if text else []
            return terms, stored["starts"], stored["rows"], stored["impacts"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
