"""The role-play: two sides that share nothing, exactly as many trajectories, and nothing lost at a kill."""

import re
import time
from collections import Counter
from dataclasses import replace

import pytest

from pwagents.errors import DataError, NotEvaluableError
from pwagents.evaluation.episodes import Store
from pwagents.llm.chat import ChatModel, Reply
from pwagents.orion.agent import orion_messages
from pwagents.orion.reward import Success, has_succeeded
from pwagents.orion.role_play import Played, play_roles
from pwagents.orion.teacher import llm_teachers
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import TASK_TYPES, Action
from pwagents.web.environment import Context, UserReply

from ..processes import begin, kill
from . import killed_role_play
from .world import SPLIT, make_setting, make_teacher

SUCCESS = Success(review_success=0.15)


@pytest.fixture(scope="module")
def setting(benchmark, catalogue):
    return make_setting(benchmark, catalogue)


@pytest.fixture(scope="module")
def searches(benchmark):
    return [task for task in benchmark.tasks[SPLIT] if task.type == "search"]


@pytest.fixture
def play(setting, benchmark, catalogue, tmp_path):
    """``play(n=...)``: a role-play, of all train tasks and by the offline teacher unless told otherwise."""

    def run(**options):
        known = {
            "tasks": benchmark.tasks[SPLIT],
            "start": setting.start,
            "teacher": lambda number: make_teacher(setting, catalogue, seed=number),
            "store": tmp_path / "played.jsonl",
            "success": SUCCESS,
            "params": {},
        }
        return play_roles(benchmark, **(known | options))

    return run


def read_played(path):
    return list(Store(path, Played).read())


def test_exactly_as_many_as_asked_for_and_all_of_them_good(play, benchmark):
    made = play(n=35)
    assert len(made.kept) == 35 and sum(made.failures.values()) > 0
    tasks = {task.task_id: task for task in benchmark.tasks[SPLIT]}
    assert len({episode.task_id for episode in made.kept}) == 35
    for episode in made.kept:
        steps = episode.trajectory.steps
        assert episode.failure == "" and has_succeeded(episode.trajectory, SUCCESS)
        assert steps[-1].action.name == "stop" and not any(step.error for step in steps)
        task = tasks[episode.task_id]
        if task.type != "review":
            said = " ".join(str(step.action.arguments) for step in steps)
            assert benchmark.products[task.target].title not in said
    assert {episode.trajectory.type for episode in made.kept} >= {"search", "review"}


def test_types_take_turns_and_fewer_are_the_first_of_more(play):
    more = play(n=11).kept
    types = [played.trajectory.type for played in more]
    assert types == [TASK_TYPES[i % 3] for i in range(11)]
    assert play(n=7).kept == more[:7]


def test_the_order_is_seeded_and_workers_change_nothing(play, tmp_path):
    def ids(**options):
        return [(episode.round, episode.task_id) for episode in play(n=30, **options).kept]

    first = ids()
    assert ids(store=tmp_path / "again.jsonl") == ids(store=tmp_path / "three.jsonl", workers=3) == first
    assert ids(seed=1) != first  # another key in the same file
    assert len({played.key for played in read_played(tmp_path / "played.jsonl")}) == 2


def test_what_was_played_is_not_played_again(play, setting):
    first = play(n=30)

    def refuse(task):
        raise AssertionError("played twice")

    assert play(n=30, start=refuse) == first
    with pytest.raises(AssertionError):
        play(n=30, start=refuse, params={"teacher": "another"})


def test_a_task_that_failed_comes_again_with_another_teacher(play, searches, tmp_path):
    options = {"tasks": searches, "success": Success(success_rank=1)}
    with pytest.raises(DataError):
        play(n=len(searches) + 1, rounds=1, **options)
    first_round = Counter(bool(played.failure) for played in read_played(tmp_path / "played.jsonl"))
    more = play(n=first_round[False] + 1, rounds=9, **options)
    *first, last = more.kept
    assert {played.round for played in first} == {0} and last.round > 0
    assert more.failures["no success"] >= first_round[True] == len(searches) - len(first)


