"""Clarification without a web: what a rewritten request names, and what was retrieved for it."""

import json

import pytest

from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web.agents import clarify as module
from pwagents.persona2web.agents.clarify import clarify, names_marked, references
from pwagents.persona2web.agents.episode import Played
from pwagents.persona2web.agents.recall import RetrievalSettings, recall_of, train_readers
from pwagents.persona2web.world.released import OfficialTask
from pwagents.results.web import clarification_table

from .worlds import make_world


@pytest.fixture(scope="module")
def world():
    return make_world()


@pytest.fixture(scope="module")
def recalls(world):
    histories = world.histories.items()
    return {
        user: recall_of(h, "implicit", RetrievalSettings(least=0.0), world.embedder) for user, h in histories
    }


def means(world, **methods):
    table = clarification_table(clarify(module.our_requests(world), methods, "synthetic"))
    return table.set_index("method")


def test_all_records_tell_nearly_all_and_guesses_little(world):
    rows = clarify(module.our_requests(world), references(world, seed=1), "synthetic")
    table = clarification_table(rows).set_index("method")
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


def test_a_trained_reader_beats_copying(world, recalls):
    readers = train_readers(world.histories, world.embedder)
    table = means(
        world, reader=module.reader_method(readers, recalls), copies=module.copying_method(recalls, copied=0)
    )
    assert table.loc["reader", "values"] > table.loc["copies", "values"]


class Asks(ChatModel):
    """Asks one question, and rewrites the request as it was told to."""

    name = "asks"

    def __init__(self, written):
        self.written = written

    def reply(self, request):
        rules = request.messages[0]["content"]
        assert not request.sampling
        if "queries" in rules:
            return Reply(text=json.dumps({"queries": ["shoes"]}))
        return Reply(text=self.written if "Write the task anew" in rules else "size 9")


def test_a_language_model_is_scored_by_what_it_writes_and_finds(world, recalls):
    table = means(
        world,
        blind=module.chat_method(Asks("Buy it somewhere"), recalls),
        sees=lambda request: Played(rewritten=f"{request.site}: {request.values}"),
    )
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
