"""Episodes of policies and of all they are compared with: stored, found again, the same after a kill."""

from types import SimpleNamespace

import pytest

from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.llm.make import Models
from pwagents.orion import train as orion_train
from pwagents.orion.baselines import BASELINES, play_baselines
from pwagents.orion.experiment import OrionRuns
from pwagents.orion.judge import judge_of
from pwagents.orion.references import (
    CONTENT,
    INSTRUCTION,
    KNOWS,
    RANDOM,
    TEACHER,
    play_everyone,
    play_references,
)
from pwagents.orion.reward import Rewards
from pwagents.orion.teacher import make_teacher
from pwagents.orion.train import count_questions, play_ladder
from pwagents.results.episodes import records_frame
from pwagents.results.orion import orion_frame
from pwagents.settings import GrpoNotebook

from ..llm.server import ChatServer
from ..paper_standins import answer
from .small_study import elsewhere, notebook, play, save_tiny_model


@pytest.fixture
def runs(study, tmp_path):
    return OrionRuns(elsewhere(study, tmp_path))


def trajectories(records):
    return [record.trajectory for record in records]


def test_one_record_a_task_and_nothing_is_played_twice(study, tiny, runs, tmp_path):
    greedy, sampled = runs.policy("tiny", tiny), runs.policy("tiny", tiny, sampled=True)
    assert [record.task_id for record in greedy] == [task.task_id for task in study.test_tasks]
    assert {record.outcome for record in greedy} == {"scored"}
    assert trajectories(greedy) != trajectories(sampled)
    before = runs.store.read_bytes()
    assert runs.policy("tiny", tiny) == greedy and runs.store.read_bytes() == before
    other = save_tiny_model(tmp_path / "tiny", seed=2)  # of the same name
    assert trajectories(runs.policy("tiny", other)) != trajectories(greedy)
    stored = OrionRuns(elsewhere(study, tmp_path, stored_runs_only=True))
    assert stored.policy("tiny", tiny, sampled=True) == sampled
    with pytest.raises(DataError, match=f"{len(study.test_tasks)} of {len(study.test_tasks)} missing"):
        stored.policy("another row", tiny)


def test_a_run_that_was_killed_goes_on_to_the_same_sampled_episodes(study, tiny, runs, tmp_path):
    played = runs.policy("tiny", tiny, sampled=True)
    lines = runs.store.read_bytes().splitlines(keepends=True)
    cut = OrionRuns(elsewhere(study, tmp_path / "cut"))
    cut.store.parent.mkdir(parents=True)
    cut.store.write_bytes(b"".join(lines[:4]) + lines[4][:50])  # in the middle of the second batch
    assert trajectories(cut.policy("tiny", tiny, sampled=True)) == trajectories(played)


def test_an_engine_plays_the_same_episodes_and_policies_stay_here(study, tiny, tmp_path, ship):
    def played(folder):
        runs = OrionRuns(elsewhere(study, folder), tasks=study.test_tasks[:6])
        return list(map(trajectories, [*play_references(runs, 2).values(), runs.policy("tiny", tiny)]))

    here = played(tmp_path / "here")
    ship()
    assert played(tmp_path / "there") == here


def test_a_refusal_costs_that_task_alone_and_is_counted_apart(study, tiny, tmp_path):
    """At the start of one episode, and at the first step of another."""
    at_start, when_asked = study.test_tasks[4], study.test_tasks[7]

    def refuse(*_):
        raise NotEvaluableError("the model behind the user refuses")

    def start(task):
        if task is at_start:
            refuse()
        episode = study.start(task)
        if task is when_asked:
            episode.step = refuse
        return episode

    runs = OrionRuns(elsewhere(study, tmp_path), start=start)
    records, lost = runs.policy("tiny", tiny), [at_start.task_id, when_asked.task_id]
    assert [r.task_id for r in records if r.outcome == "not_evaluable"] == lost
    frame = orion_frame(OrionRuns(runs.study), records).set_index("task_id")
    assert frame.index[frame["return"].isna() & frame["asks"].isna()].tolist() == lost


def test_an_endpoint_that_fails_takes_no_task_from_the_next_run(study, tiny, runs):
    """Nor one that was to be played beside the task that failed."""

    def fail(_):
        raise InfrastructureError("an endpoint is down")

    def start(task):
        episode = study.start(task)
        episode.step = fail
        return episode

    with pytest.raises(InfrastructureError):
        OrionRuns(runs.study, start=start).policy("tiny", tiny)
    assert {record.outcome for record in runs.policy("tiny", tiny)} == {"scored"}


