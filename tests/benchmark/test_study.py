"""Notebook 03's study on a small world: tasks, shops, players, records."""

import json
from dataclasses import replace

from pwagents.benchmark.settings import MethodPlayers
from pwagents.benchmark.study import PLAIN
from pwagents.users.llm import LlmUser
from pwagents.users.rules import RuleUser
from pwagents.web.published import CHECKPOINT


def stored(settings, name):
    lines = (settings.output_dir / "runs" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_engine_plays_the_same_episodes(study, ship, monkeypatch, tmp_path):
    def played():
        runs = [study.play(method, "multi_turn") for method in ("PUMA (prompted)", "InteRecAgent")]
        return [
            record.trajectory
            for records in (*runs, *study.play_plain("leak_free").values())
            for record in records
        ]

    here = played()
    monkeypatch.setattr(study, "folder", tmp_path)
    ship()
    assert played() == here


def test_only_the_published_protocol_knows_the_future(study, monkeypatch):
    behaviors, shops = study.benchmark.behaviors, study.shops
    user = max(behaviors, key=lambda user: len(behaviors[user]))
    task = [task for task in study.benchmark.tasks["test"] if task.user_id == user][-1]
    assert len(study.history(task)) < len(study.history(task, "published"))
    # Without the published files the recommender is ours under both protocols.
    ours, published = (study.environment(task, protocol=p).shop for p in ("leak_free", "published"))
    assert ours.recommender is published.recommender and shops.params("published") == {}
    assert "leak-free" in shops.recommender_name("published")
    published = replace(ours, recommender=object())
    monkeypatch.setattr(shops, "published", published)
    monkeypatch.setattr(shops, "_hashes", [CHECKPOINT])
    assert shops.of(task, "published") is published is not shops.of(task)
    assert shops.params("published") == {"published": [CHECKPOINT]} and shops.params("leak_free") == {}


def test_the_plain_agent_plays_every_task_with_each_memory(study, settings):
    assert set(study.sample) < set(study.tasks) and (len(study.tasks), len(study.sample)) == (30, 6)
    runs = study.play_plain("leak_free")
    assert list(runs) == list(PLAIN)
    assert all([r.task_id for r in records] == [t.task_id for t in study.tasks] for records in runs.values())
    assert len(stored(settings, "03_single_turn")) == 5 * 30
    study.play_plain("leak_free")
    assert len(stored(settings, "03_single_turn")) == 5 * 30, "stored episodes are not played again"
    params = stored(settings, "03_single_turn")[0]["params"]
    assert params["shop"]["recommender"]["epochs"] == 1 and params["protocol"] == "leak_free"


def test_seeds_are_runs_of_their_own(study, settings):
    frame = study.over_seeds(["Random memory"])
    assert sorted(set(frame["seed"])) == [0, 1] and set(frame["method"]) == {"Random memory"}
    assert {r["params"]["run_seed"] for r in stored(settings, "03_methods_multi_turn")} == {0, 1}


def test_users_answer_the_multi_turn_track_alone(study, study_of, settings):
    task = study.sample[0]
    assert study.environment(task).user is None
    assert isinstance(study.environment(task, "multi_turn").user, RuleUser)
    assert study.user() is study.user(0) is not study.user(1)

    def user(spec):
        return study_of(replace(settings, players=MethodPlayers(policy="replay:m", user=spec))).user()

    assert user("none") is None and isinstance(user("replay:m"), LlmUser)


def test_only_roles_with_a_model_are_estimated(study, study_of, settings):
    assert study.estimate().empty
    roles = study_of(replace(settings, players=MethodPlayers(policy="replay:gpt-4o-mini"))).estimate()
    kinds = ("single-turn", "multi-turn", "hidden instructions")
    assert list(roles["role"]) == [f"policy, {kind}" for kind in kinds]
    assert roles["calls"].iloc[1] == (11 + 2) * 6 * 4
