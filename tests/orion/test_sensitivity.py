"""Controls and sensitivity: other profiles and instructions, histories cut short and made noisy, other users
and other worlds."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pwagents_old.orion.analyses import cause_of, failure_causes
from pwagents_old.orion.control import (
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
from pwagents_old.orion.runs import OrionRuns
from pwagents_old.orion.sensitivity import (
    Known,
    SensitivityNotebook,
    SweepSettings,
    benchmark_known,
    by_value,
    from_usual,
    losses,
    parts_in_worlds,
    play_knowing,
    trained_again,
    usually_known,
    vary,
    with_users,
    worth_of_clusters,
)
from pwagents_old.orion.settings import GrpoNotebook

from pwagents.profiles.contextual import Context, ContextualProfile
from pwagents.store import Episode, Store
from pwagents.users.rules import RuleUser

from .small_study import CIRCUMSTANCES, SEARCHES, call, elsewhere, notebook, small_study, step

SWEEP = CIRCUMSTANCES["sweep"]


@pytest.fixture(scope="module")
def searches(study):
    return small_study(study.output_dir, study=SEARCHES)


@pytest.fixture
def here(study, tmp_path):
    return elsewhere(study, tmp_path)


# Other profiles, none, the truth; instructions that say more


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
    runs, tasks = OrionRuns(here), here.test_tasks
    own = runs.frame(runs.policy("tiny", tiny), runs.policy("other", tiny))
    played = play_with_profiles(here, {"tiny": tiny}, own)
    assert list(dict.fromkeys(played["profiles"])) == [OWN, FOREIGN, NONE, TRUE]
    for _, episodes in played.groupby("profiles"):
        assert episodes["task_id"].tolist() == [task.task_id for task in tasks]
        assert set(episodes["method"]) == {"tiny"} and episodes["return"].notna().all()
    keys = {json.loads(line)["key"] for line in runs.store.read_text().splitlines()}
    assert len(keys) == 5 * len(tasks)  # none is taken for another
    told = {
        FOREIGN: foreign_contexts(tasks, here.benchmark.products, here.context, here.seed),
        NONE: {task.task_id: Context(ContextualProfile()) for task in tasks},
        TRUE: true_contexts(tasks, here.benchmark, here.truth),
    }
    for profiles, others in runs_with_other_profiles(here).items():
        for task in tasks:
            state = others.start(task).state
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


def test_controls_are_played_by_the_same_people_on_instructions_that_say_more(study, here, tiny, tmp_path):
    settings = notebook(GrpoNotebook, here.settings, study={"complete_tasks": 6}, output_dir=tmp_path)
    runs = OrionRuns(here)
    played = runs.frame(runs.policy("tiny", tiny))
    said = asks_by_instruction(settings, {"tiny": tiny}, played)
    assert set(said["type"]) == {"search", "recommend"} and set(said["user_id"]) <= set(study.held_out)
    tasks = [list(own["task_id"]) for _, own in said.groupby("instruction", sort=False)]
    assert list(dict.fromkeys(said["instruction"])) == ["ambiguous", "explicit", "complete"]
    assert len(tasks[0]) == 6 and tasks[0] == tasks[1] == tasks[2]


# What is known of users, who answers, which world it is


def past(benchmark, user):
    return benchmark.before(user, benchmark.first_task(user))


def test_only_the_last_purchases_before_the_test_are_known(study):
    known = benchmark_known(study.benchmark, Known(15, 6, last=2), study.seed)
    for task in study.benchmark.tasks["test"]:
        own = past(study.benchmark, task.user_id)
        assert past(known, task.user_id) == own[-2:]
        assert known.behaviors[task.user_id][-1] == study.benchmark.behaviors[task.user_id][-1]
    assert benchmark_known(study.benchmark, Known(15, 6), study.seed) is study.benchmark


def test_noise_puts_others_purchases_in_the_place_of_own_ones_and_grows(study):
    shares = (0.25, 0.5)
    little, much = (benchmark_known(study.benchmark, Known(15, 6, noise=n), study.seed) for n in shares)
    for user in study.held_out:
        own = past(study.benchmark, user)
        assert [b.timestamp for b in past(much, user)] == [b.timestamp for b in own]
        foreign = [{i for i, b in enumerate(past(known, user)) if b != own[i]} for known in (little, much)]
        assert [len(places) for places in foreign] == [round(share * len(own)) for share in shares]
        assert foreign[0] < foreign[1]
        assert all(past(little, user)[i] == past(much, user)[i] for i in foreign[0])
    tasks = study.benchmark.tasks
    alone = [task for task in tasks["test"] if task.user_id == tasks["test"][0].user_id]
    benchmark = replace(study.benchmark, tasks={**tasks, "test": alone})
    with pytest.raises(ValueError, match="expected another user with purchases before the test"):
        benchmark_known(benchmark, Known(15, 6, noise=0.5), study.seed)


def test_what_is_known_decides_profile_and_history_and_is_stored_apart(here, tiny):
    whole = usually_known(here)
    last = replace(whole, last=1)
    usual, short = (play_knowing(here, tiny, known) for known in (whole, last))
    runs = OrionRuns(here)
    assert usual.equals(runs.frame(runs.policy("GRPO", tiny)))
    records = list(Store(runs.store, Episode).read())
    assert len({r.key for r in records}) == len(usual) + len(short), "none is taken for another"
    known = benchmark_known(here.benchmark, last, here.seed)
    found = here.retrieve("test", known, last.alpha, last.l_c)
    for task in here.test_tasks:
        state = here.start(task, found[task.task_id], known).state
        assert len(state.history) == 1
        assert {x.asin for x in state.context.purchases} <= {b.parent_asin for b in state.history}


def test_a_sweep_has_the_usual_value_among_its_own_and_differences_from_it(here, tiny):
    frame = vary(here, tiny, "alpha", [0])
    assert frame["method"].unique().tolist() == ["0", "8"] and set(frame["value"]) == {0, 8}
    assert by_value(frame)["value"].unique().tolist() == [0, 8]
    rows = from_usual(frame)
    assert set(rows["comparison"]) == {"0 - 8"} and rows["n_tasks"].max() == len(here.test_tasks)
    assert from_usual(vary(here, tiny, "clusters", [1])).empty
    worth = worth_of_clusters(*(vary(here, tiny, "last", [1], alpha=alpha) for alpha in (0, 10**6)))
    assert worth["comparison"].unique().tolist() == ["last 1"]


@pytest.fixture
def asking(monkeypatch):
    """A policy's place taken by an agent that asks for the kind of thing, then searches, then stops."""

    def agent(state):
        script = [call("ask", "What kind of thing is it?"), call("search", state.instruction)]
        return [*script, call("stop")][len(state.session)]

    monkeypatch.setattr(
        OrionRuns, "policy", lambda runs, method, folder: runs.agent(method, lambda _: agent, {})
    )