def test_references_stand_in_the_order_of_what_they_know_and_can_do_every_task(runs, tiny):
    played = play_everyone(runs, {"tiny": tiny}, 2)
    assert list(played) == [RANDOM, INSTRUCTION, CONTENT, "tiny", "tiny, sampled", TEACHER, KNOWS]
    frames = {name: orion_frame(runs, records) for name, records in played.items()}
    result = {name: frame["result_final"].mean() for name, frame in frames.items()}
    assert result[RANDOM] < min(result[INSTRUCTION], result[TEACHER]) and result[TEACHER] < result[KNOWS]
    knows = frames[KNOWS].groupby("type")["result_final"].mean()
    assert knows["search"] == 1 and knows["review"] == pytest.approx(1, abs=1e-3)
    assert (frames[KNOWS]["function_accuracy"] == 1).all()
    asks = {name: frame["asks"].mean() for name, frame in frames.items()}
    assert asks[INSTRUCTION] == asks[KNOWS] == 0 < min(asks[RANDOM], asks[TEACHER])
    assert not any(step.error for t in trajectories(played[RANDOM]) for step in t.steps)
    functions = frames[INSTRUCTION].set_index("type")["function_accuracy"]
    assert (functions.drop("recommend") == 1).all()


def test_the_return_is_what_training_pays_for_the_same_episode(study, runs):
    records = play_references(runs, 2)[TEACHER]
    episodes = [play(study, make_teacher(study, 0, 2), task) for task in study.test_tasks]
    parts = Rewards(judge_of(study), study.settings.earned)([(states[:-1], t) for states, t in episodes])
    by_hand = [sum(map(sum, own)) for own in zip(*parts.values(), strict=True)]
    frame = orion_frame(runs, records)
    assert frame["return"].tolist() == pytest.approx(by_hand) and len({*by_hand}) > 3
    searches = [
        [step.action.arguments["query"] for step in t.steps if "query" in step.action.arguments]
        for _, t in episodes
    ]
    assert frame["query"].tolist() == [own[-1] if own else "" for own in searches] and any(searches)


def test_the_ladder_chooses_the_fewest_questions_of_those_that_earn_most_on_train_tasks_alone(
    study, tmp_path, monkeypatch
):
    here = elsewhere(study, tmp_path)
    on_train, train = play_ladder(here, "train")
    frames = {n: orion_frame(on_train, records) for n, records in train.items()}
    means = {n: frame.groupby("type")["return"].mean().mean() for n, frame in frames.items()}
    assert list(means) == [0, 2] and count_questions(here) == max(means, key=means.get) == 2
    assert frames[0]["asks"].mean() == 0 < frames[2]["asks"].mean()

    def ladder(_, split):
        assert split == "train"
        rungs = {n: [SimpleNamespace(type="search", earned=float(n > 0))] for n in (0, 2, 3, 6)}
        return None, rungs

    monkeypatch.setattr(orion_train, "play_ladder", ladder)
    monkeypatch.setattr(orion_train, "episode_returns", lambda _, records: [each.earned for each in records])
    assert count_questions(elsewhere(study, tmp_path)) == 2


def test_the_ladder_is_of_the_teacher_by_rules_and_is_tried_where_it_teaches(study, tmp_path):
    here = elsewhere(study, tmp_path, players=study.settings.players.changed(teacher="openai:x"))
    here.model = SimpleNamespace(served=dict)  # which cannot be called: no language model is asked
    on_train, train = play_ladder(here, "train")
    on_test, _ = play_ladder(here, "test")
    assert {*on_train.tasks} <= {*study.train_tasks} and {*on_test.tasks} <= {*study.test_tasks}
    assert {record.outcome for records in train.values() for record in records} == {"scored"}
    assert count_questions(here) == 0


def test_baselines_of_several_models_are_one_table_and_nothing_is_played_twice(study, tmp_path, monkeypatch):
    """Played by a scripted endpoint."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    here, asked = elsewhere(study, tmp_path), []
    tasks = here.test_tasks = study.test_tasks[:3]

    def played(*policies):
        with ChatServer(reply=answer) as server:
            players = {"base_url": server.url, "endpoint": "scripted", "policies": policies}
            settings = notebook(GrpoNotebook, study.settings, players=players)
            here.model = Models(settings.players, tmp_path / "replies.sqlite")
            records = play_baselines(here, settings)
            heard = [str(body["messages"]) for body in server.bodies]
            asked.append([text for text in heard if "Are you there?" not in text])
        return records_frame(records)

    first = played("openai:gpt-4.1")
    assert first["method"].unique().tolist() == [*BASELINES]
    assert first["task_id"].tolist() == 5 * [task.task_id for task in tasks]
    assert set(first["outcome"]) == {"scored"} and first["steps"].min() >= 1
    assert all(any(task.instruction in text for text in asked[0]) for task in tasks)
    assert not any("Wants:" in text for text in asked[0]), "no baseline has Orion's profile"
    both = played("openai:gpt-4.1", "openai:some/other")
    assert len(both) == 2 * len(first) and len(asked[1]) == len(asked[0])
    assert played("openai:gpt-4.1", "openai:some/other").equals(both) and not asked[-1]
