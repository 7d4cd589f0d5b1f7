"""What is found in a history; and clarification without a web: what is rewritten of what was found."""

import json
import sys
from unittest.mock import Mock

import pytest

from pwagents.persona2web.agents import clarify as module
from pwagents.persona2web.agents.clarify import clarify, names_marked, references
from pwagents.persona2web.agents.episode import Played
from pwagents.persona2web.agents.recall import HistoryIndex, RetrievalSettings, recall_of, search_of
from pwagents.persona2web.world.released import OfficialTask
from pwagents.persona2web.world.types import BrowsingEvent
from pwagents.results.web import clarification_table

from .worlds import Says, Words

OBJECTS = ["flight, seat 14A", "milk ideas", "flight, seat 14A", "shirt, tag M", "flight near me"]
RECORDS = [
    BrowsingEvent(event_id=f"e{i}", timestamp=i + 1, type="web visit", object=text, website="a.test")
    for i, text in enumerate(OBJECTS)
]


@pytest.mark.parametrize("retriever", ["minilm", "bm25", "folder"])
def test_the_best_come_first_of_equals_the_latest_and_no_more_than_the_top(retriever, tmp_path, monkeypatch):
    class Model(Words):
        """Stands for any model of sentence-transformers."""

        def __init__(self, folder):
            assert folder == str(tmp_path)

        def encode(self, texts, normalize_embeddings, show_progress_bar):
            assert normalize_embeddings
            return super().encode(texts)

    models = Mock(side_effect=Model)
    monkeypatch.setitem(sys.modules, "sentence_transformers", Mock(SentenceTransformer=models))
    name = str(tmp_path) if retriever == "folder" else retriever
    settings = RetrievalSettings(retriever=name, least=0.2)
    found = search_of(RECORDS, settings, Words())("web visit: flight, seat 14A")
    assert [event.event_id for event in found[:2]] == ["e2", "e0"]
    assert len(search_of(RECORDS, settings.changed(top=2), Words())("flight")) == 2
    assert search_of([], settings, Words())("flight") == []
    assert models.called == (retriever == "folder")


def test_cosines_below_the_least_are_left_out():
    index, settings = HistoryIndex(RECORDS, Words()), RetrievalSettings(least=1.0)
    assert index.search("flight, seat 14A", settings) == []
    assert len(index.search("web visit: milk ideas", settings)) == 1


# --- clarification ---


@pytest.fixture(scope="module")
def recalls(world):
    settings = RetrievalSettings(least=0.0)
    return {
        user: recall_of(history, "implicit", settings, world.embedder)
        for user, history in world.histories.items()
    }


@pytest.fixture
def scored(world):
    def scored(**methods):
        rows = clarify(module.our_requests(world), methods, "synthetic")
        return clarification_table(rows).set_index("method")

    return scored


def test_all_records_tell_nearly_all_and_guesses_little(world, scored):
    table = scored(**references(world, seed=1))
    assert table.loc["all records, perfect reader", "joint"] > 0.6 > table.loc["random", "joint"]
    assert (table["joint"] <= table["website"]).all() and (table["n"] == len(world.tasks)).all()
    assert ((table["low"] <= table["joint"]) & (table["joint"] <= table["high"])).all()
    assert table.loc["all records, perfect reader", "website retrieved"] == 1
    assert table.loc["random", "values retrieved"] == 0


def test_a_perfect_reader_counts_no_noise(world):
    history = next(iter(world.histories.values()))
    domain, facet = next(key for key in history.person.wants if key[1] != "website")
    noise = [e for e in history.events if history.shown[e.event_id].noise]
    read = [module.perfect_reader(history, records, domain, facet) for records in (noise, [])]
    assert read[0] == read[1]


def test_methods_are_scored_by_what_they_write_and_find(scored, readers, recalls):
    def asks(rules, *_):
        if "queries" in rules:
            return json.dumps({"queries": ["shoes"]})
        return "Buy it somewhere" if "Write the task anew" in rules else "size 9"

    table = scored(
        reader=module.reader_method(readers, recalls),
        copies=module.copying_method(recalls, copied=0),
        blind=module.chat_method(Says(asks), recalls),
        sees=lambda request: Played(rewritten=f"{request.site}: {request.values}"),
    )
    assert table.loc["reader", "values"] > table.loc["copies", "values"]
    assert table.loc["blind", "joint"] == 0 and table.loc["sees", "joint"] == 1
    assert table.loc["sees", "website retrieved"] == 0


@pytest.mark.parametrize(
    ("text", "value", "named"),
    [
        ("chinos in 32x32", "32x32", True),
        ("rated at least 4.2 stars with 50 reviews", "visible ratings 4.2+ stars with 50+ reviews", True),
        ("rated at least 4.0 stars with 50 reviews", "visible ratings 4.2+ stars with 50+ reviews", False),
        ("under $70 in all", "$70", True),
        ("under $700", 70.0, False),
        ("hip-hop shows", "Hip-hop/R&B", True),
        ("rock shows", "Hip-hop/R&B", False),
    ],
)
def test_marked_words_are_named_by_their_numbers_and_half_of_the_rest(text, value, named):
    assert names_marked(text, value) is named


def test_released_tasks_are_requests_where_there_is_a_history():
    texts = {0: "At kohls.com, find chinos in **32x32** (Los Angeles, CA 90210)", 2: "Find chinos in my size"}
    tasks = [OfficialTask(task_id=f"{u}_A", user_id=u, texts=texts) for u in ("Ann", "Bob")]
    (request,) = module.released_requests(tasks, ["Ann"])
    assert (request.site, dict(request.values)) == ("kohls.com", {"value 1": "32x32"})
    rows = clarify([request], {"m": lambda r: Played(rewritten="At kohls.com, chinos 32x32")}, "released")
    assert rows["joint"].tolist() == [1.0] and rows["p_web_found"].isna().all()
