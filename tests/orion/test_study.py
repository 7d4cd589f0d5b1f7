"""A study: who is trained on and held out, what episodes know, and that it comes from settings alone."""

import json
import pickle

import pytest

from pwagents.data import load_benchmark
from pwagents.orion import study as orion_study
from pwagents.orion.agent import PURCHASES
from pwagents.orion.study import make_study
from pwagents.profiles.contextual import Context, ContextualProfile
from pwagents.settings import DataSettings, GrpoNotebook
from pwagents.shop.environment import UserReply

from ..llm.server import ChatServer
from .small_study import GROUPS, SEARCHES, call, notebook, small_study

ASK = call("ask", "Which brand would you like?")


@pytest.fixture(scope="module")
def variant(study):
    """``variant(players={...})``: another study, of searches alone, with results in the same folder."""

    def made(seed=0, **groups):
        groups["study"] = SEARCHES | groups.get("study", {})
        return small_study(study.output_dir, seed=seed, **groups)

    return made


def test_nobody_who_is_held_out_is_trained_on_and_validation_is_a_part_of_its_own(study):
    sets = (study.train_tasks, study.validation_tasks, study.test_tasks)
    trained, validated, tested = ({t.user_id for t in tasks} for tasks in sets)
    held_out = set(study.held_out)
    assert trained and validated and tested <= held_out and len(held_out) == GROUPS["data"]["n_users"]
    assert not trained & validated and not (trained | validated) & held_out
    of = {t.task_id: split for split, tasks in study.benchmark.tasks.items() for t in tasks}
    assert [{of[t.task_id] for t in tasks} for tasks in sets] == [{"train"}, {"train"}, {"test"}]
    assert len(study.test_tasks) == GROUPS["study"]["eval_tasks"]


def test_nothing_from_the_first_test_task_on_is_learned_from(study):
    first = min(study.benchmark.first_task(task.user_id) for task in study.test_tasks)
    assert study.date <= first
    assert all(t.timestamp < study.date for t in (*study.train_tasks, *study.validation_tasks))
    splits = dict.fromkeys((t.task_id for t in study.test_tasks), "test")
    for task in (*study.train_tasks, *study.test_tasks):
        split = splits.get(task.task_id, "train")
        state, begun = study.start(task).state, study.benchmark.first_task(task.user_id, split)
        assert state.history == study.benchmark.history(task, split)
        assert all(behavior.timestamp < begun for behavior in state.history)
        assert state.context == study.context(task) and state.profile == state.context.profile
        past = [behavior.parent_asin for behavior in state.history]
        listed = [len(past) - 1 - past[::-1].index(x.asin) for x in state.context.purchases]
        assert listed == sorted(set(listed)), "each once, at its last time, the oldest first"
        assert len(listed) == min(PURCHASES, len(set(past))) and PURCHASES >= 15


def test_a_recommender_knows_only_users_of_its_part(study, train_tasks):
    behaviors, held_out = study.benchmark.behaviors, set(study.held_out)
    users = [behaviors.keys() - held_out, held_out]
    bought = [{b.parent_asin for user in part for b in behaviors[user]} for part in users]
    task = train_tasks["recommend"][0]
    ids = [x.asin for x in study.context(task).purchases]
    shown = set(study.start(task).recommender.recommend(ids, 300))
    assert shown <= bought[0] and not shown & (bought[1] - bought[0])


def test_the_held_out_are_other_notebooks_users_and_asked_for_in_ambiguous_words_or_explicit_ones(variant):
    alone, _ = load_benchmark(DataSettings(**GROUPS["data"]), 0)
    ambiguous, explicit = variant(), variant(study={"instructions": "explicit"})
    assert list(alone.behaviors) == list(ambiguous.held_out) and alone.content_hash == explicit.held_out_hash
    assert {*alone.all_tasks()} >= {*explicit.test_tasks}
    assert [t.task_id for t in ambiguous.test_tasks] == [t.task_id for t in explicit.test_tasks]
    stated = [
        sum(len(study.catalogue.find(task.instruction)) for task in study.train_tasks)
        for study in (ambiguous, explicit)
    ]
    assert stated[0] < stated[1] / 3 and ambiguous.facts != explicit.facts


