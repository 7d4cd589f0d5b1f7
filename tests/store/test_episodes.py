"""Runs of episodes: what is stored, resumed, counted apart and refused, and what a real kill leaves."""

import fcntl
import gc
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from urllib.error import HTTPError

import httpx2
import numpy as np
import openai
import pytest

from pwagents import engine
from pwagents.errors import DataError, InfrastructureError, NotEvaluableError, is_outage
from pwagents.files import seal_line
from pwagents.llm.failures import RejectedError
from pwagents.progress import counts
from pwagents.results.episodes import count_outcomes, records_frame
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory, Usage
from pwagents.settings import MethodPlayers
from pwagents.shop.score import grade
from pwagents.store import Episode, Store, episodes

from ..processes import begin, kill

FACTS = {"data": "h1", "memory": 20, "code": ["shop.search"]}


def play_tasks(tasks, solve, store, facts=FACTS, method="m", **options):
    return episodes(store, tasks, solve, facts, method=method, **options)


play_users = partial(play_tasks, memory={})


def make_tasks(n, users=3):
    common = {"type": "search", "instruction": "a warm coat", "target": "B1", "review": Review(rating=5)}
    return [Task(task_id=f"t{i}", user_id=f"u{i % users}", timestamp=1 + i, **common) for i in range(n)]


def trajectory_of(task, *steps):
    about = {"task_id": task.task_id, "user_id": task.user_id, "type": task.type, "target": task.target}
    return Trajectory(**about, steps=steps)


def solve(task):
    action = Action(name="search_product_by_query", arguments={"query": f"naïve <b>{task.task_id}</b>"})
    seen = Observation(text="B1", products=("B9", "B8", "B7", "B6", "B5", "B1"))
    return trajectory_of(task, Step(action=action, observation=seen))


def never(task):
    raise AssertionError(f"{task.task_id} ran again")


class Solver:
    """Solves and, where it may, remembers the user's tasks; raises ``error`` on the tasks of ``bad``."""

    def __init__(self, error=None, bad=()):
        self.error, self.bad, self.calls = error, bad, []

    def __call__(self, task, memory=None):
        self.calls.append(task.task_id)
        if memory is not None:
            memory.setdefault("seen", []).append(task.task_id)
        if task.task_id in self.bad:
            raise self.error
        return solve(task) if memory is None else (solve(task), memory)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "runs" / "episodes.jsonl"


def stored_ids(store):
    return [json.loads(line)["task_id"] for line in store.open()]


@pytest.mark.parametrize("workers", [1, 4])
def test_a_second_run_repeats_nothing_and_returns_the_same_in_task_order(store, workers):
    def slow_first(task):
        time.sleep(0.02 if task.task_id == "t0" else 0)
        return solve(task)

    tasks = make_tasks(20)
    first = play_tasks(tasks, slow_first, store, workers=workers)
    assert [record.task_id for record in first] == [task.task_id for task in tasks]
    assert [record.trajectory for record in first] == [solve(task) for task in tasks]
    before = store.read_bytes()
    assert play_tasks(tasks, never, store) == first
    assert play_tasks(tasks, never, store, stored_only=True) == first
    assert store.read_bytes() == before
    assert grade(first[2].trajectory).result_official == 0.5
    assert b"grade" not in before and b"0.5" not in before, "computed when read, and never stored"


def test_methods_models_and_facts_share_a_store_without_mixing_are_plain_json_and_ids_unique(store):
    for changed in ({}, {"method": "other"}, {"model": "other"}, {"facts": FACTS | {"data": "h2"}}):
        fresh = Solver()
        play_tasks(make_tasks(2), fresh, store, **changed)
        assert fresh.calls == ["t0", "t1"]
    reordered = dict(reversed(FACTS.items()))
    assert len(play_tasks(make_tasks(2), never, store, reordered)) == 2
    for odd in ({"a": object()}, {"a": float("nan")}, {"a": {1}}):
        with pytest.raises(DataError, match="plain JSON"):
            play_tasks(make_tasks(1), solve, store, FACTS | odd)
    for play in (play_tasks, play_users):
        with pytest.raises(DataError, match="t0"):
            play(make_tasks(2) + make_tasks(1), never, store)


