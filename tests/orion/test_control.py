"""Controls: instructions that say more, and profiles of others: another's past, the own words."""

import json
from dataclasses import fields

import pytest

from pwagents.orion.control import (
    FOREIGN,
    NONE,
    OWN,
    TRUE,
    asks_by_completeness,
    foreign_contexts,
    play_with_profiles,
    runs_with_other_profiles,
    true_contexts,
)
from pwagents.orion.runs import OrionRuns, episodes_frame
from pwagents.orion.settings import GrpoNotebook
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import TASK_TYPES, Product, Review, Task
from pwagents.web.environment import Context

from .small_study import save_tiny_model, small_study

CATEGORY = {"B1": "Shoes", "B2": "Shoes", "B3": "Tea"}
PRODUCTS = {asin: Product(parent_asin=asin, title=asin, category=name) for asin, name in CATEGORY.items()}


def task(user, target, type_="search"):
    return Task(
        task_id=f"{user}-{target}-{type_}", user_id=user, type=type_, timestamp=1, instruction="go",
        target=target, review=Review(rating=5),
    )  # fmt: skip


def retrieved(task):
    lines = [ProfileLine.of(f"color: of {task.user_id}", True, "history")]
    return Context(ContextualProfile(lines=tuple(lines)), (f"bought by {task.user_id}",))


def test_the_past_is_anothers():
    tasks = [task(f"u{i}", "B1") for i in range(5)]
    for own, made in zip(tasks, foreign_contexts(tasks, PRODUCTS, retrieved, seed=0).values(), strict=True):
        (line,) = made.profile.lines
        other = line.text.rpartition(" ")[2]
        assert other != own.user_id and made.bought == (f"bought by {other}",)


def test_the_other_wants_something_of_the_same_category_and_type():
    tasks = [task("u1", "B1"), task("u2", "B2"), task("u3", "B3"), task("u4", "B2", "review")]
    made = foreign_contexts(tasks, PRODUCTS, retrieved, seed=0)
    assert made["u1-B1-search"].bought == ("bought by u2",)
    assert made["u2-B2-search"].bought == ("bought by u1",)


def test_the_same_seed_makes_the_same_and_one_user_is_too_few():
    tasks = [task(f"u{i}", "B1") for i in range(9)]
    made = [foreign_contexts(tasks, PRODUCTS, retrieved, seed) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    with pytest.raises(ValueError, match="only one"):
        foreign_contexts([task("u", "B1"), task("u", "B2")], PRODUCTS, retrieved, 0)


def test_policies_play_with_the_own_profile_anothers_none_and_the_true_one(tmp_path):
    study = small_study(tmp_path)
    model = save_tiny_model(tmp_path / "tiny")
    own = episodes_frame(OrionRuns(study).policy("tiny", model), OrionRuns(study).policy("other", model))
    played = play_with_profiles(study, {"tiny": model}, own)
    assert list(dict.fromkeys(played["profiles"])) == [OWN, FOREIGN, NONE, TRUE]
    tasks = [task.task_id for task in study.test_tasks]
    for _, episodes in played.groupby("profiles"):
        assert episodes["task_id"].tolist() == tasks and set(episodes["method"]) == {"tiny"}
    keys = {json.loads(line)["key"] for line in OrionRuns(study).store.read_text().splitlines()}
    assert len(keys) == 5 * len(tasks)  # none is taken for another


def test_an_episode_begins_with_what_is_told_of_the_user_and_the_own_words(tmp_path):
    study = small_study(tmp_path)
    runs, tasks = runs_with_other_profiles(study), study.test_tasks
    told = {
        FOREIGN: foreign_contexts(tasks, study.benchmark.products, study.retrieved, study.seed),
        NONE: {task.task_id: Context(ContextualProfile()) for task in tasks},
        TRUE: true_contexts(tasks, study.benchmark, study.truth),
    }
    assert list(runs) == list(told)
    for task in tasks:
        own = {line for line in study.context(task).profile.lines if line.provenance == "stated"}
        for profiles, contexts in told.items():
            state, found = runs[profiles].start(task).state, contexts[task.task_id]
            assert state.context == study.begin(task, found) and state.context.bought == found.bought
            assert set(state.profile.bought) <= set(found.bought)
            stated = {line for line in state.profile.lines if line.provenance == "stated"}
            assert stated == own
            assert {line for line in state.profile.lines if line not in stated} <= {*found.profile.lines}


def test_the_true_preferences_are_those_of_the_targets_interest(tmp_path):
    study = small_study(tmp_path, study={"task_types": ("search", "recommend", "review")})
    truth = study.truth
    found = true_contexts(study.test_tasks, study.benchmark, truth)
    for task in study.test_tasks:
        domain, person = truth.items[task.target].domain, truth.people[task.user_id]
        (interest,) = [each for each in person.interests if each.domain == domain]
        lines, bought = found[task.task_id].profile.lines, found[task.task_id].bought
        wanted = {line.about: line.value for line in lines if line.positive}
        assert wanted.pop("price") == interest.current["tier"]
        assert wanted == {slot: value for slot, value in interest.current.items() if slot != "tier"}
        here = {value for values in domain.values.values() for value in values}
        assert {line.value for line in lines if not line.positive} == person.dislikes & here
        past = [behavior.parent_asin for behavior in study.benchmark.history(task, "test")]
        right = [asin for asin in past if truth.items[asin].domain.name == domain.name]
        assert list(bought) == right
    assert any(context.bought for context in found.values())


def test_controls_are_played_by_the_same_people_on_instructions_that_say_more(tmp_path):
    study = small_study(tmp_path, study={"task_types": TASK_TYPES})
    groups = {field.name: getattr(study.settings, field.name) for field in fields(study.settings)}
    asked = {"training_users": 24, "eval_tasks": 8, "complete_tasks": 6, "task_types": TASK_TYPES}
    settings = GrpoNotebook(**groups | {"study": asked, "rl": {"max_steps": 1}})
    policies = {"tiny": save_tiny_model(tmp_path / "tiny")}
    played = episodes_frame(OrionRuns(study).policy("tiny", policies["tiny"]))
    said = asks_by_completeness(settings, policies, played)
    ask = [task for task in study.test_tasks if task.type != "review"]
    assert set(said["type"]) == {"search", "recommend"}
    named = {"20%": len(ask), "60%": 6, "100%": 6}
    assert said["named"].value_counts(sort=False).to_dict() == named
    assert set(said["user_id"]) <= set(study.held_out)
