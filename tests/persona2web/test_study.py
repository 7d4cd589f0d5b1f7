"""Notebook 09's study on a small world: who plays what, what is stored, and what must hold of the scores."""

from unittest.mock import Mock

import pytest

from pwagents.errors import DataError
from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web import experiment as module
from pwagents.persona2web.agents.episode import run_episode
from pwagents.persona2web.agents.offline import Oracle
from pwagents.persona2web.browser.chromium import find_chromium
from pwagents.persona2web.browser.driver import HtmlDriver
from pwagents.persona2web.experiment import CHANCE, OFFLINE, ORACLE, Study
from pwagents.persona2web.show import costs, reading
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.history import make_histories
from pwagents.persona2web.world.queries import answers_of, make_tasks
from pwagents.schema import Usage
from pwagents.settings import HistorySettings, QuerySettings, load_settings

from ..notebook.notebooks import parameters_of
from .worlds import Words


def make_study(folder, **changes):
    parameters = parameters_of("09_persona2web") | {"preset": "smoke"} | changes
    settings = load_settings("09_persona2web", parameters)
    return Study(settings, folder / "cache", folder / "runs" / "replies.sqlite")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Embedder", lambda *_, **__: Words())
        yield make_study(tmp_path_factory.mktemp("study"))


def test_a_level_holds_guesses_agent_and_oracle_under_both_architectures(study):
    frame = study.level(2)
    assert set(frame["architecture"]) == {"indexed", "occam"}
    played = frame.groupby("method")["scheme"].unique().map(set)
    assert played[CHANCE] == {"none"} and played[ORACLE] == {"on_demand"}
    assert played[OFFLINE] == {"none", "on_demand", "pre_execution"}
    assert (frame[frame["method"] == ORACLE]["success"] == 1).all()
    latest = frame[frame["memory"] == "recency"]
    assert set(latest["scheme"]) == {"on_demand", "pre_execution"}
    assert "recency" not in set(study.level(0)["memory"])


def test_what_is_stored_is_not_played_again(study, monkeypatch):
    first = study.level(1)

    def never(*_):
        raise AssertionError("an episode was played again")

    monkeypatch.setattr("pwagents.persona2web.agents.episode.run_episode", never)
    assert study.level(1).equals(first)


def test_an_engine_plays_the_same_episodes(study, monkeypatch, tmp_path, ship):
    monkeypatch.setattr(module, "Embedder", lambda *_, **__: Words())
    here = study.level(0)
    ship()
    assert make_study(tmp_path).level(0).equals(here)


def test_stored_runs_alone_play_nothing_and_miss_what_is_not_there(study, monkeypatch):
    monkeypatch.setattr(module, "Embedder", lambda *_, **__: Words())
    first = study.level(0)
    stored = make_study(study.folder.parent, stored_runs_only=True)
    assert stored.level(0).equals(first)
    with pytest.raises(ValueError, match="missing"):
        stored.variants()


def test_variants_differ_in_what_may_be_known(study):
    frame = study.variants()
    known = frame.groupby("asked")[["memory", "retriever"]].agg(set)
    assert known.loc[False, "memory"] == {"explicit", "implicit"}
    assert known.loc[False, "retriever"] == {"minilm", "bm25"} and known.loc[True, "retriever"] == {"minilm"}
    asked = frame[frame["asked"] & (frame["scheme"] == "none")]
    assert (asked["reached"] == 1).all()


def test_failing_pages_are_drawn_anew_in_each_run(study):
    frame = study.repeated()
    assert sorted(frame["sample"].unique()) == list(range(study.settings.study.runs))
    oracle = frame[frame["method"] == ORACLE]
    assert (oracle.loc[oracle["fault"] == 0, "success"] == 1).all()


def test_the_web_of_later_is_another_one_with_the_same_tasks(study):
    today, later = study.world.web.sites, study.world_of(study.settings.histories, module.LATER).web.sites
    assert today.keys() == later.keys()
    assert all(today[host].items != later[host].items for host in today)
    assert any(today[host].skin != later[host].skin for host in today)
    frame = study.later()
    assert set(frame["task_id"]) == {task.task_id for task in study.world.tasks}
    assert set(frame["method"]) == {CHANCE, OFFLINE, ORACLE}


def test_a_dial_at_its_own_value_is_the_notebooks_world(study):
    frame = study.dialled()
    assert list(frame["dial"].unique()) == ["consistency", "site_share", "drift", "literal"]
    same = [
        frame[(frame["dial"] == dial) & (frame["value"] == getattr(study.settings.histories, dial))]["p_avg"]
        for dial in frame["dial"].unique()
    ]
    assert all(list(part) == list(same[0]) for part in same)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed")
def test_chromium_gives_the_same_trajectories(study):
    frame = study.in_chromium()
    assert frame["same"].all() and set(frame["driver"]) == {"html", "chromium"}
    assert (frame[frame["method"] == ORACLE]["success"] == 1).all()


def test_a_user_is_asked_by_the_variant_alone(study):
    assert study.world.ask is None and study.asking.ask is answers_of
    assert study.asking.tasks == study.world.tasks


def test_the_oracle_succeeds_where_only_one_item_can_be_compared():
    """Its comparison holds one item; by what the task states alone there would be two."""
    histories = make_histories(HistorySettings(records=60), seed=0)
    sites = make_sites(0)
    web = LocalWeb(sites.values())
    truth = module.World(histories, (), web, Words(), "test").truth("implicit")
    tasks = make_tasks(histories, sites, QuerySettings(), seed=0)
    compared = [task for task in tasks if task.goal.operation == "compare"]
    driver = HtmlDriver(web)
    for task in compared:
        agent = Oracle(truth, "indexed", "on_demand").for_task(task, 2)
        played = run_episode(task, 2, agent, None, web, driver, "indexed", "on_demand")
        assert played.reached and played.intended, task.task_id
    assert len(compared) > 3


class Talker(ChatModel):
    """Stops at once; asked for looks, it wants none."""

    name = "talker"

    def reply(self, request):
        return Reply(text='{"need_memory": false, "queries": []}\nAction: stop [done]', usage=SPENT)


SPENT = Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.5)


def test_a_language_model_plays_beside_the_offline_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Embedder", lambda *_, **__: Words())
    monkeypatch.setattr(module, "Models", lambda *_: Mock(return_value=Talker(), served=dict))
    study = make_study(tmp_path, players={"policy": "replay:talker"})
    frame = study.level(2)
    talked = frame[frame["method"] == "talker"]
    assert set(talked["model"]) == {"talker"} and not talked["success"].any()
    assert set(talked["scheme"]) == set(module.SCHEMES)
    tuned = {"policy": "replay:talker", "endpoint": "tuned"}  # another endpoint
    other = make_study(tmp_path, players=tuned, stored_runs_only=True)
    with pytest.raises(DataError, match="2 of 2 missing"):
        other.episodes("level_2", "talker", other._condition("indexed", "none"))
    spent = costs(frame)
    assert set(spent["agent"]) == {"talker"} and (spent["tokens"] >= 100).all()
    assert spent["US dollars in all"].sum() == pytest.approx(talked["usd"].sum())


def test_what_an_episode_has_to_read_is_counted_by_pages(study):
    study.level(2)
    table = reading(study.walks(), lambda texts: [1] * len(texts)).set_index("episodes")
    assert (table["tokens of a page"] == 1).all()
    web_steps = table["steps"] - table["looks"]
    assert table["tokens of pages sent"]["indexed, on-demand"] == web_steps["indexed, on-demand"]
    assert table["tokens of pages sent"]["occam, on-demand"] > web_steps["occam, on-demand"]