def test_an_agent_without_a_version_is_played_anew_and_its_last_episodes_count(store):
    for anew, calls in ((True, ["t0", "t1"]), (False, []), (True, ["t0", "t1"])):
        agent = Solver()
        play_tasks(make_tasks(2), agent, store, anew=anew)
        assert agent.calls == calls
    remembering = Solver()
    for _ in range(2):
        records = play_users(make_tasks(6, users=2), remembering, store, anew=True)
    assert len(remembering.calls) == 12 and seen(records)["t4"] == ["t0", "t2", "t4"]
    with pytest.raises(DataError, match="2 of 2 missing"):
        play_tasks(make_tasks(2), never, store, anew=True, stored_only=True)


def test_two_servers_that_call_their_models_alike_have_episodes_of_their_own(store):
    calls = []
    for place in ({"base_url": "http://127.0.0.1:8001/v1"}, {"base_url": "http://127.0.0.1:8002/v1"}):
        for named in ({}, {"endpoint": "tuned"}):  # the reader's name for both
            agent = Solver()
            facts = FACTS | MethodPlayers(policy="openai:policy", **place, **named).facts("policy")
            play_tasks(make_tasks(1), agent, store, facts, model="policy")
            calls.append(len(agent.calls))
    assert calls == [1, 1, 1, 0]


# What a kill, another program or a mistake leaves in the file


