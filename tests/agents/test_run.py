"""Methods through a real endpoint: faults do not show in tables, stored replies replay them without a key."""

import json
import random
import shutil
from collections import Counter

import pandas as pd
import pytest

from pwagents.agents.methods import METHODS
from pwagents.llm import openai_model
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.results.episodes import records_frame
from pwagents.schema import FUNCTION_OF
from pwagents.shop.environment import Environment
from pwagents.store import episodes
from pwagents.users.llm import LlmUser

from ..llm.server import Answer, completion

KEY = "sk-secret-of-the-test-0123456789"
# Half a surrogate pair has no UTF-8 form, and infinity is no JSON.
BESIDE = {"signature": {"of": ["\ud83d", 1e999, 0]}, "empty": [], "none": None}
RUNS = {"RecMind": "single_turn", "Reflection": "multi_turn", "ChatShop": "multi_turn"}


def model_answer(body):
    """A model that searches for the last words it heard, in either format, once, then asks twice, then stops.

    Its server wants back what it puts beside each thought, call and function.
    """
    for message in body["messages"]:
        said = [message] * (message["role"] == "assistant")
        for each in [*said, *(x for call in message.get("tool_calls", ()) for x in (call, call["function"]))]:
            if each.get("signature") != {"of": ["?", None, 0]}:
                return Answer({"error": {"message": "Unsigned"}}, 400)
    last = next(m["content"] for m in reversed(body["messages"]) if m["role"] in ("user", "tool"))
    turns = sum(m["role"] == "assistant" for m in body["messages"])
    words = " ".join(str(last).split()[-12:])
    asks = [("respond", {"content": question}) for question in ("Which brand?", "Which size?")]
    calls = [("search_product_by_query", {"query": words}), *asks]
    name, arguments = calls[turns] if turns < 3 else ("stop", {})
    if "tools" not in body:
        text = f"Thought:\nhm\nAction:\n{name}\nArguments:\n{json.dumps(arguments)}"
        return {"role": "assistant", "content": text, **BESIDE}
    offered = {tool["function"]["name"] for tool in body["tools"]}
    name = name if name in offered else sorted(offered & set(FUNCTION_OF.values()))[0]
    text = "{broken" if len(words) % 7 == 0 else json.dumps(arguments)
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": text, **BESIDE}}
    return {"role": "assistant", "content": None, "tool_calls": [call | BESIDE], **BESIDE}


class Shaken:
    """A model whose endpoint fails a fifth of the calls in some way, the same in every run."""

    def __init__(self):
        self.calls, self.n_failed = Counter(), 0

    def __call__(self, body):
        self.calls[str(body)] += 1
        draw = random.Random(f"{body} {self.calls[str(body)]}")
        answer = model_answer(body)
        if isinstance(answer, Answer):
            return answer
        whole = json.dumps(completion(answer, json.dumps(body["messages"])))
        if draw.random() > 0.2:
            return Answer(whole)
        self.n_failed += 1
        half = whole[: len(whole) // 2]
        later = [Answer({"error": {}}, status, {"Retry-After": "0.05"}) for status in (429, 500, 503)]
        cut_off = Answer(half, headers={"Content-Length": str(len(whole))})
        return draw.choice([*later, Answer(half), cut_off, Answer(whole, drip=1.2)])


@pytest.fixture
def frame_of(benchmark, shop, setup_of):
    """``frame_of(folder, url)``: the episodes of all of RUNS on twelve tasks; without a URL, replayed."""

    def play(folder, url=""):
        inner = OpenAIModel("m", url) if url else None
        model = StoredModel(inner, ResponseStore(folder / "replies.sqlite"), "m")
        user = LlmUser(model, benchmark.products)
        records = []
        for name, track in RUNS.items():
            agent = METHODS[name](setup_of(model, track, length=3))

            def solve(task, agent=agent, track=track, details=name == "RecMind"):
                return Environment(shop, task, track, user=user, details=details).play(agent)

            tasks, fields = benchmark.tasks["test"][:12], {"method": name, "model": model.name, "workers": 4}
            records += episodes(folder / "runs.jsonl", tasks, solve, {"code": []}, **fields)
        return records_frame(records)

    return play


def test_faults_do_not_show_and_stored_replies_replay_without_a_key(
    chat_server, frame_of, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(openai_model, "TIMEOUT_S", 1.0)
    sound = chat_server(reply=model_answer)
    shaken = Shaken()
    clean = frame_of(tmp_path / "clean", sound.url)
    assert (clean["outcome"] == "scored").all() and len(clean) == 12 * len(RUNS)
    pd.testing.assert_frame_equal(clean, frame_of(tmp_path / "shaken", chat_server(reply=shaken).url))
    assert shaken.n_failed > 10

    monkeypatch.delenv("OPENAI_API_KEY")
    again = shutil.copytree(tmp_path / "clean", tmp_path / "again")
    (again / "runs.jsonl").unlink()
    pd.testing.assert_frame_equal(clean, frame_of(again))
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
