"""Notebook 09's experiment on a small world: who plays what, what is stored, what must hold of scores."""

from unittest.mock import Mock

import pandas as pd
import pytest

from pwagents.errors import DataError
from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web import experiment as module
from pwagents.persona2web.agents.episode import Brief, Condition, World, run_episode
from pwagents.persona2web.agents.offline import oracle
from pwagents.persona2web.browser.chromium import find_chromium
from pwagents.persona2web.browser.driver import HtmlDriver
from pwagents.persona2web.experiment import NEW_PHRASES, OFFLINE, ORACLE, Experiment, loads
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.history import make_histories
from pwagents.persona2web.world.queries import make_tasks
from pwagents.results.web import main_table, stability_table
from pwagents.schema import Usage
from pwagents.settings import HistorySettings, QuerySettings, load_settings

from ..notebook.notebooks import parameters_of
from .test_history_llm import writer
from .worlds import Words


def settings_of(**changes):
    parameters = parameters_of("09_persona2web") | {"preset": "smoke"} | changes
    return load_settings("09_persona2web", parameters)


def make(folder, **changes):
    return Experiment(settings_of(**changes), folder / "cache", folder / "runs" / "replies.sqlite")


@pytest.fixture(scope="module", autouse=True)
def words():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Embedder", lambda *_, **__: Words())
        yield


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return make(tmp_path_factory.mktemp("experiment"))


def test_levels_hold_agent_and_oracle_and_the_offline_cells_are_one(experiment):
    frame = experiment.levels()
    played = frame.groupby("method")["scheme"].unique().map(set)
    assert played.to_dict() == {OFFLINE: {"none", "on_demand"}, ORACLE: {"on_demand"}}
    assert set(frame["architecture"]) == {"indexed"} and set(frame["level"]) == {0, 1, 2}
    assert (frame[frame["method"] == ORACLE]["success"] == 1).all()
    assert set(frame.loc[frame["memory"] == "recency", "level"]) == {2}
    same, tried = experiment.same_cells()
    assert same == tried > 0


def test_what_is_stored_is_not_played_again_nor_by_an_engine(experiment, monkeypatch, tmp_path, ship):
    first = experiment.levels()

    def never(*_):
        raise AssertionError("an episode was played again")

    with monkeypatch.context() as patch:
        patch.setattr("pwagents.persona2web.agents.episode.run_episode", never)
        assert experiment.levels().equals(first)
    stored = make(experiment.folder.parent, stored_runs_only=True)
    assert stored.levels().equals(first)
    with pytest.raises(ValueError, match="missing"):
        stored.knowledge()
    ship()
    assert make(tmp_path).levels().equals(first)


def test_agents_differ_in_what_they_may_know(experiment):
    frame = experiment.knowledge()
    kinds = set(zip(frame["method"], frame["memory"], frame["retriever"], strict=True))
    assert kinds == {
        (NEW_PHRASES, "implicit", "minilm"), (OFFLINE, "implicit", "bm25"), (OFFLINE, "explicit", "minilm"),
    }  # fmt: skip
    assert 0 <= experiment.shared_records() < 1


def test_later_the_sites_differ_and_every_task_can_still_be_done(experiment):
    today = experiment.world.web.sites
    later = experiment.world_of(experiment.settings.histories, module.LATER).web.sites
    for host, site in today.items():
        assert later[host].items != site.items and later[host].labels != site.labels
        assert later[host].skin != site.skin
    frame, repeated = experiment.later(), experiment.repeated()
    assert (frame.loc[frame["method"] == ORACLE, "success"] == 1).all()
    assert sorted(repeated["sample"].unique()) == list(range(experiment.settings.study.runs))
    calm = repeated[(repeated["method"] == ORACLE) & (repeated["fault"] == 0)]
    assert (calm["success"] == 1).all()
    levels = experiment.levels()
    table = stability_table(levels[levels["memory"] == "implicit"], repeated, frame)
    assert (table.loc[table["row"] == ORACLE, "difference"].dropna() == 0).all()


def test_a_dial_at_its_own_value_is_the_notebooks_world(experiment):
    frame = experiment.dialled()
    assert list(frame["dial"].unique()) == ["consistency", "site_share", "drift", "literal"]
    same = [
        frame[(frame["dial"] == dial) & (frame["value"] == getattr(experiment.settings.histories, dial))]
        for dial in frame["dial"].unique()
    ]
    assert all(list(part["p_avg"]) == list(same[0]["p_avg"]) for part in same)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed")