def test_a_torn_line_is_cut_away_with_one_line_and_its_episode_played_again(tmp_path, capsys):
    whole, tasks = tmp_path / "whole", make_tasks(2)
    expected = records_frame(play_tasks(tasks, solve, whole))
    content = whole.read_bytes()
    start = content.index(b"\n") + 1
    cuts = [start + 1, start + 5, start + 12, len(content) // 2 + 90, len(content) - 1]
    for cut, nulls in [*((cut, 0) for cut in cuts), (start, 4096), (start + 3, 9), (start + 50, 9)]:
        store, again = tmp_path / f"cut{cut}-{nulls}", Solver()
        store.write_bytes(content[:cut] + bytes(nulls))  # what a power cut leaves
        play_tasks(tasks[:1], never, store, stored_only=True)
        assert store.read_bytes() == content[:cut] + bytes(nulls), "reading alone changes nothing"
        capsys.readouterr()
        assert records_frame(play_tasks(tasks, again, store)).equals(expected)
        (line,) = capsys.readouterr().out.splitlines()
        assert str(store) in line and "was cut away" in line
        assert again.calls == ["t1"] and stored_ids(store) == ["t0", "t1"]


def test_nothing_runs_on_a_corrupt_store_or_on_a_file_that_is_none(store):
    play_tasks(make_tasks(3), solve, store)
    lines = store.read_text().splitlines()
    for content in ("\n".join([lines[0], lines[1][:40], lines[2], ""]), "my notes, without a line end"):
        store.write_text(content)
        for only in (False, True):
            with pytest.raises(DataError, match=r"episodes\.jsonl, record line \d, field '.whole line.'"):
                play_tasks(make_tasks(3), never, store, stored_only=only)
        assert store.read_text() == content


@pytest.mark.parametrize(("old", "new"), [('"B9", "B8"', '"B8", "B9"'), ("warm", "cold"), ("}, ", "},  ")])
def test_a_line_that_was_edited_is_told_and_not_believed(store, old, new):
    play_tasks(make_tasks(2), solve, store)
    first, second = store.read_text().splitlines(keepends=True)
    store.write_text(first + second.replace(old, new, 1))
    assert second != second.replace(old, new, 1)
    for tasks in (make_tasks(2), make_tasks(1)):  # whoever reads it
        with pytest.raises(DataError, match=r"line 2.*checksum does not fit: it was damaged or edited"):
            play_tasks(tasks, never, store)


def test_lines_without_a_checksum_are_told_and_played_again(store, capsys):
    play_tasks(make_tasks(2), solve, store)
    lines = [json.loads(line) for line in store.open()]
    unsealed = [{name: line[name] for name in line if name != "sha256"} for line in lines]
    store.write_text("".join(json.dumps(line) + "\n" for line in unsealed))
    again = Solver()
    play_tasks(make_tasks(2), again, store)
    assert again.calls == ["t0", "t1"] and stored_ids(store) == ["t0", "t1", "t0", "t1"]
    assert "2 lines were stored by an earlier version, without a checksum" in capsys.readouterr().out


def test_another_model_behind_one_address_is_told_and_counted(store, capsys):
    seen = []
    for n, root in ((2, "/a"), (3, "/a"), (3, "/b")):
        before = counts.copy()
        play_tasks(make_tasks(n), solve, store, served=partial(dict, {"openai:m": {"root": root}}))
        seen.append((dict(counts - before), capsys.readouterr().out))
    other = "episodes stored of a model served otherwise"
    assert seen[0] == ({"episodes played": 2}, "")
    assert seen[1] == ({"episodes stored": 2, "episodes played": 1}, "")
    assert seen[2][0] == {"episodes stored": 3, other: 3}
    assert "of openai:m" in seen[2][1] and "3 episodes were stored (root was '/a', is '/b')" in seen[2][1]
    play_tasks(make_tasks(3), never, store, stored_only=True, served=never)  # nobody is asked


def test_a_failed_write_leaves_no_half_line(store, monkeypatch):
    play_tasks(make_tasks(1), solve, store)
    before = store.read_bytes()

    def disk_full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        play_tasks(make_tasks(3), solve, store)
    assert store.read_bytes() == before


def test_two_writers_on_one_store_are_refused(store):
    play_tasks(make_tasks(1), solve, store)
    with open(store, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="another run"):
            play_tasks(make_tasks(2), never, store)
        assert play_tasks(make_tasks(1), never, store)


def test_the_last_of_two_lines_of_one_key_counts_and_missing_ones_are_counted(store):
    play_tasks(make_tasks(3), solve, store)
    first = json.loads(store.read_text().splitlines()[0])
    del first["sha256"]
    store.write_text(store.read_text() + seal_line(json.dumps(first | {"seconds": 77})) + "\n")
    assert play_tasks(make_tasks(1), never, store)[0].seconds == 77
    with pytest.raises(DataError, match=r"7 of 10 missing \(the first is task t3\).*stored_runs_only=False"):
        play_tasks(make_tasks(10), never, store, stored_only=True)
    with pytest.raises(DataError, match="1 of 1 missing"):
        play_tasks(make_tasks(1), never, store.parent / "none", stored_only=True)
    assert not (store.parent / "none").exists()


@pytest.mark.parametrize("odd", [{"\ud800": 1}, {"query": [float("nan")]}, 'line\u2028 "\n" \ud83d \x00 é'])
def test_odd_texts_and_arguments_survive_the_store(store, odd):
    nested = ["x"]
    for _ in range(300):
        nested = [nested]
    step = Step(
        action=Action(name="x", arguments={"odd": odd, "nested": nested}),
        observation=Observation(text=str(odd)),
    )
    play_tasks(make_tasks(1), lambda task: trajectory_of(task, step), store)
    (again,) = play_tasks(make_tasks(1), never, store)
    assert repr(again.trajectory.steps[0]) == repr(step)


# How an episode may end

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1")


def answered(kind, status):
    """Return the error that the official client raises for an answer with this status."""
    return kind(f"status {status}", response=httpx2.Response(status, request=REQUEST), body=None)


BUSY = [("code", 503), ("status", 529), ("response", SimpleNamespace(status=HTTPStatus.BAD_GATEWAY))]
MISTAKES = [("code", "rate_limit"), ("status", 422), ("status_code", 50001)]


def status(name, value):
    """Return an error with one field, as clients of endpoints have them."""
    error = RuntimeError("busy")
    setattr(error, name, value)
    return error


def caused_by(cause):
    error = ValueError("no answer")
    error.__cause__ = cause
    return error


circle = ValueError("its own cause")
circle.__cause__ = caused_by(circle)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (caused_by(ConnectionError("refused")), True),
        (caused_by(answered(openai.RateLimitError, 429)), True),
        (answered(openai.BadRequestError, 400), False),
        *((status(name, value), True) for name, value in BUSY),
        *((status(name, value), False) for name, value in MISTAKES),
        *((HTTPError("http://x", code, "no", {}, None), code == 503) for code in (503, 404)),
        (caused_by(caused_by(status("http_status", "429"))), True),
        (answered(openai.AuthenticationError, 401), False),
        (ValueError("no price"), False),
        *((getattr(httpx2, name)("down"), True) for name in ("ConnectError", "ReadTimeout", "PoolTimeout")),
        (httpx2.UnsupportedProtocol("ftp://"), False),
        (status("response", {"ResponseMetadata": {"HTTPStatusCode": 429}}), True),
        (circle, False),
    ],
)
def test_an_endpoint_that_cannot_answer_now_is_told_from_a_mistake(error, expected):
    assert is_outage(error) == expected


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InfrastructureError("503"), "infrastructure_error"),
        (OSError("disk"), "infrastructure_error"),
        (openai.APITimeoutError(request=REQUEST), "infrastructure_error"),
        (answered(openai.RateLimitError, 429), "infrastructure_error"),
        (NotEvaluableError("no real review"), "not_evaluable"),
    ],
)
def test_infrastructure_errors_are_tried_again_and_not_evaluable_is_final(store, error, outcome):
    is_final = outcome == "not_evaluable"
    refused = nullcontext() if is_final else pytest.raises(
        InfrastructureError, match=rf"1 of 3 .* \(m, task t1\) because of .*{error}.* run again"
    )  # fmt: skip
    with refused:
        play_tasks(make_tasks(3), Solver(error, ["t1"]), store)
    records = [*Store(store, Episode).read()]
    assert [r.outcome for r in records] == ["scored", outcome, "scored"]
    assert str(error) in records[1].message and records[1].trajectory is None
    with refused if is_final else pytest.raises(InfrastructureError, match="1 of 3"):
        assert play_tasks(make_tasks(3), never, store, stored_only=True) == records
    again = Solver()
    later = play_tasks(make_tasks(3), again, store)
    assert again.calls == ["t1"] * (not is_final) and (later == records) == is_final


