"""A model from one string."""

import sqlite3
import subprocess
import sys

import pytest

from pwagents.errors import DataError
from pwagents.llm.budget import Budget, BudgetError
from pwagents.llm.make import Models, make_model
from pwagents.llm.settings import Players
from pwagents.llm.store import ResponseStore

HI = [{"role": "user", "content": "hi"}]
KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def store(tmp_path):
    return ResponseStore(tmp_path / "replies.sqlite")


def test_an_endpoint_with_store_and_budget_then_replayed(chat_server, store):
    server, budget = chat_server(), Budget(max_usd=1)
    model = make_model("openai:gpt-4o-mini", base_url=server.url, store=store, budget=budget)
    reply = model.complete(HI, temperature=0)
    assert model.complete(HI, temperature=0) == reply
    assert sum(server.calls.values()) == budget.spent.calls == 1
    assert budget.spent.usd == reply.usage.usd > 0
    assert make_model("replay:gpt-4o-mini", store=store).complete(HI, temperature=0) == reply


def test_a_local_model_is_stored_and_free(random_model, store):
    spent = Budget(max_usd=0)
    model = make_model(f"local:{random_model}", store=store, budget=spent)
    reply = model.complete(HI, temperature=0, max_tokens=5)
    assert spent.spent.calls == 0 and reply.usage.completion_tokens == 5
    assert make_model(f"replay:{model.name}", store=store).complete(HI, temperature=0, max_tokens=5) == reply


def test_a_spent_budget_stops_the_endpoint(chat_server, store):
    server = chat_server()
    model = make_model("openai:m", base_url=server.url, store=store, budget=Budget(max_tokens=0))
    with pytest.raises(BudgetError):
        model.complete(HI)
    assert not server.calls


def test_studies_of_one_run_share_its_budget(chat_server, tmp_path):
    server = chat_server()
    players = Players(base_url=server.url, budget_tokens=1)
    first, second, elsewhere = (Models(players, tmp_path / name)("openai:m") for name in ("a", "a", "b"))
    first.complete(HI)
    with pytest.raises(BudgetError):
        second.complete([*HI, *HI])
    elsewhere.complete(HI)


@pytest.mark.parametrize("spec", ["gpt-4o-mini", "offline", "openai:", "azure:gpt-4o", ""])
def test_another_spec_is_refused(spec):
    with pytest.raises(ValueError, match="expected openai:NAME, local:FOLDER or replay:NAME"):
        make_model(spec)


def test_a_folder_without_a_model_and_a_replay_without_a_store_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        make_model(f"local:{tmp_path}")
    with pytest.raises(ValueError, match="need a store"):
        make_model("replay:m")


def test_a_replayed_model_does_not_need_a_key(store, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert make_model("openai:gpt-4o", store=store).name == "gpt-4o"
    with pytest.raises(DataError, match="every reply stored"):
        make_model("replay:gpt-4o", store=store).complete(HI)


def test_no_key_is_written_anywhere(chat_server, store, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = chat_server(reply=lambda body: {"role": "assistant", "content": f"you sent {KEY}"})
    model = make_model("openai:m", base_url=server.url, store=store)
    assert model.complete(HI).text == "you sent [key]"
    assert server.headers["authorization"].endswith(KEY)
    store.export(tmp_path / "replies.jsonl")
    with sqlite3.connect(store.path) as db:
        rows = db.execute("SELECT * FROM reply").fetchall()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir()) + repr(rows).encode()
    assert KEY.encode() not in written and b"[key]" in written


def test_making_a_model_loads_nothing_heavy(random_model):
    code = (
        "import sys\nfrom pwagents.llm.make import make_model\n"
        f"make_model('openai:m'), make_model('local:{random_model}')\n"
        "sys.exit(str([n for n in ('torch', 'transformers', 'openai', 'pandas') if n in sys.modules] or 0))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == "0\n"
