"""Who plays a role, and what the models of a run share."""

from typing import Annotated

import pytest

from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.settings import Players, player
from pwagents.settings import meaning, settings


@settings
class Roles(Players):
    policy: Annotated[str, player("offline")] = "offline"
    """Who acts."""
    user: Annotated[str, player("none", "rules")] = "rules"
    """Who answers."""


@pytest.mark.parametrize("policy", ["offline", "openai:gpt-4o-mini", "openai:org/model:free", "replay:any"])
def test_words_and_models_may_play_a_role(policy):
    assert Roles(policy=policy).policy == policy
    assert meaning(Roles, "policy") == "Who acts."


@pytest.mark.parametrize("policy", ["gpt-4o-mini", "rules", "openai:", "azure:gpt-4o", ""])
def test_another_player_is_refused_with_what_was_expected(policy):
    with pytest.raises(ValueError, match="expected offline, openai:NAME, local:FOLDER or replay:NAME"):
        Roles(policy=policy)
    with pytest.raises(ValueError, match="expected none, rules, openai:NAME"):
        Roles(user="offline")


@pytest.mark.parametrize("name", ["config.json", "adapter_config.json"])
def test_a_local_model_is_a_folder_that_holds_one(tmp_path, name):
    with pytest.raises(ValueError, match=r"holds no config\.json and no adapter_config\.json"):
        Roles(policy=f"local:{tmp_path}")
    (tmp_path / name).touch()
    assert Roles(policy=f"local:{tmp_path}").policy == f"local:{tmp_path}"


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8000/v1", "https://api.deepseek.com"])
def test_an_endpoint_is_a_url_or_empty(url):
    assert Players(base_url=url).base_url == url


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://", "http://[half"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ValueError, match="base_url"):
        Players(base_url=url)


@pytest.mark.parametrize("login", ["me:hunter2", "hunter2", ":hunter2", "me:hunter2/"])
def test_a_password_in_a_url_is_refused_and_not_repeated(login):
    with pytest.raises(ValueError, match=r"holds user:password@.*variable OPENAI_API_KEY") as refused:
        Players(base_url=f"https://{login}@host/v1")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["https://host/v1?key=hunter2", "https://me:hunter2%40host/v1", "https://me:hunter2\uff20host/v1"],
)
def test_nor_does_a_query_or_what_a_password_hides_in(url, monkeypatch):
    with pytest.raises(ValueError, match="base_url") as refused:
        Players(base_url=url)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ValueError, match="base_url") as refused:
        OpenAIModel("m")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"budget_usd": 0}, {"budget_tokens": -1}, {"workers": 0}, {"worker": 2}])
def test_numbers_out_of_range_and_unknown_names_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Players(**wrong)


def test_a_missing_key_is_told_before_the_run(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    Roles().require_keys()
    Roles(policy="replay:gpt-4o").require_keys()
    with pytest.raises(ValueError, match=r"^policy: .*set the environment variable OPENAI_API_KEY$"):
        Roles(policy="openai:gpt-4o").require_keys()
    with pytest.raises(ValueError, match=r"^policy, user: "):
        Roles(policy="openai:gpt-4o", user="openai:gpt-4o").require_keys()


def test_no_key_is_asked_for_where_there_is_one_or_another_endpoint(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    Roles(policy="openai:gpt-4o").require_keys()
    monkeypatch.delenv("OPENAI_API_KEY")
    Roles(policy="openai:qwen", base_url="http://127.0.0.1:8000/v1").require_keys()