@pytest.fixture(params=["threads", "cluster"])
def on(request, monkeypatch):
    """Where episodes are played; a stand-in for a cluster gives them back in one round."""
    if request.param == "cluster":
        monkeypatch.setattr(engine, "in_use", "ray")
        monkeypatch.setattr(engine, "remote", lambda function: lambda units: iter([[*map(function, units)]]))
    return request.param


def test_three_failures_alike_pause_a_run_and_what_was_finished_is_stored(store, on):
    def down(task):
        if task.task_id == "t4":
            return solve(task)
        request = f"{chr(97 + task.timestamp)}7{task.task_id}"
        raise InfrastructureError(f"no answer in {task.timestamp} s to request {request} of {on}")

    with pytest.raises(InfrastructureError, match=rf"paused after 3 .* to request d7t2 of {on}; what was"):
        play_tasks(make_tasks(5), down, store)
    assert {"t0", "t1", "t2"} <= {*stored_ids(store)}
    assert on == "threads" or len(stored_ids(store)) == 5


@pytest.mark.parametrize("who", ["agent", "user"])
def test_three_rejections_alike_pause_a_run_with_none_stored_and_fewer_are_results(store, on, who):
    def reject(task, few=False):
        if task.task_id == "t0" or (few and task.task_id == "t3"):
            return solve(task)
        refusal = RejectedError(f"HTTP 400: unsigned, request {task.task_id}")
        if who == "user":
            raise refusal
        ended = {"end": "refused", "message": f"RejectedError: {refusal}"}
        return solve(task).model_copy(update=ended)

    with pytest.raises(InfrastructureError, match=r"paused after 3 failures alike.* unsigned, request"):
        play_tasks(make_tasks(6), reject, store, workers=3)
    assert stored_ids(store) == ["t0"]
    for n in (6, 7):
        played = play_tasks(make_tasks(n), partial(reject, few=True), store)
        assert play_tasks(make_tasks(n), never, store) == played and len(stored_ids(store)) == n


