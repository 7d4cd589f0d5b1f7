"""The role-play: two sides that share nothing, exactly as many trajectories, and nothing lost at a kill."""

from contextlib import nullcontext

import pytest

from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.orion.reward import has_succeeded
from pwagents.orion.role_play import Played, play_roles
from pwagents.orion.teacher import make_teacher
from pwagents.profiles.contextual import Context
from pwagents.schema import TASK_TYPES
from pwagents.settings import Success
from pwagents.shop.environment import UserReply
from pwagents.store import Store

from .small_study import call, cases, profile_of


@pytest.fixture
def play(study, tmp_path):
    """``play(n=...)``: a role-play, of all train tasks and by the teacher unless told otherwise."""

    def run(**options):
        known = {
            "tasks": study.train_tasks,
            "start": study.start,
            "teacher": lambda number: make_teacher(study, number, 2),
            "store": tmp_path / "played.jsonl",
            "success": study.settings.success,
            "params": {"code": ()},
        }
        return play_roles(study.benchmark, **(known | options))

    return run


def read_played(path):
    return list(Store(path, Played).read())


def test_exactly_as_many_as_asked_for_all_of_them_good_and_types_take_turns(play, study):
    made = play(n=20)
    assert len({episode.task_id for episode in made.kept}) == 20 and sum(made.failures.values()) > 0
    assert [each.trajectory.type for each in made.kept[:9]] == [TASK_TYPES[i % 3] for i in range(9)]
    for episode in made.kept:
        steps = episode.trajectory.steps
        assert episode.failure == "" and has_succeeded(episode.trajectory, study.settings.success)
        assert steps[-1].action.name == "stop" and not any(step.error for step in steps)
    assert play(n=7).kept == made.kept[:7], "fewer are the first of more"


def test_the_order_is_seeded_workers_change_nothing_and_nothing_is_played_twice(play, tmp_path):
    def refuse(task):
        raise AssertionError("played twice")

    first = play(n=15)
    assert play(n=15, store=tmp_path / "three.jsonl", workers=3) == first == play(n=15, start=refuse)
    assert [p.task_id for p in play(n=15, seed=1).kept] != [p.task_id for p in first.kept]  # another key
    assert len({played.key for played in read_played(tmp_path / "played.jsonl")}) == 2
    stricter = Success(success_rank=9)
    for other in ({"params": {"code": (), "teacher": "another"}}, {"success": stricter}):
        with pytest.raises(AssertionError):
            play(n=15, start=refuse, **other)


def test_a_task_that_failed_comes_again_with_another_teacher_until_tasks_run_out(play, study, train_tasks):
    def teacher(number):
        """The first gives up at once."""
        return make_teacher(study, 0, 4) if number else lambda state: call("stop")

    options = {"tasks": train_tasks["search"][:6], "teacher": teacher}
    made = play(n=2, rounds=2, **options)
    assert {played.round for played in made.kept} == {1} and made.failures["no success"] >= 6
    with pytest.raises(DataError, match=r"6 tasks in 2 rounds.*no success.*more tasks or rounds"):
        play(n=7, rounds=2, **options)


@cases("role_play")
def test_a_conversation_is_kept_or_counted_by_its_reason(play, study, train_tasks, tmp_path, case):
    searches = (t for t in train_tasks["search"] if t.target not in str(study.context(t)))
    again = (t for t in train_tasks["recommend"] if t.target in str(study.context(t).purchases))
    task = next(again if "again" in case else searches)
    product, does, failure = study.benchmark.products[task.target], case["does"], case["failure"]

    def filled(text):
        return text.format(title=product.title, asin=product.parent_asin)

    def act(state):
        name, said = does[min(len(state.session), len(does) - 1)]
        return call(name, [filled(x) for x in said] if isinstance(said, list) else said and filled(said))

    def start(task):
        if failure == "not evaluable":
            raise NotEvaluableError("no real review")
        told = (filled(case["profile"]), True, "history") if "profile" in case else None
        episode = study.start(task, Context(profile_of(told)) if told else None)
        if "user" in case:
            episode.user = lambda *_: UserReply(filled(case["user"]))
        return episode

    with pytest.raises(DataError) if failure else nullcontext():
        play(n=1, rounds=1, tasks=[task], teacher=lambda _: act, start=start)
    assert [played.failure for played in read_played(tmp_path / "played.jsonl")] == [failure]


def test_a_run_that_breaks_off_loses_nothing_and_ends_with_the_same(play, study, tmp_path):
    store, started = tmp_path / "played.jsonl", []

    def start(task, most=6):
        if len(started) == most:
            raise InfrastructureError("an endpoint is down")
        started.append(task.task_id)
        return study.start(task)

    with pytest.raises(InfrastructureError):
        play(n=9, start=start)
    assert store.read_bytes().count(b"\n") == 6, "each is stored when it ends"
    with open(store, "ab") as file:
        file.write(b'{"key":"0123')  # as a kill within a write leaves it
    resumed = play(n=9, start=lambda task: start(task, 99), workers=2)
    assert resumed == play(n=9, store=tmp_path / "whole.jsonl")
    assert len({*started}) == len(started) == len(read_played(store)), "none is played twice"
