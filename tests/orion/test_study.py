"""A study: who is trained on and who is held out, and that it comes from settings alone."""

import json
import pickle
from dataclasses import fields, replace

import pytest

from pwagents.data import DataSettings, load_benchmark
from pwagents.orion import study as orion_study
from pwagents.orion.agent import opening, orion_messages
from pwagents.orion.settings import GrpoNotebook
from pwagents.orion.study import make_study, role_facts
from pwagents.schema import FUNCTION_OF, TASK_TYPES, Action

from .small_study import GROUPS, small_settings, small_study

DATA = GROUPS["data"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def study(folder):
    return small_study(folder)


def test_nobody_who_is_held_out_is_trained_on(study):
    trained, tested = ({t.user_id for t in ts} for ts in (study.train_tasks, study.test_tasks))
    assert trained and tested and not trained & set(study.held_out)
    assert tested <= set(study.held_out) and len(study.held_out) == DATA["n_users"]
    assert {task.type for task in (*study.train_tasks, *study.test_tasks)} == {"search"}


def test_the_held_out_are_the_users_of_the_other_notebooks(study):
    alone, _ = load_benchmark(DataSettings(**DATA), 0)
    assert list(alone.behaviors) == list(study.held_out) and alone.content_hash == study.held_out_hash
    assert set(alone.all_tasks()) >= set(study.test_tasks)


def test_test_tasks_come_from_the_test_split_alone(study, folder):
    in_test = [t for t in study.benchmark.tasks["test"] if t.user_id in study.held_out and t.type == "search"]
    assert study.test_tasks == tuple(in_test) and len(in_test) > 2
    few = small_study(folder, study={"eval_tasks": 2}).test_tasks
    assert len(few) == 2 and set(few) < set(in_test)


def test_nothing_is_lost_where_all_train_tasks_lie_before_all_test_tasks(study):
    trained = [t for t in study.benchmark.tasks["train"] if t.user_id not in study.held_out]
    assert study.train_tasks == tuple(t for t in trained if t.type == "search")
    assert study.date == min(study.benchmark.first_task(t.user_id) for t in study.test_tasks)


def test_an_episode_begins_with_what_lay_before_the_users_first_task(study):
    split_of = {task.task_id: split for split, tasks in study.benchmark.tasks.items() for task in tasks}
    for task in (*study.train_tasks, *study.test_tasks):
        state = study.start(task).state
        assert state.history == study.benchmark.history(task, split_of[task.task_id])
        assert state.context == study.context(task)
        known = {behavior.parent_asin for behavior in state.history}
        assert set(state.profile.bought) <= set(state.context.bought) <= known
        assert state.profile == state.context.profile


def test_an_episode_may_begin_with_the_profile_of_another(study):
    mine, other = study.test_tasks[0], study.context(study.test_tasks[-1])
    assert study.start(mine, other).state.context == other != study.context(mine)


def test_the_same_settings_make_the_same_study_also_in_another_process(study, folder):
    assert make_study(pickle.loads(pickle.dumps(study.settings))) is study
    assert small_study(folder, seed=1) is not study
    json.dumps(study.facts)


def test_what_a_notebook_sets_beside_makes_no_other_study(study, folder):
    settings = small_settings(folder)
    groups = {field.name: getattr(settings, field.name) for field in fields(settings)}
    more = {"study": {"training_users": 24, "eval_tasks": 8, "complete_tasks": 5}, "rl": {"max_steps": 2}}
    assert make_study(GrpoNotebook(**groups | more)) is study


def test_instructions_trained_on_take_turns_in_how_much_they_say(study, folder):
    mixed = small_study(folder, study={"train_completeness": (DATA["completeness"], 1.0)})
    assert [t.task_id for t in mixed.train_tasks] == [t.task_id for t in study.train_tasks]
    assert mixed.train_tasks[::2] == study.train_tasks[::2] and mixed.test_tasks == study.test_tasks
    said, before = (sum(len(t.instruction) for t in s.train_tasks[1::2]) for s in (mixed, study))
    assert said > 1.5 * before and mixed.facts != study.facts
    stated = [
        line for line in mixed.context(mixed.train_tasks[1]).profile.lines if line.provenance == "stated"
    ]
    assert len(stated) > 3


def test_an_answer_tells_other_ids_and_a_review_is_told_none(folder):
    study, changed = small_study(folder, study={"task_types": TASK_TYPES}), 0
    for task in study.test_tasks:
        episode = study.start(task)
        first, history = episode.state.profile, {b.parent_asin for b in episode.state.history}
        if task.type == "review":
            assert not first.bought and "Bought before" not in opening(episode.state)
            continue
        assert first.bought and set(first.bought) <= history
        assert f"Bought before: {', '.join(first.bought)}" in opening(episode.state)
        for about in ("type", "brand"):
            question = Action(name="respond", arguments={"content": f"Which {about} would you like?"})
            before = episode.state.profile.bought
            episode.step(question)
            state = episode.state
            assert set(state.profile.bought) <= set(state.context.bought)
            if state.profile.bought != before:
                changed += 1
                told = orion_messages(state)[-1]["content"]
                assert f"Bought before: {', '.join(state.profile.bought)}" in told
    assert changed


def test_the_teacher_does_what_is_asked_for_however_much_is_said(folder):
    study = small_study(folder, study={"task_types": TASK_TYPES, "train_completeness": (0.2, 1.0)})
    for task in study.train_tasks:
        episode, teacher = study.start(task), study.teacher(0)
        while not episode.done:
            episode.step(teacher(episode.state))
        called = {step.action.name for step in episode.trajectory.steps}
        assert called - {"respond", "stop"} == {FUNCTION_OF[task.type]}


def test_who_judges_and_who_teaches_does_not_change_an_episode(study, folder):
    other = small_study(folder, players={"teacher": "openai:x", "judge": "openai:x", "workers": 3})
    assert other.facts == study.facts
    assert small_study(folder, players={"user": "none"}).facts != study.facts


def test_what_a_language_model_is_told_is_part_of_who_plays(study, folder):
    other = small_study(folder, players={"teacher": "openai:x", "shown": 3})
    assert role_facts(other.settings.players, "teacher") == {"model": "openai:x", "shown": 3}
    assert (
        role_facts(study.settings.players, "teacher")
        == role_facts(other.settings.players, "judge")
        == "offline"
    )


def test_where_the_source_has_fewer_users_both_parts_shrink_and_facts_tell_who_is_held_out(
    study, folder, monkeypatch
):
    monkeypatch.setattr(
        orion_study, "load_benchmark", lambda data, seed: load_benchmark(replace(data, n_users=12), seed)
    )
    three, six = (small_study(folder, seed=2, study={"training_users": n}) for n in (24, 8))
    assert (len(three.held_out), len(six.held_out)) == (3, 6)
    assert three.facts["data"] == six.facts["data"] and three.facts != six.facts
    assert study.facts["held_out"] == DATA["n_users"]


def test_each_round_of_the_teacher_plays_the_same_again_and_rounds_differ(study):
    task = study.train_tasks[0]

    def play(number):
        episode, act = study.start(task), study.teacher(number)
        while not episode.done:
            episode.step(act(episode.state))
        return episode.trajectory

    assert play(0) == play(0)
    assert len({play(number).model_dump_json() for number in range(6)}) > 1


def test_without_user_nobody_answers_and_without_updater_the_profile_stays(folder):
    study = small_study(folder, players={"user": "none", "updater": "none"})
    asks = next(t for t in study.train_tasks if study.teacher(0)(study.start(t).state).name == "respond")
    episode = study.start(asks)
    episode.step(study.teacher(0)(episode.state))
    state = episode.state
    assert state.session[0].observation.text == "Nobody answers." and state.profile == state.context.profile


def test_rules_hear_the_instruction_and_a_language_model_reads_it_itself(study, folder):
    model = small_study(folder, players={"updater": "openai:x"})
    stated = [
        sum(
            line.provenance == "stated"
            for task in each.train_tasks
            for line in each.context(task).profile.lines
        )
        for each in (study, model)
    ]
    assert stated[0] > stated[1] == 0


def test_a_recommender_knows_only_users_of_its_part(folder):
    study = small_study(folder, study={"task_types": ("search", "recommend", "review")})
    held_out = {b.parent_asin for user in study.held_out for b in study.benchmark.behaviors[user]}
    others = study.benchmark.behaviors.keys() - set(study.held_out)
    trained = {b.parent_asin for user in others for b in study.benchmark.behaviors[user]}
    task = next(t for t in study.train_tasks if t.type == "recommend")
    shop = study.start(task).shop
    shown = set(shop.recommender.recommend(list(study.context(task).bought), 300))
    assert shown <= trained and not shown & (held_out - trained)
    assert {task.type for task in study.test_tasks} == {"search", "recommend", "review"}


def test_both_parts_need_users(folder, monkeypatch):
    def one_user(data, seed):
        return load_benchmark(replace(data, n_users=1), seed)

    monkeypatch.setattr(orion_study, "load_benchmark", one_user)
    with pytest.raises(ValueError, match=r"training_users is 24 beside n_users 8, and .* has 1 users"):
        small_study(folder, seed=5)


def test_a_word_that_is_no_player_is_refused(folder):
    with pytest.raises(ValueError, match="expected rules, terse, vague, wrong, impatient, none, openai:NAME"):
        small_study(folder, players={"user": "nobody"})
