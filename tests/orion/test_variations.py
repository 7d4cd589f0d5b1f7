"""Other profiles, shorter histories, other parts, users and worlds around a policy."""

import json

import numpy as np
import pytest

from pwagents.orion.experiment import OrionRuns
from pwagents.orion.reward import episode_returns
from pwagents.orion.study import make_study
from pwagents.orion.variations import (
    FIGURE_4,
    FOREIGN,
    NONE,
    PARTS,
    TRUE,
    WORLDS,
    foreign_contexts,
    runs_knowing,
    runs_with_other_profiles,
    true_contexts,
    with_short_histories,
)
from pwagents.profiles.contextual import Context, ContextualProfile
from pwagents.store import Episode, Store

from .small_study import SEARCHES, call, elsewhere, small_study


@pytest.fixture(scope="module")
def searches(study):
    return small_study(study.output_dir, study=SEARCHES)


@pytest.fixture
def here(study, tmp_path):
    return elsewhere(study, tmp_path)


def test_anothers_past_is_of_the_same_category_and_type_where_there_is_one_and_seeded(study):
    tasks, products = study.test_tasks, study.benchmark.products
    first, again, other = (foreign_contexts(tasks, products, study.context, seed) for seed in (0, 0, 1))
    assert first == again != other
    category, matched = {task: products[task.target].category for task in tasks}, 0
    for task in tasks:
        others = [each for each in tasks if each.user_id != task.user_id]
        whose = [each for each in others if study.context(each) == first[task.task_id]]
        alike = [each for each in others if (each.type, category[each]) == (task.type, category[task])]
        assert {each.task_id for each in whose} & {each.task_id for each in alike or others}
        matched += bool(alike)
    assert 2 < matched < len(tasks)
    with pytest.raises(ValueError, match="only one"):
        foreign_contexts(tasks[:1], products, study.context, 0)


def test_policies_play_with_the_own_profile_anothers_none_and_the_true_one(here, tiny):
    own, tasks, others = OrionRuns(here), here.test_tasks, runs_with_other_profiles(here)
    assert list(others) == [FOREIGN, NONE, TRUE]
    for runs in (own, *others.values()):
        played = runs.policy("tiny", tiny)
        assert [record.task_id for record in played] == [task.task_id for task in tasks]
        assert np.isfinite(episode_returns(runs, played)).all()
    keys = {json.loads(line)["key"] for line in own.store.read_text().splitlines()}
    assert len(keys) == 4 * len(tasks)  # none is taken for another
    told = {
        FOREIGN: foreign_contexts(tasks, here.benchmark.products, here.context, here.seed),
        NONE: {task.task_id: Context(ContextualProfile()) for task in tasks},
        TRUE: true_contexts(tasks, here.benchmark, here.truth),
    }
    for profiles, runs in others.items():
        for task in tasks:
            state = runs.start(task).state
            assert state.context == told[profiles][task.task_id] and state.profile == state.context.profile
            assert state.history == here.start(task).state.history


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


def past(benchmark, user):
    return benchmark.before(user, benchmark.first_task(user))


def test_only_the_last_purchases_before_the_test_are_known(study):
    known = with_short_histories(study.benchmark, last=2)
    for task in study.benchmark.tasks["test"]:
        assert past(known, task.user_id) == past(study.benchmark, task.user_id)[-2:]
        assert known.behaviors[task.user_id][-1] == study.benchmark.behaviors[task.user_id][-1]


def test_what_is_known_decides_profile_and_history_and_is_stored_apart(here, tiny):
    own = here.settings.study
    runs = [runs_knowing(here), runs_knowing(here, alpha=own.alpha, l_c=own.l_c), runs_knowing(here, last=1)]
    usual, again, short = (each.policy("GRPO", tiny) for each in runs)
    assert usual == again == OrionRuns(here).policy("GRPO", tiny)
    keys = {record.key for record in Store(runs[0].store, Episode).read()}
    assert len(keys) == len(usual) + len(short), "none is taken for another"
    found = here.retrieve("test", with_short_histories(here.benchmark, 1), own.alpha, own.l_c)
    for task in here.test_tasks:
        state = runs[2].start(task).state
        assert len(state.history) == 1 and state.context == found[task.task_id]
        assert {x.asin for x in state.context.purchases} <= {b.parent_asin for b in state.history}


@pytest.fixture
def ask(searches, tmp_path):
    """``ask(changes)``: episodes with other settings of who asks for the kind of thing, searches, stops."""

    def agent(state):
        script = [call("ask", "What kind of thing is it?"), call("search", state.instruction)]
        return [*script, call("stop")][len(state.session)]

    def played(changes):
        settings = searches.settings.changed(output_dir=tmp_path)
        return OrionRuns(make_study(settings.changed(**changes))).agent("asking", lambda _: agent, {})

    return played


def answers(records):
    return [record.trajectory.steps[0].observation.text for record in records]


def profiles_told(records):
    return [step.profile for record in records for step in record.trajectory.steps if step.profile]


def test_each_user_answers_in_their_way_and_none_not_at_all(ask):
    said = {who: answers(ask({"players": {"user": who}})) for who in ("rules", "terse", "none")}
    assert set(said["none"]) == {"Nobody answers."}
    pairs = zip(said["terse"], said["rules"], strict=True)
    told = [(short, whole) for short, whole in pairs if short != whole]
    assert told and all(short in whole for short, whole in told)


def test_a_part_is_what_its_name_says_and_is_stored_apart(searches, ask):
    whole, lacking = ask({}), {part: ask(changes) for part, changes in PARTS.items()}
    keys = {record.key for records in (whole, *lacking.values()) for record in records}
    assert len(keys) == 4 * len(searches.test_tasks)
    assert profiles_told(whole) and not profiles_told(lacking["w/o update"])
    assert set(answers(lacking["w/o asking"])) == {"Nobody answers."}
    assert answers(lacking["w/o update"]) == answers(whole)
    assert not searches.settings.changed(**PARTS["w/o micro-profiles"]).study.micro_profiles


def test_worlds_are_without_their_difficulties_and_figure_4_is_of_short_histories_too(searches):
    settings = searches.settings
    worlds = {world: settings.changed(**changes) for world, changes in WORLDS.items()}
    assert worlds["as it is"] == settings
    assert worlds["one interest"].data == settings.data.changed(interests=(1, 1))
    assert worlds["no drift"].data == settings.data.changed(drift=0.0)
    explicit = worlds["explicit instructions"]
    assert (explicit.data.completeness, explicit.study.instructions) == (1.0, "explicit")
    short = make_study(settings.changed(**FIGURE_4))
    lengths = [len(past(short.benchmark, user)) for user in short.held_out]
    assert settings.data.lengths == "log-normal" and short.settings.data.lengths == "uniform"
    assert min(lengths) < 15 and max(lengths) > 30
    of_users = [task.user_id for task in short.test_tasks]
    assert max(map(of_users.count, of_users)) <= 3
