"""Who plays a role, what that costs, and the models of a run: one store, one budget, trials before work."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest

from pwagents import code
from pwagents.errors import DataError, InfrastructureError
from pwagents.llm import openai_model
from pwagents.llm.budget import Budget, BudgetError, Load, cost_usd, estimate, price_of
from pwagents.llm.chat import Reply
from pwagents.llm.make import Models, notes
from pwagents.llm.openai_model import OpenAIModel
from pwagents.schema import Usage
from pwagents.settings import Players, player

from .conftest import CIRCUMSTANCES, HI
from .server import Answer, ChatServer, default_reply


class Roles(Players):
    policy: Annotated[str, player("offline")] = "offline"
    more: tuple[Annotated[str, player()], ...] = ()


@pytest.fixture
def models(tmp_path):
    """``models(**players)``: the models of a run, which all keep their replies in one file."""
    return lambda **players: Models(Players(**players), tmp_path / "replies.sqlite")


def test_an_endpoint_is_tried_out_stored_and_then_replayed(chat_server, models, monkeypatch):
    server = chat_server()
    made = models(base_url=server.url, budget_tokens=100)
    model = made("openai:gpt-4o-mini")
    reply = model.complete(HI, temperature=0)
    assert model.complete(HI, temperature=0) == reply and len(server.bodies) == 2
    assert server.bodies[0]["messages"][0]["role"] == "system"  # the trial
    assert notes(made.store) == made.note() == ""
    again = models(base_url=server.url, budget_tokens=100)("openai:gpt-4o-mini")
    assert again.complete(HI, temperature=0) == reply and len(server.bodies) == 2
    with pytest.raises(BudgetError):  # studies of one run share it
        again.complete([*HI, *HI])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert models()("replay:gpt-4o-mini").complete(HI, temperature=0) == reply
    with pytest.raises(DataError, match="every reply stored"):
        models()("replay:gpt-4o").complete(HI)


def test_a_dead_endpoint_of_any_role_is_found_before_work(chat_server, models, monkeypatch):
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.002)
    refusal = Answer({"error": {"message": "blocked by the data policy for prompts"}}, 400)
    server = chat_server(reply=lambda body: refusal if body["model"] == "user" else default_reply(body))
    made = models(base_url=server.url)
    policy, _ = made("openai:policy"), made("openai:user")
    with pytest.raises(InfrastructureError, match=r"^user at 127\.0\.0\.1: HTTP 400: blocked by the data"):
        policy.complete(HI)
    assert all(body["messages"] != HI for body in server.bodies)


def test_servers_under_one_name_never_answer_for_each_other_but_by_a_name_that_they_share(models, tmp_path):
    token = "0123456789abcdefTOKEN"
    with ChatServer() as first:
        models(base_url=f"{first.url}/{token}")("openai:m").complete(HI)
        named = models(base_url=first.url, endpoint="tuned")("openai:m").complete(HI)
    # At another port, whether the first is still there or not.
    with ChatServer(reply=lambda body: {"role": "assistant", "content": "second"}) as second:
        assert models(base_url=second.url, endpoint="tuned")("openai:m").complete(HI) == named
        assert not second.calls
        assert models(base_url=f"{second.url}/{token}")("openai:m").complete(HI).text == "second"
    assert all(token.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_what_a_server_does_not_take_is_noted_of_a_resumed_run_too(chat_server, models):
    refusal = Answer({"error": {"message": "no", "param": "seed"}}, 400)
    server = chat_server(reply=lambda body: refusal if "seed" in body else default_reply(body))
    for _ in range(2):
        made = models(base_url=server.url)
        made("openai:m").complete(HI, seed=1)
        assert made.note() == notes(made.store) == "M was sent no seed."
    assert models().note() == "" and len(server.bodies) == 3  # the trial, and the request twice


def test_stored_replies_of_a_model_that_was_replaced_are_told(chat_server, models, capsys):
    server = chat_server()
    for root in ("/a", "/a", "/b", "/b"):
        server.lists = {"data": [{"id": "m", "root": root}]}
        models(base_url=f"{server.url}/")("openai:m").complete(HI)
    printed = capsys.readouterr().out
    assert printed.count("m: its endpoint said something else") == 1 and len(server.bodies) == 2


def test_what_a_server_says_of_its_model_leaves_out_what_is_made_for_the_answer(chat_server, models):
    server, said = chat_server(), {"id": "m", "object": "model", "root": "/models/a", "max_model_len": 4096}
    for created, more in ((int(time.time()), {}), (1_700_000_000, {"created": 1_700_000_000})):
        own = said | {"created": created, "permission": [{"id": f"p{created}"}]}
        server.lists = {"data": [{"id": "other"}, own]}
        made = models(base_url=server.url)
        made("openai:m"), made("openai:not listed")
        others = {"openai:not listed": {"listed": ["other", "m"]}}
        assert made.served() == {"openai:m": said | more} | others
    for odd in ({"data": None}, {"data": ["m"]}, "<html>"):
        server.lists = odd
        made = models(base_url=server.url)
        made("openai:m")
        assert made.served() == {} and not server.bodies


def test_words_and_models_may_play_a_role_and_nobody_else(random_model):
    for spec in ("offline", "openai:org/model:free", "replay:any", f"local:{random_model}"):
        assert Roles(policy=spec).policy == spec
    for spec in ("gpt-4o-mini", "openai:", "azure:gpt-4o", ""):
        with pytest.raises(ValueError, match="expected offline, openai:NAME, local:FOLDER or replay:NAME"):
            Roles(policy=spec)


@pytest.mark.parametrize("url", CIRCUMSTANCES["no urls"])
def test_what_is_no_url_or_holds_a_password_is_refused_and_not_repeated(url, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    for make in (lambda: Players(base_url=url), lambda: OpenAIModel("m")):
        with pytest.raises(ValueError, match="base_url") as refused:
            make()
        assert "hunter2" not in str(refused.value)


def test_keys_of_records_hold_how_models_are_asked_where_one_plays(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert Roles(base_url="http://host/v1").facts("policy") == {"policy": "offline"}
    # The limit of a call to a model on disk is in the key, too.
    replayed = {"endpoint": "", "sampling": {"seed": 1}, "max_new_tokens": None, "policy": "replay:m"}
    assert Roles(policy="replay:m", sampling={"seed": 1}).facts("policy") == replayed
    served = Roles(more=("openai:m",), base_url="http://127.0.0.1:8/v1")
    assert served.facts()["endpoint"] == "http://127.0.0.1:8/v1"
    served.require_keys()  # none, and none needed
    assert Roles(policy="openai:m", endpoint="mine").facts()["endpoint"] == "mine"


COST = Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.01)


def spend(budget):
    """How many calls of this cost it paid for, in all."""
    with pytest.raises(BudgetError, match=r"is spent .* raise the budget"):
        while True:
            budget.pay(lambda: time.sleep(0.01) or Reply(text="x", usage=COST))
    return budget.spent.calls


def test_dollars_and_tokens_are_capped_also_for_calls_under_way():
    assert spend(Budget(max_usd=0.05)) == 5
    assert spend(Budget(max_tokens=100)) == 1
    budget = Budget(max_tokens=2000)
    budget.pay(lambda: Reply(text="x", usage=COST))
    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(spend, [budget] * 8)) == 20


def test_prices_of_names_with_maker_and_date():
    dated = {"openai/GPT-4o-mini-2024-07-18": 0.15 + 0.60, "openai/gpt-4o-2024-05-13": 5 + 15}
    for name, usd in (dated | {"Qwen/Qwen2.5-7B-Instruct": None, "": None}).items():
        assert cost_usd(name, 1e6, 1e6) == pytest.approx(usd or 0)
        assert (price_of(name) is None) == (usd is None)


def test_an_estimate_has_one_row_for_each_role_that_a_model_plays():
    models = ("openai:gpt-4o", "openai:my-model", "local:judge", "offline")
    table = estimate({f"as {model}": Load(model, 100, 1.5, 1000, 20) for model in models})
    assert table.drop(columns="model").values.tolist() == [
        ["as openai:gpt-4o", 150, 150_000, 3_000, pytest.approx(0.405), "2.5 / 10 per million"],
        ["as openai:my-model", 150, 150_000, 3_000, 0, "no price known"],
        ["as local:judge", 150, 150_000, 3_000, 0, "runs here"],
    ]


def test_an_episodes_key_holds_a_local_models_weights_and_the_code_that_asks(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"

    def facts(policy):
        return Models(Roles(policy=policy), tmp_path / "replies.sqlite").facts("policy")

    weights.write_bytes(b"one training")
    before = facts(f"local:{tmp_path}")
    stored = Models(Roles(), tmp_path / "replies.sqlite")(f"replay:{before['policy']}")
    assert stored.limits == {"leak_free": 128, "published": 256}  # as its replies were asked for
    weights.write_bytes(b"another training")
    assert facts(f"local:{tmp_path}")["policy"] != before["policy"] and "-float32" in before["policy"]
    asked, name = facts("openai:gpt-4o-mini"), "pwagents/llm/openai_model.py"
    monkeypatch.setitem(code.LOADED, name, code.LOADED[name] + b"\nWAIT = 1\n")
    monkeypatch.setattr("pwagents.llm.make.require_loaded", lambda hashes: None)  # the file has not changed
    code.hashes_of.cache_clear()
    assert facts("openai:gpt-4o-mini") != asked
    code.hashes_of.cache_clear()
    assert facts("offline") == {"policy": "offline"}  # rules ask nobody
