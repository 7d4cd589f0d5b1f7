"""What of a user's history a question finds: by embeddings, as the paper's published code, or by words.

Embedded is "type: object" alone; a record's website and time are shown with it but not searched.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pwagents.embedding import Embedder
from pwagents.persona2web.domains import facet_of
from pwagents.persona2web.people import WEBSITE
from pwagents.persona2web.types import BrowsingEvent, Domain
from pwagents.settings import Group, S, Share
from pwagents.shop.search import Bm25Engine


class RetrievalSettings(Group):
    """What of a history an access to it finds."""

    retriever: Literal["minilm", "bm25"] = S(
        "minilm", "minilm: by cosine of embeddings, as published; bm25: by words."
    )
    top: PositiveInt = S(20, "Records that are found, at most. Persona2Web: 20.")
    least: Share = S(0.5, "Cosine that a record must reach (minilm). Persona2Web's code: .5.")


def question_for(domain: Domain, facet: str) -> str:
    """A question to the history about a facet (or "website"): like a record of the kind that would tell."""
    if facet == WEBSITE:
        return f"booking: {domain.item}"
    return f"{domain.item}, {facet_of(domain.name, facet).labels[0]}"


def record_text(record: BrowsingEvent) -> str:
    """What a record is found by."""
    return f"{record.type}: {record.object}"


class HistoryIndex:
    """One user's records, searchable. Exact: a flat index of two thousand vectors takes a millisecond.

    Args:
        embedder: of record texts; a text that occurs again is embedded once.
    """

    def __init__(self, records: Sequence[BrowsingEvent], embedder: Embedder):
        self.records, self._embedder = records, embedder

    def search(self, question: str, settings: RetrievalSettings) -> list[BrowsingEvent]:
        """The records that go with a question, best first; of equal ones the latest comes first."""
        if settings.retriever == "bm25":
            return self._by_words(question, settings.top)
        return self._by_meaning(question, settings.top, settings.least)

    def _by_meaning(self, question: str, top: int, least: float) -> list[BrowsingEvent]:
        if not self.records:
            return []
        # Rounded: in the last bits, vectors of equal texts differ with the place in a matrix product.
        cosines = np.round(self._vectors @ self._embedder.encode([question])[0], 6)
        best = np.lexsort((-np.arange(len(cosines)), -cosines))[:top]
        return [self.records[i] for i in best if cosines[i] >= least]

    def _by_words(self, question: str, top: int) -> list[BrowsingEvent]:
        return [self.records[-1 - int(place)] for place, _ in self._words.search(question, top)]

    @cached_property
    def _vectors(self) -> np.ndarray:
        return self._embedder.encode([record_text(record) for record in self.records])

    @cached_property
    def _words(self) -> Bm25Engine:
        # The engine orders equal scores by id: places are counted from the latest record.
        texts = map(record_text, reversed(self.records))
        return Bm25Engine({f"{place:09d}": text for place, text in enumerate(texts)})
