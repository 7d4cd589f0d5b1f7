"""Episodes of oracle and agents, kept and scored; and notebook 09's experiment: who plays what, on what."""

from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pandas as pd
import pytest

from pwagents.check import check_tables
from pwagents.errors import DataError, NotEvaluableError
from pwagents.persona2web import experiment as module
from pwagents.persona2web.agents.episode import CODE, Condition, Played, run_condition
from pwagents.persona2web.agents.offline import OfflineAgent, oracle
from pwagents.persona2web.agents.recall import telling_texts, train_readers
from pwagents.persona2web.browser.chromium import find_chromium
from pwagents.persona2web.experiment import NEW_PHRASES, OFFLINE, ORACLE, Experiment, loads
from pwagents.persona2web.judge.scores import scores_frame
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.types import WebStep
from pwagents.results.tables import save_table
from pwagents.results.web import main_table, stability_table
from pwagents.settings import load_settings

from ..notebook.notebooks import parameters_of
from .test_history_llm import writer
from .worlds import Says, Words, make_world

NONE = Condition("occam", "none")


def play(world, condition, agent_of, store, method="m", **options):
    return scores_frame(run_condition(world, condition, agent_of, store, method=method, **options), world)


def knowing(world, condition):
    return partial(oracle, condition=condition, truth=world.truth("implicit"))


def offline(readers, scheme):
    return lambda task: OfflineAgent(readers[task.user_id], "indexed", scheme)


def stopping(task):
    return lambda brief, visit: Played([WebStep(observation=visit.observe(), action="stop []")])


def never(task):
    raise AssertionError(f"{task.task_id} was played again")