def test_what_a_memory_makes_of_a_rejected_task_is_not_kept_without_it(store):
    def rejected(task, memory):
        ended = {"end": "refused", "message": "RejectedError: unsigned"}
        trajectory, memory = Solver(KeyError("price"), ["t3"])(task, memory)
        return trajectory.model_copy(update=ended if task.task_id == "t1" else {}), memory

    tasks = make_tasks(4, users=1)
    with pytest.raises(RuntimeError, match="task t3: KeyError"):
        play_users(tasks, rejected, store)
    assert stored_ids(store) == ["t0"]
    assert play_users(tasks, Solver(), store)[-1].memory == {"seen": ["t0", "t1", "t2", "t3"]}


@pytest.mark.parametrize("workers", [1, 3])
def test_any_other_error_stops_the_run_names_the_task_and_keeps_what_is_finished(store, workers):
    failing = Solver(KeyError("price"), ["t5"])
    with pytest.raises(RuntimeError, match="task t5: KeyError") as caught:
        play_tasks(make_tasks(400), failing, store, workers=workers)
    assert isinstance(caught.value.__cause__, KeyError)
    assert set(stored_ids(store)) == set(failing.calls) - {"t5"} and len(stored_ids(store)) >= 5
    assert len(play_tasks(make_tasks(7), solve, store)) == 7
    for wrong in (solve(make_tasks(2)[1]), None):  # another task's trajectory, or none
        with pytest.raises(RuntimeError, match="task t0: "):
            play_tasks(make_tasks(1), lambda task, wrong=wrong: wrong, store.with_name("x"))


def test_an_interrupt_leaves_a_clean_store(store):
    def interrupted(task):
        if task.task_id == "t3":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.1)
        return solve(task)

    # Lost in hypothesis' callback of garbage collections, and ignored in a shell's background.
    gc.disable()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            play_tasks(make_tasks(200), interrupted, store)
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, before)
    stored = stored_ids(store)
    assert stored == [f"t{i}" for i in range(len(stored))] and 4 <= len(stored) < 200
    rest = Solver()
    play_tasks(make_tasks(200), rest, store)
    assert not set(rest.calls) & set(stored)


def test_frame_and_counts_keep_what_was_not_scored_and_tell_what_the_agents_model_cost(store):
    def spend(task):
        if task.task_id == "t2":
            raise NotEvaluableError("empty")
        action = Action(name="x", usage=Usage(calls=1, prompt_tokens=3, completion_tokens=2, usd=0.1))
        return trajectory_of(task, *2 * [solve(task).steps[0].model_copy(update={"action": action})])

    frame = records_frame(play_tasks(make_tasks(4), spend, store))
    assert frame["task_id"].tolist() == ["t0", "t1", "t2", "t3"]
    assert np.isnan(frame.loc[2, ["function_accuracy", "steps", "tokens", "usd"]].astype(float)).all()
    assert frame.loc[1, ["steps", "tokens", "usd"]].tolist() == [2, 10, 0.2]
    assert count_outcomes(frame).to_dict("records") == [
        {"method": "m", "scored": 3, "infrastructure_error": 0, "not_evaluable": 1}
    ]
    empty = records_frame([])
    assert len(empty) == 0 and "result_final" in empty
    assert list(count_outcomes(empty)) == ["method", "scored", "infrastructure_error", "not_evaluable"]


# Methods with memory across tasks


def seen(records):
    return {record.task_id: (record.memory or {}).get("seen") for record in records}


# Users u0, u1, u2 take turns; their tasks in time order are t0 t3 t6 ..., t1 t4 t7 ..., t2 t5 t8 ...
ALL_SEEN = {f"t{i}": [f"t{j}" for j in range(i % 3, i + 1, 3)] for i in range(9)}


