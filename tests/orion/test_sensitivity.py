"""Sensitivity: histories cut short and made noisy, profiles made anew, other users, other worlds."""

from dataclasses import replace

import pytest

from pwagents.orion.failures import cause_of, failure_causes
from pwagents.orion.runs import OrionRuns, episodes_frame
from pwagents.orion.sensitivity import (
    AS_IT_STANDS,
    Known,
    SweepSettings,
    benchmark_known,
    by_value,
    differences_from,
    losses,
    parts_in_worlds,
    play_knowing,
    sweep,
    with_users,
)
from pwagents.schema import Action, Observation, Step
from pwagents.users.rules import RuleUser

from .small_study import elsewhere, save_tiny_model, small_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sensitivity")


@pytest.fixture(scope="module")
def study(folder):
    return small_study(folder, data={"n_users": 20})


@pytest.fixture(scope="module")
def model(folder):
    return save_tiny_model(folder / "tiny")


def past(benchmark, user):
    return benchmark.before(user, benchmark.first_task(user))


def test_only_the_last_purchases_before_the_test_are_known(study):
    known = benchmark_known(study.benchmark, replace(AS_IT_STANDS, last=2), study.seed)
    for task in study.benchmark.tasks["test"]:
        own = past(study.benchmark, task.user_id)
        assert past(known, task.user_id) == own[-2:]
        assert known.behaviors[task.user_id][-1] == study.benchmark.behaviors[task.user_id][-1]
    assert benchmark_known(study.benchmark, AS_IT_STANDS, study.seed) is study.benchmark


def test_noise_puts_others_purchases_in_the_place_of_own_ones_and_grows(study):
    little, much = (benchmark_known(study.benchmark, Known(noise=share), study.seed) for share in (0.25, 0.5))
    for user in study.held_out:
        own = past(study.benchmark, user)
        assert [b.timestamp for b in past(much, user)] == [b.timestamp for b in own]
        foreign = [{i for i, b in enumerate(past(known, user)) if b != own[i]} for known in (little, much)]
        assert [len(places) for places in foreign] == [round(0.25 * len(own)), round(0.5 * len(own))]
        assert foreign[0] < foreign[1] or len(own) < 3
        assert all(past(little, user)[i] == past(much, user)[i] for i in foreign[0])


def test_what_is_known_decides_profile_and_history_and_is_stored_apart(study, model, tmp_path):
    here = elsewhere(study, tmp_path)
    usual, short = (play_knowing(here, "tiny", model, known) for known in (AS_IT_STANDS, Known(last=1)))
    assert usual == OrionRuns(here).policy("tiny", model)
    assert not {record.key for record in usual} & {record.key for record in short}
    known = benchmark_known(here.benchmark, Known(last=1), here.seed)
    found = here.retrieve("test", known)
    for task in here.test_tasks:
        episode = here.start(task, found[task.task_id], known)
        assert len(episode.state.history) == 1
        assert set(found[task.task_id].bought) <= {b.parent_asin for b in episode.state.history}


def test_a_sweep_has_a_mean_a_value_and_differences_from_one_of_them(study, model, tmp_path):
    frame = sweep(elsewhere(study, tmp_path), model, "alpha", [0, 15])
    assert frame["method"].unique().tolist() == ["0", "15"] and set(frame["value"]) == {0, 15}
    means = by_value(frame)
    assert means["value"].tolist() == [0, 15] and set(means["type"]) == {"search"}
    (row,) = differences_from(frame, 15).to_dict("records")
    assert row["comparison"] == "0 - 15" and row["n_tasks"] == len(study.test_tasks)


def settings_in(study, folder):
    return replace(study.settings, output_dir=folder)


def test_each_user_and_each_part_has_episodes_of_its_own(study, model, tmp_path):
    settings = settings_in(study, tmp_path)
    records = with_users(settings, model, ["rules", "vague", "none"])
    assert {name: len(played) for name, played in records.items()} == dict.fromkeys(
        ["rules", "vague", "none"], len(study.test_tasks)
    )
    assert len({record.key for played in records.values() for record in played}) == 3 * len(study.test_tasks)
    causes = failure_causes(study, records)
    assert causes["searches"].tolist() == [len(study.test_tasks)] * 3
    assert causes[["found", "agent", "simulator", "tool"]].sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def test_parts_are_lost_world_by_world(study, model, tmp_path):
    settings = settings_in(study, tmp_path)
    lost = losses(parts_in_worlds(settings, model, ["as it is", "no drift"]))
    assert lost["world"].unique().tolist() == ["as it is", "no drift"]
    assert lost["without"].unique().tolist() == ["micro-profiles", "update", "asking"]


def test_a_world_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="not flat earth"):
        lists = {
            "alpha": (0,),
            "l_c": (1,),
            "clusters": (1,),
            "last": (1,),
            "noise": (0.0,),
            "users": ("rules",),
        }
        SweepSettings(**lists, worlds=("flat earth",))


def step(name, text="", answer="", products=()):
    key = {"respond": "content", "search_product_by_query": "query"}[name]
    return Step(
        action=Action(name=name, arguments={key: text}),
        observation=Observation(text=answer, products=products),
    )


def test_who_failed_is_found_by_asking_what_would_have_helped(study):
    cooperative = RuleUser(study.benchmark.products, study.benchmark.profiles)

    class Engine:
        def __init__(self, *found):
            self.found = found

        def search(self, query, k=10):
            return [(asin, 1.0) for asin in self.found]

    task = next(task for task in study.test_tasks if cooperative.facts(task))
    question = "What kind of thing is it?"
    _, fact = cooperative.react(task, (), question)
    helpful = step("respond", question, cooperative(task, (), question).text)
    silent = step("respond", question, "No idea.")
    searched = step("search_product_by_query", "something")
    assert fact is not None
    assert cause_of(task, (helpful, searched), cooperative, Engine()) == "tool"
    assert cause_of(task, (helpful, searched), cooperative, Engine(task.target)) == "agent"
    assert cause_of(task, (silent, searched), cooperative, Engine(task.target)) == "simulator"
    assert cause_of(task, (searched,), cooperative, Engine(task.target)) == "agent"


def test_frames_of_users_are_told_apart(study, model, tmp_path):
    records = with_users(settings_in(study, tmp_path), model, ["terse", "wrong"])
    assert episodes_frame(*records.values())["method"].unique().tolist() == ["terse", "wrong"]