def test_chromium_gives_the_same_trajectories(experiment):
    frame = experiment.in_chromium()
    assert frame["same"].all() and set(frame["driver"]) == {"html", "chromium"}
    assert (frame[frame["method"] == ORACLE]["success"] == 1).all()


def test_the_oracle_succeeds_where_only_one_item_can_be_compared():
    """Its comparison holds one item; by what the task states alone there would be two."""
    histories, sites = make_histories(HistorySettings(records=60), seed=0), make_sites(0)
    web, condition = LocalWeb(sites.values()), Condition("indexed", "on_demand")
    truth = World(histories, (), web, Words(), "test").truth("implicit")
    tasks = make_tasks(histories, sites, QuerySettings(), seed=0)
    compared = [task for task in tasks if task.goal.operation == "compare"]
    driver = HtmlDriver(web)
    for task in compared:
        agent = oracle(task, condition, truth)
        played = run_episode(task, condition, agent, Brief(task.texts[2], None), web, driver)
        assert played.reached and played.intended, task.task_id
    assert len(compared) > 3


class Talker(ChatModel):
    """Stops at once; asked for looks, it wants none; as a judge it gives full marks."""

    def __init__(self, name):
        self.name = name

    def reply(self, request):
        names = ("website_utilization", "preference_utilization", "intent", "website_retrieval")
        scores = ", ".join(f'"{name}": 1' for name in (*names, "preference_retrieval"))
        return Reply(text=f'{{"need_memory": false, "queries": [], {scores}}}\nAction: stop []', usage=SPENT)


SPENT = Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.5)


def models(settings, store):
    return Mock(side_effect=lambda spec: Talker(spec.partition(":")[2]), served=dict, facts=lambda *_: {})


def test_language_models_play_all_cells_in_one_table_and_are_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Models", models)
    players = {"policy": "replay:a", "more_policies": ["replay:b"], "judge": "replay:j"}
    experiment = make(tmp_path, players=players)
    level_2 = experiment.levels().query("level == 2")
    table = main_table(level_2)
    ours = table[table["source"] == "here"]
    for name in ("a", "b"):
        rows = ours[ours["backbone"] == name]
        assert len(rows) == 6 and (rows["SR"] == 0).all()
    assert (level_2.loc[level_2["method"] == "a", "usd"] >= 0.5).all()
    agents = experiment.judged_agents(tmp_path / "sheet.csv")
    model = agents[agents["judge"] == "language model"].set_index("measure")
    assert model.loc["success", "accuracy"] < 1 and (tmp_path / "sheet.csv").exists()
    tuned = make(tmp_path, players=players | {"endpoint": "tuned"}, stored_runs_only=True)
    with pytest.raises(DataError, match="missing"):
        tuned.episodes("level_2", "a", tuned.condition("none"))


def test_histories_by_a_language_model_are_played_on(tmp_path, monkeypatch):
    made = Mock(side_effect=lambda spec: writer(), served=dict, facts=lambda *_: {"historian": "w"})
    monkeypatch.setattr(module, "Models", lambda *_: made)
    histories = {"n_users": 2, "records": 80, "n_domains": 2}
    experiment = make(tmp_path, players={"historian": "replay:w"}, histories=histories)
    assert set(experiment.world.histories) == {"user_00", "user_01"} and made.call_count == 1
    frame = experiment.play("level_0", [ORACLE], [experiment.condition(level=0)])
    assert (frame["success"] == 1).all() and experiment.world.data != make(tmp_path / "b").world.data


def test_costs_are_told_from_the_settings_alone():
    roles = loads(settings_of(players={"policy": "replay:gpt-4.1", "more_policies": ["replay:o3"]}))
    assert set(roles) == {"policy", "policy 2", "judge", "historian"}
    assert roles["policy"].tasks > roles["policy 2"].tasks > 0


def test_the_papers_rows_stand_as_printed(experiment, tmp_path):
    """As `make check` compares them."""
    from pwagents.check import check_tables
    from pwagents.results.tables import save_table

    table = main_table(experiment.levels().query("level == 2"))
    save_table(table, "09_with_paper", title="x", output_dir=tmp_path)
    cells = check_tables(tmp_path, tmp_path)
    assert len(cells) > 20 and {cell.verdict for cell in cells} == {"OK"}
    ours = table[table["source"] == "here"]
    assert ours[["backbone", "data", "n", "grader"]].notna().all(axis=None)
    assert pd.isna(table.loc[table["source"] != "here", "SE of SR"]).all()
