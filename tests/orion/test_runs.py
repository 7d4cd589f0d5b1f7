"""Episodes of policies and of those they are compared with: stored, found again, the same after a kill."""

import os

import pytest

from pwagents.errors import DataError, NotEvaluableError
from pwagents.orion.references import CONTENT, INSTRUCTION, ORACLE, RANDOM, TEACHER, play_references
from pwagents.orion.runs import OrionRuns, episodes_frame
from pwagents.orion.train import OrionModels

from .small_study import elsewhere, save_tiny_model, small_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def study(folder):
    return small_study(folder, data={"n_users": 20})  # for eight test tasks


@pytest.fixture(scope="module")
def model(folder):
    return save_tiny_model(folder / "tiny")


def trajectories(records):
    return [record.trajectory for record in records]


def test_one_record_a_task_and_nothing_is_played_twice(study, model, tmp_path):
    runs = OrionRuns(elsewhere(study, tmp_path))
    greedy, sampled = runs.policy("tiny", model), runs.policy("tiny", model, sampled=True)
    assert [record.task_id for record in greedy] == [task.task_id for task in study.test_tasks]
    assert {record.outcome for record in greedy} == {"scored"}
    assert trajectories(greedy) != trajectories(sampled)
    before = runs.store.read_bytes()
    assert runs.policy("tiny", model) == greedy and runs.store.read_bytes() == before
    stored = OrionRuns(elsewhere(study, tmp_path, stored_runs_only=True))
    assert stored.policy("tiny", model, sampled=True) == sampled
    with pytest.raises(DataError, match=f"{len(study.test_tasks)} of {len(study.test_tasks)} missing"):
        stored.policy("another row", model)


def test_an_engine_plays_the_same_episodes_and_policies_stay_here(study, model, tmp_path, ship):
    def played(folder):
        runs = OrionRuns(elsewhere(study, folder))
        return list(map(trajectories, [*play_references(runs).values(), runs.policy("tiny", model)]))

    here = played(tmp_path / "here")
    ship()
    assert played(tmp_path / "there") == here


def test_trainings_beside_each_other_have_their_study(study, ship):
    ship()
    made = OrionModels(study).side_by_side(lambda n: [task.task_id for task in study.train_tasks[:n]], [1, 2])
    assert made == [[task.task_id for task in study.train_tasks[:n]] for n in (1, 2)]


def test_trainings_of_a_study_that_asks_a_language_model_stay_in_one_process(study, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    asked = small_study(tmp_path, players={"updater": "openai:gpt-4o-mini"})
    # What is trained says nothing of the study, as where each training makes one of its own.
    assert OrionModels(asked).side_by_side(lambda _: os.getpid(), range(2)) == [os.getpid()] * 2
    assert len(set(OrionModels(study).side_by_side(lambda _: os.getpid(), range(2)))) == 2


def test_another_model_of_the_same_name_is_another_run(study, model, tmp_path):
    runs = OrionRuns(elsewhere(study, tmp_path))
    other = save_tiny_model(tmp_path / "tiny", seed=2)
    assert trajectories(runs.policy("tiny", model)) != trajectories(runs.policy("tiny", other))


def test_a_run_that_was_killed_goes_on_to_the_same_sampled_episodes(study, model, tmp_path):
    whole = OrionRuns(elsewhere(study, tmp_path / "whole"))
    played = whole.policy("tiny", model, sampled=True)
    lines = whole.store.read_bytes().splitlines(keepends=True)
    cut = OrionRuns(elsewhere(study, tmp_path / "cut"))
    cut.store.parent.mkdir(parents=True)
    cut.store.write_bytes(b"".join(lines[:4]) + lines[4][:50])  # in the middle of the second batch
    again = cut.policy("tiny", model, sampled=True)
    assert trajectories(again) == trajectories(played)


def test_a_task_that_cannot_be_scored_is_counted_apart(study, model, tmp_path):
    lost = study.test_tasks[1]

    def start(task):
        if task is lost:
            raise NotEvaluableError("no real review")
        return study.start(task)

    variant = {"start": start, "variant": {"lost": lost.task_id}}
    runs = OrionRuns(elsewhere(study, tmp_path), **variant)
    outcomes = [record.outcome for record in runs.policy("tiny", model)]
    assert outcomes == ["scored", "not_evaluable", *["scored"] * 6]
    frame = episodes_frame(runs.policy("tiny", model))
    assert frame["asks"].isna().tolist() == [outcome != "scored" for outcome in outcomes]


def test_a_user_who_refuses_to_answer_costs_that_task_alone(study, model, tmp_path):
    lost = study.test_tasks[4]

    def refuse(action):
        raise NotEvaluableError("the model behind the user refuses")

    def start(task):
        episode = study.start(task)
        if task is lost:
            episode.step = refuse
        return episode

    runs = OrionRuns(elsewhere(study, tmp_path), start=start, variant={"refused": lost.task_id})
    outcomes = {record.task_id: record.outcome for record in runs.policy("tiny", model)}
    assert [name for name, outcome in outcomes.items() if outcome == "not_evaluable"] == [lost.task_id]


def test_references_stand_in_the_order_of_what_they_know(study, tmp_path):
    played = play_references(OrionRuns(elsewhere(study, tmp_path)))
    frames = {name: episodes_frame(records) for name, records in played.items()}
    result = {name: frame["result_final"].mean() for name, frame in frames.items()}
    assert list(played) == [RANDOM, INSTRUCTION, CONTENT, TEACHER, ORACLE]
    assert result[RANDOM] < min(result[INSTRUCTION], result[TEACHER]) and result[ORACLE] == 1
    asks = {name: frame["asks"].mean() for name, frame in frames.items()}
    assert asks[INSTRUCTION] == asks[ORACLE] == 0 < min(asks[RANDOM], asks[TEACHER])
    assert not any(step.error for t in trajectories(played[RANDOM]) for step in t.steps)


def test_references_can_do_every_task(folder, tmp_path):
    study = small_study(folder, study={"task_types": ("search", "recommend", "review"), "eval_tasks": 12})
    played = play_references(OrionRuns(elsewhere(study, tmp_path)))
    oracle = episodes_frame(played[ORACLE]).groupby("type")["result_final"].mean()
    assert oracle["search"] == 1 and oracle["review"] == pytest.approx(1, abs=1e-3)
    assert (episodes_frame(played[ORACLE])["function_accuracy"] == 1).all()
    instruction = episodes_frame(played[INSTRUCTION]).set_index("type")["function_accuracy"]
    assert (instruction.drop("recommend") == 1).all()