def test_of_each_user_as_many_test_tasks_are_taken_as_the_settings_say(study, variant):
    whole, some = (variant(study={"eval_tasks": 0, "tasks_a_user": most}) for most in (0, 2))
    own = {user: [t for t in whole.test_tasks if t.user_id == user] for user in whole.held_out}
    assert max(map(len, own.values())) > 2
    assert list(some.test_tasks) == [task for tasks in own.values() for task in tasks[:2]]


def test_a_language_model_writes_the_ambiguous_instructions_where_one_is_named(variant, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    few = {"data": {"n_users": 3}, "study": {"training_users": 3, "eval_tasks": 0}}
    reply = {"role": "assistant", "content": "Something for Sundays, please."}
    with ChatServer(reply=lambda body: reply) as server:
        players = {"base_url": server.url, "endpoint": "scripted", "writer": "openai:gpt-4.1"}
        written = variant(players=GROUPS["players"] | players, **few)
    tasks = [*written.train_tasks, *written.test_tasks]
    assert {task.instruction for task in tasks} == {"Something for Sundays, please."}
    title = written.benchmark.products[tasks[0].target].title
    assert any(title in body["messages"][1]["content"] for body in server.bodies), "from the target back"
    assert written.facts != variant(**few).facts


def test_the_user_knows_the_target_and_p_ctx_0_and_the_other_sides_do_not_share_it(
    study, train_tasks, monkeypatch, variant
):
    """Whatever profile the agent begins with, the user has the own one."""
    seen, task = [], train_tasks["search"][0]
    lacking = variant(study={"micro_profiles": False, "alpha": GROUPS["study"]["alpha"]})

    def tell(task, *_, profile):
        seen.append((task.target, profile))
        return UserReply("Navy.")

    for each, context in ((study, None), (study, Context(ContextualProfile())), (lacking, None)):
        monkeypatch.setattr(each, "_user", tell)
        each.start(task, context).step(ASK)
    assert lacking.context(task).profile != study.context(task).profile
    assert seen == [(task.target, study.context(task).profile)] * 3


def test_the_same_settings_make_the_same_study_and_facts_tell_who_plays_but_not_who_looks_on(variant):
    study = variant()
    assert make_study(pickle.loads(pickle.dumps(study.settings))) is study
    assert make_study(notebook(GrpoNotebook, study.settings)) is study
    assert variant(players={"teacher": "openai:x", "judge": "openai:x", "workers": 3}).facts == study.facts
    assert variant(players={"user": "none"}).facts != study.facts and variant(seed=1) is not study
    json.dumps(study.facts)


@pytest.mark.parametrize("silent", ["updater", "user"])
def test_without_updater_the_profile_stays_and_so_it_does_where_nobody_answers(variant, silent):
    study = variant(players={silent: "none"})
    episode = study.start(study.train_tasks[0])
    assert (episode.step(ASK).observation.text == "Nobody answers.") == (silent == "user")
    assert not episode.state.session[0].profile and "[stated]" not in episode.state.profile.describe()


def test_where_the_source_has_fewer_users_both_parts_shrink_and_one_is_too_few(variant, monkeypatch):
    def load(n):
        return lambda data, seed: load_benchmark(data.changed(n_users=n), seed)

    monkeypatch.setattr(orion_study, "load_benchmark", load(12))
    few, many = (variant(seed=2, study={"training_users": n}) for n in (42, 14))
    assert (len(few.held_out), len(many.held_out)) == (3, 6)
    assert few.facts["data"] == many.facts["data"] and few.facts != many.facts
    monkeypatch.setattr(orion_study, "load_benchmark", load(1))
    with pytest.raises(ValueError, match=r"training_users is 16 beside n_users 14, and .* has 1 users"):
        variant(seed=5)
    with pytest.raises(ValueError, match="expected rules, terse, vague, wrong, impatient, none, openai:NAME"):
        variant(players={"user": "nobody"})