def test_when_tasks_run_out_the_error_says_how_far_it_came(play, searches):
    with pytest.raises(DataError, match=r"5 tasks in 2 rounds.*no success.*more tasks or rounds"):
        play(n=400, tasks=searches[:5], rounds=2, success=Success(success_rank=1))


# Why a trajectory is not kept: sides that do wrong, each by one fault.


def stop():
    return Action(name="stop")


def search(query):
    return Action(name="search_product_by_query", arguments={"query": query})


def ask(content):
    return Action(name="respond", arguments={"content": content})


def failures(play, tasks, script, **options):
    """The failures of a teacher that acts by ``script``, last action over and over."""

    def act(state):
        actions = script(state) if callable(script) else script
        return actions[min(len(state.session), len(actions) - 1)]

    with pytest.raises(DataError):
        play(n=1, rounds=1, tasks=tasks, teacher=lambda number: act, **options)


def only_failure(path):
    return {played.failure for played in read_played(path)}


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ([search(" "), stop()], "malformed"),
        ([Action(problem="the reply is empty", problem_kind="empty"), stop()], "malformed"),
        ([ask("Which color would you like?")], "too long"),
        ([search("zzzz"), stop()], "no success"),
        ([stop()], "no success"),
    ],
)
def test_a_bad_teachers_trajectories_are_counted_by_reason(play, searches, tmp_path, script, failure):
    failures(play, searches[:3], script)
    assert only_failure(tmp_path / "played.jsonl") == {failure}


@pytest.mark.parametrize("cheat", ["{p.title}", "for you: {p.parent_asin}"])
def test_a_teacher_that_knows_the_target_is_found_out(play, searches, benchmark, tmp_path, cheat):
    new = [t for t in searches if t.target not in {b.parent_asin for b in benchmark.history(t, SPLIT)}][:3]
    targets = {task.instruction: benchmark.products[task.target] for task in new}
    failures(play, new, lambda state: [search(cheat.format(p=targets[state.instruction])), stop()])
    assert only_failure(tmp_path / "played.jsonl") == {"leak by the teacher"}


def test_a_title_that_the_profile_tells_is_no_leak(play, searches, setting, benchmark, tmp_path):
    """Such as of something that is bought again."""
    task = next(t for t in searches if not setting.context_of(t).bought.count(t.target))
    title = benchmark.products[task.target].title
    told = Context(ContextualProfile(lines=(ProfileLine.of(f"Liked: {title}", True, "history"),)))
    start = replace(setting, context_of=lambda _: told).start
    script = [search(title), stop()]
    made = play(n=1, tasks=[task], teacher=lambda _: lambda state: script[len(state.session)], start=start)
    assert made.kept and not made.failures


def test_an_id_that_the_shop_showed_is_no_leak(play, setting, benchmark):
    """Who bought the target before is told its id; to use it is what the function is for."""
    task = next(
        t
        for t in benchmark.tasks[SPLIT]
        if t.type == "recommend" and t.target in setting.context_of(t).profile.bought
    )
    assert play(n=1, tasks=[task], rounds=1, success=Success(success_rank=10)).kept


def test_a_user_that_tells_the_title_is_found_out(play, searches, benchmark, catalogue, tmp_path):
    def user(task, session, says):
        return UserReply(f"It is called {benchmark.products[task.target].title}.")

    setting = make_setting(benchmark, catalogue, user)
    failures(play, searches[:3], [ask("What is it called?"), stop()], start=setting.start)
    assert only_failure(tmp_path / "played.jsonl") == {"leak by the user"}


def test_a_task_that_cannot_be_evaluated_is_counted(play, searches, tmp_path):
    def start(task):
        raise NotEvaluableError("no real review")

    failures(play, searches[:2], [stop()], start=start)
    assert only_failure(tmp_path / "played.jsonl") == {"not evaluable"}


# Isolation.


