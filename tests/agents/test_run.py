"""Methods through a real endpoint: faults do not show in tables, stored replies replay them without a key."""

import json
from pathlib import Path

import pandas as pd
import pytest

from pwagents.agents.chat_agent import Setup
from pwagents.agents.interec import play_task
from pwagents.agents.methods import METHODS
from pwagents.agents.plain import FunctionClassifier
from pwagents.benchmark.analyses_03 import costs, problem_counts
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.errors import DataError, InfrastructureError
from pwagents.evaluation.episodes import records_frame, require_played, run_episodes
from pwagents.llm import openai_model
from pwagents.llm.budget import Budget
from pwagents.llm.make import make_model
from pwagents.llm.store import ResponseStore
from pwagents.schema import FUNCTION_OF
from pwagents.users.llm import LlmUser
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

KEY = "sk-secret-of-the-test-0123456789"
RUNS = [
    ("No memory", "single_turn"),
    ("RecMind", "single_turn"),
    ("PUMA (prompted)", "single_turn"),
    ("ReAct", "multi_turn"),
    ("Reflection", "multi_turn"),
    ("InteRecAgent", "multi_turn"),
    ("ChatShop", "multi_turn"),
]


class WordOverlap:
    """Stands in for MiniLM: the share of words in common."""

    def cosine(self, text, other):
        a, b = set(text.lower().split()), set(other.lower().split())
        return len(a & b) / len(a | b)


class Popular:
    def __init__(self, products):
        self.products = sorted(products)

    def recommend(self, product_sequence, k=10):
        return self.products[:k]


@pytest.fixture(scope="module")
def benchmark():
    return make_world(WorldConfig(n_users=8, n_products=100), seed=0).benchmark


def model_answer(body):
    """A model that searches for the last words it heard, in either format, once, then asks, then stops."""
    last = next(m["content"] for m in reversed(body["messages"]) if m["role"] in ("user", "tool"))
    turns = sum(m["role"] == "assistant" for m in body["messages"])
    words = " ".join(str(last).split()[-12:])
    if "tools" in body:
        calls = [("search_product_by_query", {"query": words}), ("respond", {"content": "Which brand?"})]
        offered = {tool["function"]["name"] for tool in body["tools"]}
        name, arguments = calls[turns] if turns < 2 else ("stop", {})
        if name not in offered:
            name, arguments = sorted(offered & set(FUNCTION_OF.values()))[0], {"query": words}
        text = "{broken" if len(words) % 7 == 0 else json.dumps(arguments)
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if "Reply with the name of the function" in str(body["messages"][0]["content"]):
        return {"role": "assistant", "content": "search_product_by_query"}
    action = ("search_product_by_query", {"query": words}) if turns == 0 else ("stop", {})
    return {
        "role": "assistant",
        "content": f"Thought:\nhm\nAction:\n{action[0]}\nArguments:\n{json.dumps(action[1])}",
    }


def play_method(name, setup, benchmark, shop, user, store, track, workers=1):
    """Twelve tasks by a method, in environments of this shop."""
    memory, details = None, name == "RecMind"
    if name == "InteRecAgent":
        memory = {}

        def solve(task, profile):
            environment = WebEnvironment(shop, track, user)
            return play_task(setup, environment, task, benchmark.history(task, "test"), profile)
    else:
        agent = METHODS[name](setup)

        def solve(task):
            environment = WebEnvironment(shop, track, user, details)
            return run_episode(environment, task, benchmark.history(task, "test"), agent)

    names = {"method": name, "model": setup.model.name, "params": {"track": track}}
    tasks = benchmark.tasks["test"][:12]
    return run_episodes(tasks, solve, store, **names, workers=workers, memory=memory)


def play(folder: Path, benchmark, spec, url=""):
    """All of RUNS on twelve tasks, as one frame of episodes and the records."""
    with_store = {"base_url": url, "store": ResponseStore(folder / "replies.sqlite"), "timeout_s": 1.0}
    model = make_model(spec, **with_store)
    user = LlmUser(make_model(spec, **with_store), benchmark.products)
    engine = build_search_engine(benchmark.products)
    shop = Shop(benchmark, engine, Popular(benchmark.products), WordOverlap(), "compact")
    classifier = FunctionClassifier(benchmark.tasks["train"])
    records = []
    for name, track in RUNS:
        puma = name == "PUMA (prompted)"  # whose memory wants an embedder
        setup = Setup(
            model,
            benchmark.products,
            track,
            strategy="none" if puma else "last",
            length=3,
            identify=classifier if puma else None,
        )
        store = folder / f"{track}.jsonl"
        records += play_method(name, setup, benchmark, shop, user, store, track, workers=4)
    return records_frame(records), records


def test_faults_do_not_show_and_stored_replies_replay_without_a_key(
    chat_server, benchmark, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.01)
    sound = chat_server(reply=model_answer)
    faulty = chat_server(reply=model_answer, faults=0.2, hang=1.2, seed=1)
    clean, records = play(tmp_path / "clean", benchmark, "openai:m", sound.url)
    shaken, _ = play(tmp_path / "shaken", benchmark, "openai:m", faulty.url)
    assert sum(faulty.fault_counts.values()) > 20
    assert (clean["outcome"] == "scored").all() and len(clean) == 12 * len(RUNS)
    pd.testing.assert_frame_equal(clean, shaken)

    runs = {method: [r for r in records if r.method == method] for method, _ in RUNS}
    usage, problems = costs(runs).set_index("method"), problem_counts(runs).set_index("method")
    assert (usage["calls"] >= 1).all() and (usage["prompt tokens"] > 0).all()
    assert usage.loc["ChatShop", "user's tokens"] > 0 == usage.loc["No memory", "user's tokens"]
    assert problems["malformed JSON"].sum() > 0

    monkeypatch.delenv("OPENAI_API_KEY")
    exported = tmp_path / "published.jsonl.gz"
    ResponseStore(tmp_path / "clean" / "replies.sqlite").export(exported)
    ResponseStore(tmp_path / "again" / "replies.sqlite").import_(exported)
    replayed, _ = play(tmp_path / "again", benchmark, "replay:m")
    pd.testing.assert_frame_equal(clean, replayed)

    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_a_replay_that_lacks_a_reply_says_so(benchmark, tmp_path):
    with pytest.raises((DataError, RuntimeError), match=r"none to .*expected every reply stored"):
        play(tmp_path, benchmark, "replay:m")


def test_a_spent_budget_stops_before_the_tables_and_a_larger_one_goes_on(chat_server, benchmark, tmp_path):
    server = chat_server(reply=model_answer)
    engine = build_search_engine(benchmark.products)
    shop = Shop(benchmark, engine, Popular(benchmark.products), WordOverlap())

    def run(max_tokens):
        options = {"store": ResponseStore(tmp_path / "replies.sqlite"), "base_url": server.url}
        model = make_model("openai:m", budget=Budget(max_tokens=max_tokens), **options)
        setup = Setup(model, benchmark.products, "single_turn")
        store = tmp_path / "runs.jsonl"
        return play_method("No memory", setup, benchmark, shop, None, store, "single_turn")

    stopped = run(1500)
    message = r"of 12 episodes could not be played.*BudgetError.*run again"
    with pytest.raises(InfrastructureError, match=message):
        require_played(stopped)
    finished = sum(record.outcome == "scored" for record in stopped)
    assert 0 < finished < 12
    require_played(run(10**9))
    assert set(server.calls.values()) == {1}
