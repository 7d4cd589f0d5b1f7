"""Who plays a role, and the models of a run: one store, one budget, endpoints tried out before work."""

import subprocess
import sys
from typing import Annotated

import pytest

from pwagents.errors import DataError, InfrastructureError
from pwagents.llm import openai_model
from pwagents.llm.budget import BudgetError
from pwagents.llm.make import Models, notes
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.settings import Players, player
from pwagents.settings import settings

from .conftest import HI
from .server import Answer, ChatServer, default_reply


@settings
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
    assert notes(made.store) == made.note() == "1 of 2 replies of gpt-4o-mini were stored ones."
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


def test_servers_under_one_name_never_answer_for_each_other_and_one_may_move(models, tmp_path):
    token = "0123456789abcdefTOKEN"
    with ChatServer() as first:
        reply = models(base_url=f"{first.url}/{token}")("openai:m").complete(HI)
        named = models(base_url=first.url, endpoint="tuned")("openai:m").complete(HI)
    with ChatServer() as second:  # it came back at another port
        assert models(base_url=f"{second.url}/{token}")("openai:m").complete(HI) == reply
        assert models(base_url=second.url, endpoint="tuned")("openai:m").complete(HI) == named
        assert not second.calls
        with ChatServer(reply=lambda body: {"role": "assistant", "content": "beside"}) as beside:
            assert models(base_url=f"{beside.url}/{token}")("openai:m").complete(HI).text == "beside"
    assert all(token.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_words_and_models_may_play_a_role_and_nobody_else(models, random_model):
    for spec in ("offline", "openai:org/model:free", "replay:any", f"local:{random_model}"):
        assert Roles(policy=spec).policy == spec
    for spec in ("gpt-4o-mini", "openai:", "azure:gpt-4o", ""):
        with pytest.raises(ValueError, match="expected openai:NAME, local:FOLDER or replay:NAME"):
            models()(spec)
        with pytest.raises(ValueError, match="expected offline, openai:NAME, local:FOLDER or replay:NAME"):
            Roles(policy=spec)


@pytest.mark.parametrize(
    "url",
    ["localhost:8000/v1", "ftp://host/v1", "http://", "http://[half", "https://me:hunter2@host/v1",
     "https://hunter2@host/v1", "https://me:hunter2/@host/v1", "https://host/v1?key=hunter2",
     "https://me:hunter2\uff20host/v1"],
)  # fmt: skip
def test_what_is_no_url_or_holds_a_password_is_refused_and_not_repeated(url, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    for make in (lambda: Players(base_url=url), lambda: OpenAIModel("m")):
        with pytest.raises(ValueError, match="base_url") as refused:
            make()
        assert "hunter2" not in str(refused.value)


def test_a_missing_key_is_told_before_the_run(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Roles(policy="replay:gpt-4o").require_keys()
    Roles(policy="openai:qwen", base_url="http://127.0.0.1:8000/v1").require_keys()
    with pytest.raises(ValueError, match=r"^policy, more: .*set the environment variable OPENAI_API_KEY$"):
        Roles(policy="openai:gpt-4o", more=("openai:gpt-4o",)).require_keys()


def test_keys_of_records_hold_how_models_are_asked_where_one_plays():
    assert Roles(base_url="http://host/v1").facts("policy") == {"policy": "offline"}
    replayed = {"endpoint": "", "sampling": {"seed": 1}, "policy": "replay:m"}
    assert Roles(policy="replay:m", sampling={"seed": 1}).facts("policy") == replayed
    assert Roles(more=("openai:m",), base_url="http://127.0.0.1:8/v1").facts()["endpoint"] == "127.0.0.1/v1"
    assert Roles(policy="openai:m", endpoint="mine").facts()["endpoint"] == "mine"


def test_making_a_model_loads_nothing_heavy(random_model, tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom pwagents.llm.make import Models, Players\n"
        f"models = Models(Players(), Path({str(tmp_path / 'r')!r}))\n"
        f"models('openai:m'), models('local:{random_model}')\n"
        "sys.exit(str([n for n in ('torch', 'transformers', 'openai', 'pandas') if n in sys.modules] or 0))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == "0\n"