def test_the_teachers_side_never_sees_the_targets_title_before_the_shop_shows_it(benchmark, play):
    """Each product has a mark in its title that nobody says in words."""
    marks = {asin: f"M4RK{number}X" for number, asin in enumerate(benchmark.products)}
    marked = replace(
        benchmark,
        products={
            asin: product.model_copy(update={"title": f"{product.title} {marks[asin]}"})
            for asin, product in benchmark.products.items()
        },
    )
    catalogue = Catalogue(marked.products)
    setting = make_setting(marked, catalogue)
    tasks = {task.task_id: task for task in marked.tasks[SPLIT]}
    kept = play(
        n=30,
        start=setting.start,
        teacher=lambda n: make_teacher(setting, catalogue, seed=n),
        params={"marked": 1},
    ).kept
    for played in kept:
        task = tasks[played.task_id]
        for state in played.states(marked, task, SPLIT):
            shown = {asin for step in state.session for asin in step.observation.products}
            may_show = task.target in shown or task.type == "review"
            assert may_show or marks[task.target] not in str(orion_messages(state))


# What is stored.


def test_belief_states_can_be_made_again(play, setting, benchmark, catalogue, tmp_path):
    kept = play(n=20).kept
    stored = [played for played in read_played(tmp_path / "played.jsonl") if not played.failure]
    assert len(stored) < len(kept) + len(TASK_TYPES) and all(played in stored for played in kept)
    tasks = {task.task_id: task for task in benchmark.tasks[SPLIT]}
    for played in kept:
        task = tasks[played.task_id]
        states = played.states(benchmark, task, SPLIT)
        episode = setting.start(task)
        assert states[0] == episode.state
        for step, state in zip(played.trajectory.steps, states[1:], strict=True):
            assert episode.step(step.action) == step and episode.state == state
    other = next(task for task in tasks.values() if task.task_id != played.task_id)
    with pytest.raises(ValueError, match="no belief states of task"):
        played.states(benchmark, other, SPLIT)


def test_sigkill_loses_nothing_and_the_result_is_the_same(play, setting, tmp_path):
    store, calls = tmp_path / "played.jsonl", tmp_path / "calls"

    def lines():
        return store.read_bytes().count(b"\n") if store.exists() else 0

    for kill_after in (3, 11):
        process = begin(killed_role_play.play, store, calls)
        enough = lines() + kill_after
        while lines() < enough:
            assert process.exitcode is None
            time.sleep(0.001)
        kill(process)
    if store.read_bytes().endswith(b"\n"):  # else a kill did fall into a write
        with open(store, "ab") as file:
            file.write(b'{"key":"0123')

    stored, played_now = lines(), []
    resumed = play(n=30, start=lambda task: played_now.append(task) or setting.start(task))
    assert resumed == play(n=30, store=tmp_path / "whole.jsonl")
    assert stored + len(played_now) == lines()  # each line one episode, none of them played twice
    assert 0 <= len(calls.read_text().split()) - stored <= 2 * 2  # what two workers were at, at two kills


# A language model as the teacher.


class WritingModel(ChatModel):
    """Searches for the instruction's words, then stops; notes its requests."""

    name = "writing"

    def __init__(self):
        self.requests = []

    def reply(self, request):
        self.requests.append(request)
        text = request.messages[1]["content"]
        query = re.sub(r"[^A-Za-z ]", "", text.split("\n")[0].partition(":")[2])
        call = f'{{"name": "search_product_by_query", "arguments": {{"query": "{query}"}}}}'
        done = '{"name": "stop", "arguments": {}}'
        return Reply(
            text=f"<think>x</think><tool_call>{done if len(request.messages) > 2 else call}</tool_call>"
        )


def test_a_language_model_plays_the_teacher(play, searches):
    model = WritingModel()
    made = play(n=3, tasks=searches, teacher=llm_teachers(model), rounds=2, success=Success(success_rank=10))
    assert len(made.kept) == 3
    assert {request.sampling["temperature"] for request in model.requests} == {0.6}
    assert all(request.tools for request in model.requests)


def test_another_round_draws_another_reply_and_reviews_a_hotter_one(setting, benchmark, searches):
    model = WritingModel()
    review = next(task for task in benchmark.tasks[SPLIT] if task.type == "review")
    for number in (0, 1):
        llm_teachers(model)(number)(setting.start(searches[0]).state)
    llm_teachers(model)(0)(setting.start(review).state)
    assert [request.sample for request in model.requests] == [0, 1, 0]
    assert model.requests[-1].sampling["temperature"] == 1.0