def test_after_an_infrastructure_error_the_users_later_tasks_wait_for_the_next_run(store):
    failing = Solver(InfrastructureError("503"), ["t3"])
    with pytest.raises(InfrastructureError, match="2 of 9"):
        play_users(make_tasks(9), failing, store)
    records = Store(store, Episode).read()
    messages = {r.task_id: r.message for r in records if r.outcome == "infrastructure_error"}
    assert sorted(messages) == ["t3", "t6"] and "t6" not in failing.calls
    assert messages["t6"] == "InfrastructureError: waits for task t3 of the same user"
    again = Solver()
    records = play_users(reversed(make_tasks(9)), again, store, workers=3)
    assert again.calls == ["t3", "t6"] and seen(records) == ALL_SEEN, "in the order of time"
    assert [record.task_id for record in records] == [f"t{i}" for i in reversed(range(9))]


def test_a_task_that_cannot_be_evaluated_leaves_the_memory_as_it_was(store):
    failing = Solver(NotEvaluableError("no real review"), ["t3"])
    records = play_users(make_tasks(9), failing, store)
    assert records[3].outcome == "not_evaluable" and records[3].memory == {"seen": ["t0"]}
    assert records[6].memory == {"seen": ["t0", "t6"]}
    assert play_users(make_tasks(9), never, store) == records
    # An episode with other tasks before it is another episode, and one without memory is yet another.
    again = Solver()
    play_users(make_tasks(9)[6:], again, store)
    without = play_tasks(make_tasks(9), again, store)
    assert len(again.calls) == 3 + 9 and all(record.memory is None for record in without)


# A run that is killed for real, at random moments, and taken up again until it is done

N_TASKS, WORKERS, KILLS = 300, 3, 3


def play(store, calls):
    """The run that is killed, of users' tasks in turn; ``calls`` gets a line an episode."""
    called = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    step = Step(action=Action(name="respond"), observation=Observation(text="x" * 20_000))

    def solve_next(task, memory):
        os.write(called, f"{task.task_id}\n".encode())
        time.sleep(0.002)
        return trajectory_of(task, step), {"seen": [*memory.get("seen", []), task.task_id]}

    play_users(make_tasks(N_TASKS, users=10), solve_next, store, workers=WORKERS)


def whole_lines(store):
    content = store.read_bytes() if store.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def test_sigkill_loses_nothing_and_repeats_nothing(tmp_path):
    store, calls, moments = tmp_path / "episodes.jsonl", tmp_path / "calls", random.Random(5)
    for _ in range(KILLS):
        process = begin(play, store, calls)
        count = whole_lines(store).count(b"\n") + moments.randint(1, N_TASKS // (2 * KILLS))
        deadline = time.monotonic() + 60
        while whole_lines(store).count(b"\n") < count:
            assert process.exitcode is None and time.monotonic() < deadline, "the run did not get so far"
            time.sleep(0.001)
        time.sleep(moments.random() * 0.004)
        kill(process)

        kept = whole_lines(store)
        finished = {json.loads(line)["task_id"] for line in kept.splitlines()}
        called = Counter(calls.read_text().split())
        assert 0 < len(finished) < N_TASKS
    last = begin(play, store, calls)
    last.join(timeout=60)
    assert last.exitcode == 0

    lines = [json.loads(line) for line in store.read_bytes().splitlines()]
    assert sorted(line["task_id"] for line in lines) == sorted(f"t{i}" for i in range(N_TASKS))
    assert store.read_bytes().startswith(kept)
    after = Counter(calls.read_text().split())
    assert all(after[task_id] == called[task_id] for task_id in finished)
    # Only episodes under way at a kill were begun twice: at most one for each thread.
    assert sum(after.values()) - N_TASKS <= KILLS * WORKERS
    for line in lines:
        number = int(line["task_id"][1:])
        assert line["memory"]["seen"] == [f"t{i}" for i in range(number % 10, number + 1, 10)]
