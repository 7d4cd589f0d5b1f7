"""Retrieval finds at most so many records, best first, the latest of equals; BM25 goes by words alone."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pwagents.persona2web.agents.recall import HistoryIndex, RetrievalSettings, search_of
from pwagents.persona2web.world.types import BrowsingEvent

OBJECTS = ["flight, seat 14A", "milk ideas", "flight, seat 14A", "shirt, tag M", "flight near me"]


class Letters:
    """Stands for the embedder: a text's counts of letters, as a unit vector."""

    def encode(self, texts):
        counts = np.array([[text.count(letter) for letter in "abcdefghilmnorst"] for text in texts], float)
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def index():
    events = [
        BrowsingEvent(event_id=f"e{i}", timestamp=i + 1, type="web visit", object=text, website="a.test")
        for i, text in enumerate(OBJECTS)
    ]
    return HistoryIndex(events, Letters())


@pytest.mark.parametrize("retriever", ["minilm", "bm25"])
def test_the_best_come_first_of_equals_the_latest_and_no_more_than_the_top(index, retriever):
    settings = RetrievalSettings(retriever=retriever)
    found = index.search("web visit: flight, seat 14A", settings)
    assert [event.event_id for event in found[:2]] == ["e2", "e0"]
    assert len(index.search("flight", settings.changed(top=2))) == 2
    assert HistoryIndex([], Letters()).search("flight", settings) == []


def test_cosines_below_the_least_are_left_out(index):
    assert index.search("flight, seat 14A", RetrievalSettings(least=1.0)) == []
    assert len(index.search("web visit: milk ideas", RetrievalSettings(least=1.0))) == 1


def test_any_model_of_sentence_transformers_can_search(index, tmp_path, monkeypatch):
    class Model(Letters):
        def __init__(self, folder):
            assert folder == str(tmp_path)

        def encode(self, texts, normalize_embeddings, show_progress_bar):
            assert normalize_embeddings
            return super().encode(texts)

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Model))
    search = search_of(index.records, RetrievalSettings(retriever=str(tmp_path)), None)
    assert [event.event_id for event in search("web visit: flight, seat 14A")[:2]] == ["e2", "e0"]