def answers(records):
    return [record.trajectory.steps[0].observation.text for record in records]


def test_each_user_answers_in_their_way_and_none_not_at_all(searches, asking, tmp_path):
    users = ["rules", "terse", "none"]
    records, frame = with_users(searches.settings.changed(output_dir=tmp_path), tmp_path, users)
    assert frame["method"].unique().tolist() == users and frame["return"].notna().all()
    said = {name: answers(played) for name, played in records.items()}
    assert len(set(said["none"])) == 1 and said["none"][0] not in said["rules"]
    pairs = zip(said["terse"], said["rules"], strict=True)
    told = [(short, whole) for short, whole in pairs if short != whole]
    assert told and all(short in whole for short, whole in told)
    causes = failure_causes(searches, records)
    assert causes["searches"].tolist() == [len(searches.test_tasks)] * 3
    assert causes[["found", "agent", "simulator", "tool"]].sum(axis=1).tolist() == pytest.approx([1, 1, 1])
    assert causes["simulator"].tolist()[:2] == [0, 0]


def test_parts_are_switched_off_world_by_world(searches, asking, tmp_path):
    settings = searches.settings.changed(output_dir=tmp_path)
    frame = parts_in_worlds(settings, tmp_path, ["as it is", "explicit instructions"])
    assert frame.groupby(["world", "method"]).size().nunique() == 1
    lost = losses(frame)
    assert lost["world"].unique().tolist() == ["as it is", "explicit instructions"]
    assert lost["without"].unique().tolist() == ["micro-profiles", "update", "asking"]
    records = list(Store(tmp_path / "runs" / "orion.jsonl", Episode).read())
    asked = [record for record in records if "Nobody answers." not in answers([record])[0]]
    assert len(records) - len(asked) == 2 * len(searches.test_tasks), "w/o asking, in both worlds"
    followed = [r for r in records if any(step.profile for step in r.trajectory.steps)]
    assert {r.params["roles"]["updater"] for r in followed} == {"offline"}, "w/o update"


def test_other_profiles_are_trained_with_and_tested_on_short_histories(searches, asking, tmp_path):
    trainings = []

    def train(_, units):
        trainings.extend(units)
        return [tmp_path] * len(units)

    def again(**trained):
        sweep = {"sweep": SweepSettings(**SWEEP | trained)}
        changed = {"study": sweep, "rl": {}, "output_dir": tmp_path}
        settings = notebook(SensitivityNotebook, searches.settings, **changed)
        return trained_again(SimpleNamespace(side_by_side=train), settings, tmp_path)

    frame = again(trained_l_c=(1,), patience=(0.1,))
    usual = f"alpha {SEARCHES['alpha']}, l_c 6"
    assert frame["method"].unique().tolist() == ["as it is", "patience 0.1", usual, "l_c 1"]
    assert [each.paid.patience for each in trainings] == [0, 0.1, 0, 0]
    assert [each.data.lengths for each in trainings] == ["log-normal"] * 2 + ["uniform"] * 2
    assert [each.study.l_c for each in trainings] == [6, 6, 6, 1]
    tasks = {method: [*own["task_id"]] for method, own in frame.groupby("method")}
    assert tasks["as it is"] == tasks["patience 0.1"] != tasks[usual] == tasks["l_c 1"]
    assert again(patience=())["method"].unique().tolist() == ["as it is"]


def test_who_failed_is_found_by_asking_what_would_have_helped(searches):
    cooperative = RuleUser(searches.benchmark.products, searches.benchmark.profiles)

    class Engine:
        def __init__(self, *found):
            self.found = found

        def search(self, query, k=10):
            return [(asin, 1.0) for asin in self.found]

    question = "What kind of thing is it?"
    task = next(t for t in searches.test_tasks if cooperative.react(t, (), question)[1])
    told = (cooperative(task, (), question).text, "No idea.")
    helpful, silent = (step(call("ask", question), answer) for answer in told)
    searched, right = step(call("search", "something")), Engine(task.target)
    assert cause_of(task, (helpful, searched), cooperative, Engine()) == "tool"
    assert cause_of(task, (helpful, searched), cooperative, right) == "agent"
    assert cause_of(task, (silent, searched), cooperative, right) == "simulator"
    assert cause_of(task, (searched,), cooperative, right) == "agent"
