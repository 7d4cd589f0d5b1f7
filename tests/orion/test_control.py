"""Controls: other users' profiles, none, the truth, and instructions that say more."""

import json

import pytest

from pwagents.orion.control import (
    FOREIGN,
    NONE,
    OWN,
    TRUE,
    asks_by_instruction,
    foreign_contexts,
    play_with_profiles,
    runs_with_other_profiles,
    true_contexts,
)
from pwagents.orion.runs import OrionRuns
from pwagents.orion.settings import GrpoNotebook
from pwagents.profiles.types import ContextualProfile
from pwagents.schema import Product, Review, Task
from pwagents.web.environment import Context, Purchase

from .small_study import elsewhere, notebook, profile_of

CATEGORY = {"B1": "Shoes", "B2": "Shoes", "B3": "Tea"}
PRODUCTS = {asin: Product(parent_asin=asin, title=asin, category=name) for asin, name in CATEGORY.items()}


def task(user, target, type_="search"):
    told = {"task_id": f"{user}-{target}-{type_}", "user_id": user, "type": type_, "target": target}
    return Task(**told, timestamp=1, instruction="go", review=Review(rating=5))


def retrieved(task):
    profile = profile_of((f"color: of {task.user_id}", True, "history"))
    return Context(profile, (Purchase(task.user_id, "x", "y", "2020-01"),))


def test_anothers_past_is_of_the_same_category_and_type_where_there_is_one_and_seeded():
    tasks = [task("u1", "B1"), task("u2", "B2"), task("u3", "B3"), task("u4", "B2", "review")]
    made = foreign_contexts(tasks, PRODUCTS, retrieved, seed=0)
    whose = {name: context.purchases[0].asin for name, context in made.items()}
    assert whose["u1-B1-search"] == "u2" and whose["u2-B2-search"] == "u1" and whose["u3-B3-search"] != "u3"
    many = [task(f"u{i}", "B1") for i in range(9)]
    first, again, other = (foreign_contexts(many, PRODUCTS, retrieved, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert all(context.purchases[0].asin != name.split("-")[0] for name, context in first.items())
    with pytest.raises(ValueError, match="only one"):
        foreign_contexts([task("u", "B1"), task("u", "B2")], PRODUCTS, retrieved, 0)


def test_policies_play_with_the_own_profile_anothers_none_and_the_true_one(study, tiny, tmp_path):
    study = elsewhere(study, tmp_path)
    runs = OrionRuns(study)
    own = runs.frame(runs.policy("tiny", tiny), runs.policy("other", tiny))
    played = play_with_profiles(study, {"tiny": tiny}, own)
    assert list(dict.fromkeys(played["profiles"])) == [OWN, FOREIGN, NONE, TRUE]
    tasks = [task.task_id for task in study.test_tasks]
    for _, episodes in played.groupby("profiles"):
        assert episodes["task_id"].tolist() == tasks and set(episodes["method"]) == {"tiny"}
    assert played["return"].notna().all()
    keys = {json.loads(line)["key"] for line in runs.store.read_text().splitlines()}
    assert len(keys) == 5 * len(tasks)  # none is taken for another


def test_an_episode_begins_with_what_is_told_of_that_user(study):
    runs, tasks = runs_with_other_profiles(study), study.test_tasks
    told = {
        FOREIGN: foreign_contexts(tasks, study.benchmark.products, study.context, study.seed),
        NONE: {task.task_id: Context(ContextualProfile()) for task in tasks},
        TRUE: true_contexts(tasks, study.benchmark, study.truth),
    }
    assert list(runs) == list(told)
    for profiles, contexts in told.items():
        for each in tasks:
            state = runs[profiles].start(each).state
            assert state.context == contexts[each.task_id] and state.profile == state.context.profile
            assert state.history == study.start(each).state.history


def test_the_true_preferences_are_those_of_the_targets_interest(study):
    truth, found = study.truth, true_contexts(study.test_tasks, study.benchmark, study.truth)
    for each in study.test_tasks:
        domain, person = truth.items[each.target].domain, truth.people[each.user_id]
        (interest,) = [one for one in person.interests if one.domain == domain]
        profile, bought = found[each.task_id]
        wanted = {line.about: line.value for line in profile.lines if line.positive}
        assert wanted.pop("price") == interest.current["tier"]
        assert wanted == {slot: value for slot, value in interest.current.items() if slot != "tier"}
        here = {value for values in domain.values.values() for value in values}
        assert {line.value for line in profile.lines if not line.positive} == person.dislikes & here
        past = [behavior.parent_asin for behavior in study.benchmark.history(each, "test")]
        right = {asin for asin in past if truth.items[asin].domain.name == domain.name}
        told = {x.asin for x in bought}
        assert told <= set(past) and len(told & right) >= min(8, len(right))


def test_controls_are_played_by_the_same_people_on_instructions_that_say_more(study, tiny, tmp_path):
    study = elsewhere(study, tmp_path)
    settings = notebook(GrpoNotebook, study.settings, study={"complete_tasks": 6}, output_dir=tmp_path)
    runs = OrionRuns(study)
    played = runs.frame(runs.policy("tiny", tiny))
    said = asks_by_instruction(settings, {"tiny": tiny}, played)
    assert set(said["type"]) == {"search", "recommend"} and set(said["user_id"]) <= set(study.held_out)
    tasks = [list(own["task_id"]) for _, own in said.groupby("instruction", sort=False)]
    assert list(dict.fromkeys(said["instruction"])) == ["ambiguous", "explicit", "complete"]
    assert len(tasks[0]) == 6 and tasks[0] == tasks[1] == tasks[2]