@pytest.mark.parametrize("architecture", ["occam", "indexed"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_oracle_solves_every_task(world, architecture, level, tmp_path):
    condition = Condition(architecture, "pre_execution", level)
    frame = play(world, condition, knowing(world, condition), tmp_path / "runs")
    assert (frame["success"] == 1).all() and (frame["outcome"] == "scored").all()


def test_the_oracle_succeeds_where_only_one_item_can_be_compared(tmp_path):
    """Its comparison holds one item; by what the task states alone there would be two."""
    many = make_world(n_users=60, records=60)
    many = replace(many, tasks=[task for task in many.tasks if task.goal.operation == "compare"])
    condition = Condition("indexed", "on_demand")
    played = run_condition(many, condition, knowing(many, condition), tmp_path / "runs", method="m")
    assert len(played) > 3 and all(e.trajectory.reached and e.trajectory.intended for e in played)


def test_a_second_run_repeats_nothing_and_conditions_do_not_mix(world, tmp_path, monkeypatch):
    store = tmp_path / "runs"
    first = play(world, NONE, stopping, store)
    assert (first["website_retrieval"] == 0).all() and (first["success"] == 0).all()
    assert play(world, NONE, never, store).equals(first)
    later = replace(world, web=LocalWeb(make_sites(3, edition=1).values()))
    changes = [(world, replace(NONE, **{name: 1}), {}) for name in ("level", "sample", "faults")]
    for other, changed, params in [*changes, (world, NONE, {"top_p": 1}), (later, NONE, {})]:
        with pytest.raises(RuntimeError, match="played again"):
            play(other, changed, never, store, params=params)
    monkeypatch.setattr("pwagents.persona2web.agents.episode.CODE", CODE[:-1])
    with pytest.raises(RuntimeError, match="played again"):
        play(replace(world), NONE, never, store)


def test_a_frame_has_the_same_columns_whatever_was_played(world, tmp_path):
    refuse = Mock(side_effect=NotEvaluableError("too long"))
    frame = play(world, NONE, stopping, tmp_path / "runs")
    refused = play(world, NONE, lambda task: refuse, tmp_path / "runs", method="refused")
    assert (refused["outcome"] == "not_evaluable").all() and refused["success"].isna().all()
    for other in (refused, scores_frame([], world)):
        assert list(other.columns) == list(frame.columns)


def test_failing_pages_are_counted_apart_and_two_runs_are_the_same(world, readers, tmp_path):
    def run(name, faults=0.2):
        condition, agent_of = Condition("indexed", "on_demand", faults=faults), offline(readers, "on_demand")
        return run_condition(world, condition, agent_of, tmp_path / name, method="m")

    first, again, calm = run("a"), run("b"), run("c", faults=0.0)
    assert [record.trajectory for record in first] == [record.trajectory for record in again]
    frame, quiet = scores_frame(first, world), scores_frame(calm, world)
    assert frame["fault"].mean() > 0.5 and (quiet["fault"] == 0).all()
    assert frame["intent"].mean() > 0 and (quiet["intent"] == 1).all()  # it tries again
    assert (frame.loc[frame["intent"] < 1, "fault"] == 1).all()


@pytest.mark.parametrize("scheme", ["on_demand", "pre_execution"])
def test_the_more_is_known_and_said_the_more_succeeds(world, readers, scheme, tmp_path):
    def means(scheme, level=2, memory="implicit"):
        condition = Condition("indexed", scheme, level, memory)
        frame = play(world, condition, offline(readers, scheme), tmp_path / "runs", scheme)
        assert (frame["steps"] <= 25).all()
        return frame[["p_web", "p_pref", "p_avg", "success", "looks"]].mean()

    explicit, implicit, recency = (means(scheme, 2, each) for each in ("explicit", "implicit", "recency"))
    nothing = means("none")
    assert nothing["looks"] == nothing["success"] == 0 < implicit["looks"]
    assert nothing["p_avg"] < implicit["p_avg"] < 1
    for measure in ("p_web", "p_pref", "p_avg"):
        assert explicit[measure] > implicit[measure] > recency[measure]
    assert explicit["success"] > implicit["success"]
    assert 1 == means(scheme, 0)["success"] > means(scheme, 1)["success"] > implicit["success"]


def test_a_reader_of_new_phrases_learned_from_no_record_that_it_is_tested_on(world):
    seen, groups = [], {0: [], 1: []}

    class Notes(Words):
        def encode(self, texts):
            seen.extend(texts)
            return super().encode(texts)

    readers = train_readers(world.histories, Notes(), shared_phrases=False)
    assert set(readers) == set(world.histories) and seen
    for history in world.histories.values():
        groups[history.person.group].append(history)
    both = set.intersection(*({*telling_texts(histories)} for histories in groups.values()))
    assert both and not both & {*seen}


# --- the notebook's experiment ---


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
    offline = {(OFFLINE, "implicit", "bm25"), (OFFLINE, "explicit", "minilm")}
    assert kinds == {(NEW_PHRASES, "implicit", "minilm")} | offline
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
    table = stability_table(experiment.levels().query("memory == 'implicit'"), repeated, frame)
    assert (table.loc[table["row"] == ORACLE, "difference"].dropna() == 0).all()


def test_a_dial_at_its_own_value_is_the_notebooks_world(experiment):
    frame, usual = experiment.dialled(), experiment.settings.histories
    assert list(frame["dial"].unique()) == ["consistency", "site_share", "drift", "literal"]
    same = [part[part["value"] == getattr(usual, dial)] for dial, part in frame.groupby("dial")]
    assert all(list(part["p_avg"]) == list(same[0]["p_avg"]) for part in same)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed")
def test_chromium_gives_the_same_trajectories(experiment):
    frame = experiment.in_chromium()
    assert frame["same"].all() and set(frame["driver"]) == {"html", "chromium"}
    assert (frame[frame["method"] == ORACLE]["success"] == 1).all()


def stops(*_):
    """Stops at once; asked for looks, it wants none; as a judge it gives full marks."""
    facets = ("website_utilization", "preference_utilization", "website_retrieval", "preference_retrieval")
    scores = ", ".join(f'"{name}": 1' for name in (*facets, "intent"))
    return f'{{"need_memory": false, "queries": [], {scores}}}\nAction: stop []'


def test_language_models_play_all_cells_in_one_table_and_are_judged(tmp_path, monkeypatch):
    by_name = Mock(side_effect=lambda spec: Says(stops, spec.partition(":")[2]), served=dict)
    monkeypatch.setattr(module, "Models", lambda *_: by_name)
    players = {"policy": "replay:a", "more_policies": ["replay:b"], "judge": "replay:j"}
    experiment = make(tmp_path, players=players)
    level_2 = experiment.levels().query("level == 2")
    ours = main_table(level_2).query("source == 'here'")
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
    table = main_table(experiment.levels().query("level == 2"))
    save_table(table, "09_with_paper", title="x", output_dir=tmp_path)
    cells = check_tables(tmp_path, tmp_path)
    assert len(cells) > 20 and {cell.verdict for cell in cells} == {"OK"}
    here = table["source"] == "here"
    assert table.loc[here, ["backbone", "data", "n", "grader"]].notna().all(axis=None)
    assert pd.isna(table.loc[~here, "SE of SR"]).all()
