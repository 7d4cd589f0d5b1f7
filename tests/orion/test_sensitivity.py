"""Sensitivity: histories cut short and made noisy, profiles made anew, other users, other worlds."""

from dataclasses import replace

import pytest

from pwagents.evaluation.episodes import EpisodeRecord, Store
from pwagents.orion.analyses import cause_of, failure_causes
from pwagents.orion.runs import OrionRuns
from pwagents.orion.sensitivity import (
    Known,
    SweepSettings,
    benchmark_known,
    by_value,
    from_usual,
    losses,
    parts_in_worlds,
    play_knowing,
    usually_known,
    vary,
    with_users,
    worth_of_clusters,
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
    known = benchmark_known(study.benchmark, Known(15, 6, last=2), study.seed)
    for task in study.benchmark.tasks["test"]:
        own = past(study.benchmark, task.user_id)
        assert past(known, task.user_id) == own[-2:]
        assert known.behaviors[task.user_id][-1] == study.benchmark.behaviors[task.user_id][-1]
    assert benchmark_known(study.benchmark, Known(15, 6), study.seed) is study.benchmark


def test_noise_puts_others_purchases_in_the_place_of_own_ones_and_grows(study):
    little, much = (
        benchmark_known(study.benchmark, Known(15, 6, noise=share), study.seed) for share in (0.25, 0.5)
    )
    for user in study.held_out:
        own = past(study.benchmark, user)
        assert [b.timestamp for b in past(much, user)] == [b.timestamp for b in own]
        foreign = [{i for i, b in enumerate(past(known, user)) if b != own[i]} for known in (little, much)]
        assert [len(places) for places in foreign] == [round(0.25 * len(own)), round(0.5 * len(own))]
        assert foreign[0] < foreign[1] or len(own) < 3
        assert all(past(little, user)[i] == past(much, user)[i] for i in foreign[0])


def test_noise_needs_another_user_with_a_past(study):
    tasks = study.benchmark.tasks
    alone = [task for task in tasks["test"] if task.user_id == tasks["test"][0].user_id]
    benchmark = replace(study.benchmark, tasks={**tasks, "test": alone})
    with pytest.raises(ValueError, match="expected another user with purchases before the test"):
        benchmark_known(benchmark, Known(15, 6, noise=0.5), study.seed)
    benchmark_known(benchmark, Known(15, 6, last=1), study.seed)


def test_what_is_known_decides_profile_and_history_and_is_stored_apart(study, model, tmp_path):
    here = elsewhere(study, tmp_path)
    whole = usually_known(here)
    last = replace(whole, last=1)
    usual, short = (play_knowing(here, model, known) for known in (whole, last))
    assert usual == OrionRuns(here).policy("GRPO", model)
    assert not {record.key for record in usual} & {record.key for record in short}
    known = benchmark_known(here.benchmark, last, here.seed)
    found = here.retrieve("test", known, last.alpha, last.l_c)
    for task in here.test_tasks:
        episode = here.start(task, found[task.task_id], known)
        assert len(episode.state.history) == 1
        assert set(found[task.task_id].bought) <= {b.parent_asin for b in episode.state.history}


def test_a_sweep_has_the_usual_value_among_its_own_and_differences_from_it(study, model, tmp_path):
    here = elsewhere(study, tmp_path)
    frame = vary(here, model, "alpha", [0])
    assert frame["method"].unique().tolist() == ["0", "15"] and set(frame["value"]) == {0, 15}
    means = by_value(frame)
    assert means["value"].tolist() == [0, 15] and set(means["type"]) == {"search"}
    (row,) = from_usual(frame).to_dict("records")
    assert row["comparison"] == "0 - 15" and row["n_tasks"] == len(study.test_tasks)
    assert from_usual(vary(here, model, "clusters", [1])).empty


def test_clusters_are_compared_with_none_length_by_length(study, model, tmp_path):
    here = elsewhere(study, tmp_path)
    frames = [vary(here, model, "last", [1, 3], alpha=alpha) for alpha in (0, 10**6)]
    worth = worth_of_clusters(*frames)
    assert worth["comparison"].tolist() == ["last 1", "last 3"]
    assert worth["n_tasks"].tolist() == [len(study.test_tasks)] * 2


@pytest.fixture
def asking(study, monkeypatch):
    """A policy's place taken by an agent that asks for the kind of thing, then searches, then stops."""

    def played(runs, method, folder):
        def agent(state):
            if not state.session:
                return Action(name="respond", arguments={"content": "What kind of thing is it?"})
            if len(state.session) == 1:
                return Action(name="search_product_by_query", arguments={"query": state.instruction})
            return Action(name="stop")

        return runs.agent(method, lambda _: agent, {})

    monkeypatch.setattr(OrionRuns, "policy", played)


def answers(records):
    return [record.trajectory.steps[0].observation.text for record in records]


def test_each_user_answers_in_their_way_and_none_not_at_all(study, asking, tmp_path):
    records = with_users(replace(study.settings, output_dir=tmp_path), tmp_path, ["rules", "terse", "none"])
    said = {name: answers(played) for name, played in records.items()}
    assert len(set(said["none"])) == 1 and said["none"][0] not in said["rules"]
    told = [
        (short, whole) for short, whole in zip(said["terse"], said["rules"], strict=True) if short != whole
    ]
    assert told and all(short in whole for short, whole in told)
    causes = failure_causes(study, records)
    assert causes["searches"].tolist() == [len(study.test_tasks)] * 3
    assert causes[["found", "agent", "simulator", "tool"]].sum(axis=1).tolist() == pytest.approx([1, 1, 1])
    assert causes["simulator"].tolist()[:2] == [0, 0]


def test_parts_are_switched_off_world_by_world(study, asking, tmp_path):
    settings = replace(study.settings, output_dir=tmp_path)
    frame = parts_in_worlds(settings, tmp_path, ["as it is", "complete instructions"])
    assert frame.groupby(["world", "method"]).size().nunique() == 1
    records = list(Store(tmp_path / "runs" / "orion.jsonl", EpisodeRecord).read())
    assert len(records) == len(frame), "the same episodes under another name"
    lost = losses(frame)
    assert lost["world"].unique().tolist() == ["as it is", "complete instructions"]
    assert lost["without"].unique().tolist() == ["micro-profiles", "update", "asking"]
    n = len(study.test_tasks)
    followed, still = (
        [step.profile for record in records[i * n :][:n] for step in record.trajectory.steps] for i in (0, 2)
    )
    assert any(followed) and not any(still)
    assert len(set(answers(records[3 * n :][:n]))) == 1


def test_what_cannot_be_swept_is_refused():
    lists = {"alpha": (0,), "l_c": (1,), "clusters": (1,), "last": (1,), "noise": (0.5,)}
    lists |= {"users": ("rules",), "worlds": ("as it is",)}
    SweepSettings(**lists)
    for wrong in ({"worlds": ("flat earth",)}, {"users": ("rulez",)}, {"last": (0,)}, {"l_c": ()}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SweepSettings(**lists | wrong)


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
