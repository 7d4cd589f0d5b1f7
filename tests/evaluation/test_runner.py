"""The runner: what is stored, resumed, counted apart and refused."""

import fcntl
import json
import signal
import threading
import time

import numpy as np
import pytest

from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.evaluation.runner import (
    count_outcomes,
    episode_key,
    records_frame,
    run_episodes,
    run_user_episodes,
)
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory, Usage

NAMES = {"method": "m", "model": "none", "params": {"data": "h1", "memory": 20}}


def make_tasks(n):
    return [
        Task(
            task_id=f"t{i}",
            user_id=f"u{i % 3}",
            type="search",
            timestamp=1 + i,
            instruction="a warm coat",
            target="B1",
            review=Review(rating=5),
        )
        for i in range(n)
    ]


def solve(task):
    action = Action(name="search_product_by_query", arguments={"query": f"naïve <b>{task.task_id}</b>"})
    seen = Observation(text="B1", products=("B1",))
    step = Step(action=action, observation=seen)
    return Trajectory(task_id=task.task_id, user_id=task.user_id, type=task.type, target="B1", steps=(step,))


def never(task):
    raise AssertionError(f"{task.task_id} ran again")


class Flaky:
    """Solves, but raises ``error`` on the tasks of ``bad``; notes every call."""

    def __init__(self, error=None, bad=()):
        self.error, self.bad, self.calls = error, bad, []

    def __call__(self, task):
        self.calls.append(task.task_id)
        if task.task_id in self.bad:
            raise self.error
        return solve(task)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "runs" / "episodes.jsonl"


def test_records_come_in_task_order_with_trajectory_and_grade(store):
    tasks = make_tasks(4)
    records = run_episodes(tasks, solve, store, **NAMES)
    assert [record.task_id for record in records] == ["t0", "t1", "t2", "t3"]
    assert records[2].trajectory == solve(tasks[2])
    assert records[2].grade.result_official == 1.0
    assert {record.outcome for record in records} == {"scored"}
    assert len(store.read_text().splitlines()) == 4


def test_a_second_run_repeats_nothing_and_returns_the_same(store):
    first = run_episodes(make_tasks(5), solve, store, **NAMES)
    before = store.read_bytes()
    assert run_episodes(make_tasks(5), never, store, **NAMES) == first
    assert run_episodes(make_tasks(5), never, store, **NAMES, stored_runs_only=True) == first
    assert store.read_bytes() == before


def test_more_tasks_are_only_appended(store):
    run_episodes(make_tasks(3), solve, store, **NAMES)
    before, inode = store.read_bytes(), store.stat().st_ino
    rest = Flaky()
    run_episodes(make_tasks(6), rest, store, **NAMES)
    assert rest.calls == ["t3", "t4", "t5"]
    assert store.read_bytes().startswith(before) and store.stat().st_ino == inode


def test_parallel_equals_serial(tmp_path):
    def slow_first(task):
        time.sleep(0.02 if task.task_id == "t0" else 0)
        return solve(task)

    serial = run_episodes(make_tasks(20), slow_first, tmp_path / "a", **NAMES)
    parallel = run_episodes(make_tasks(20), slow_first, tmp_path / "b", **NAMES, workers=4)
    assert [r.model_copy(update={"seconds": 0}) for r in serial] == [
        r.model_copy(update={"seconds": 0}) for r in parallel
    ]


def test_methods_models_and_params_share_a_store_without_mixing(store):
    run_episodes(make_tasks(2), solve, store, **NAMES)
    for changed in ({"method": "other"}, {"model": "other"}, {"params": {"data": "h2", "memory": 20}}):
        fresh = Flaky()
        records = run_episodes(make_tasks(2), fresh, store, **NAMES | changed)
        assert fresh.calls == ["t0", "t1"] and len(records) == 2
    assert len(run_episodes(make_tasks(2), never, store, **NAMES)) == 2


def test_the_order_of_params_does_not_matter():
    assert episode_key("t", "m", "x", {"a": 1, "b": [2]}) == episode_key("t", "m", "x", {"b": (2,), "a": 1})


@pytest.mark.parametrize("params", [{"a": object()}, {"a": float("nan")}, {"a": {1}}])
def test_params_must_be_plain_json(store, params):
    with pytest.raises(DataError, match="plain JSON"):
        run_episodes(make_tasks(1), solve, store, **NAMES | {"params": params})


def test_every_cut_of_the_last_line_is_mended(tmp_path):
    whole = tmp_path / "whole"
    tasks = make_tasks(2)
    expected = records_frame(run_episodes(tasks, solve, whole, **NAMES))
    content = whole.read_bytes()
    start = content.index(b"\n") + 1
    for cut in [start, start + 1, start + 5, start + 12, len(content) // 2 + 90, len(content) - 1]:
        store = tmp_path / f"cut{cut}"
        store.write_bytes(content[:cut])
        again = Flaky()
        assert records_frame(run_episodes(tasks, again, store, **NAMES)).equals(expected)
        assert again.calls == ["t1"]
        assert [json.loads(line)["task_id"] for line in store.open()] == ["t0", "t1"]


def test_reading_alone_leaves_a_torn_line_as_it_is(store):
    run_episodes(make_tasks(2), solve, store, **NAMES)
    torn = store.read_bytes()[:-5]
    store.write_bytes(torn)
    run_episodes(make_tasks(1), never, store, **NAMES, stored_runs_only=True)
    assert store.read_bytes() == torn


def corrupt_no_json(line):
    return line[:40]


def corrupt_no_key(line):
    return json.dumps({"task": 1})


def corrupt_field(line):
    return line.replace('"outcome": "scored"', '"outcome": "fine"')


@pytest.mark.parametrize(
    ("corrupt", "names"),
    [(corrupt_no_json, "whole line"), (corrupt_no_key, "key"), (corrupt_field, "outcome")],
)
def test_a_corrupt_line_is_named_and_nothing_runs(store, corrupt, names):
    run_episodes(make_tasks(3), solve, store, **NAMES)
    lines = store.read_text().splitlines()
    lines[1] = corrupt(lines[1])
    store.write_text("\n".join(lines) + "\n")
    for only in (False, True):
        with pytest.raises(DataError, match=f"episodes.jsonl, record line 2, field '.*{names}"):
            run_episodes(make_tasks(3), never, store, **NAMES, stored_runs_only=only)


def test_a_file_that_is_no_store_is_refused_and_kept(store):
    store.parent.mkdir()
    store.write_text("my notes, without a line end")
    with pytest.raises(DataError, match="line 1"):
        run_episodes(make_tasks(1), solve, store, **NAMES)
    assert store.read_text() == "my notes, without a line end"


def test_the_last_of_two_lines_of_one_key_wins(store):
    run_episodes(make_tasks(1), solve, store, **NAMES)
    line = store.read_text()
    store.write_text(line + json.dumps(json.loads(line) | {"seconds": 77}) + "\n")
    assert run_episodes(make_tasks(1), never, store, **NAMES)[0].seconds == 77


@pytest.mark.parametrize(
    "error", [InfrastructureError("503"), ConnectionError("reset"), TimeoutError("slow"), OSError("disk")]
)
def test_infrastructure_errors_are_recorded_and_tried_again(store, error):
    records = run_episodes(make_tasks(3), Flaky(error, ["t1"]), store, **NAMES)
    assert [r.outcome for r in records] == ["scored", "infrastructure_error", "scored"]
    assert str(error) in records[1].message and records[1].grade is None
    assert run_episodes(make_tasks(3), never, store, **NAMES, stored_runs_only=True) == records
    again = Flaky()
    assert {r.outcome for r in run_episodes(make_tasks(3), again, store, **NAMES)} == {"scored"}
    assert again.calls == ["t1"]


def test_not_evaluable_is_final(store):
    records = run_episodes(make_tasks(2), Flaky(NotEvaluableError("no real review"), ["t0"]), store, **NAMES)
    assert (records[0].outcome, records[0].message) == ("not_evaluable", "no real review")
    assert run_episodes(make_tasks(2), never, store, **NAMES) == records


@pytest.mark.parametrize("workers", [1, 3])
def test_any_other_error_stops_the_run_names_the_task_and_keeps_what_is_finished(store, workers):
    failing = Flaky(KeyError("price"), ["t5"])
    with pytest.raises(RuntimeError, match="task t5: KeyError") as caught:
        run_episodes(make_tasks(400), failing, store, **NAMES, workers=workers)
    assert isinstance(caught.value.__cause__, KeyError)
    stored = {json.loads(line)["task_id"] for line in store.open()}
    assert stored == set(failing.calls) - {"t5"} and len(stored) >= 5
    assert len(run_episodes(make_tasks(7), solve, store, **NAMES)) == 7


def test_solve_must_return_the_trajectory_of_its_task(store):
    with pytest.raises(RuntimeError, match="task t0: ValueError"):
        run_episodes(make_tasks(1), lambda task: solve(make_tasks(2)[1]), store, **NAMES)
    with pytest.raises(RuntimeError, match="task t0: "):
        run_episodes(make_tasks(1), lambda task: None, store, **NAMES)


def test_an_interrupt_leaves_a_clean_store(store):
    def interrupted(task):
        if task.task_id == "t3":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.1)
        return solve(task)

    with pytest.raises(KeyboardInterrupt):
        run_episodes(make_tasks(200), interrupted, store, **NAMES)
    stored = [json.loads(line)["task_id"] for line in store.open()]
    assert stored == [f"t{i}" for i in range(len(stored))] and 4 <= len(stored) < 200
    rest = Flaky()
    run_episodes(make_tasks(200), rest, store, **NAMES)
    assert not set(rest.calls) & set(stored)


def test_a_failed_write_leaves_no_half_line(store, monkeypatch):
    run_episodes(make_tasks(1), solve, store, **NAMES)
    before = store.read_bytes()

    def disk_full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        run_episodes(make_tasks(3), solve, store, **NAMES)
    assert store.read_bytes() == before


def test_two_writers_on_one_store_are_refused(store):
    run_episodes(make_tasks(1), solve, store, **NAMES)
    with open(store, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="another run"):
            run_episodes(make_tasks(2), never, store, **NAMES)
        assert run_episodes(make_tasks(1), never, store, **NAMES, stored_runs_only=True)


def test_missing_stored_runs_are_counted(store):
    run_episodes(make_tasks(3), solve, store, **NAMES)
    with pytest.raises(DataError, match=r"7 of 10 missing \(the first is task t3\).*stored_runs_only=False"):
        run_episodes(make_tasks(10), never, store, **NAMES, stored_runs_only=True)
    with pytest.raises(DataError, match="1 of 1 missing"):
        run_episodes(make_tasks(1), never, store.parent / "none", **NAMES, stored_runs_only=True)
    assert not (store.parent / "none").exists()


def test_two_tasks_with_one_id_are_refused(store):
    with pytest.raises(DataError, match="t0"):
        run_episodes(make_tasks(2) + make_tasks(1), solve, store, **NAMES)


def test_records_of_another_grader_are_graded_anew(store):
    records = run_episodes(make_tasks(2), solve, store, **NAMES)
    old = store.read_text().replace('"grader_version": "1"', '"grader_version": "0", "gone": 1')
    store.write_text(old.replace('"result_final": 0.5', '"result_final": 0.1'))
    assert run_episodes(make_tasks(2), never, store, **NAMES) == records


def test_odd_text_survives_the_store(store):
    odd = 'line\u2028 end "\n" \ud83d \x00 é'

    def speak(task):
        step = Step(action=Action(name="respond", arguments={"x": odd}), observation=Observation(text=odd))
        return Trajectory(task_id=task.task_id, user_id="u", type="search", target="B1", steps=(step,))

    run_episodes(make_tasks(1), speak, store, **NAMES)
    (record,) = run_episodes(make_tasks(1), never, store, **NAMES)
    assert record.trajectory.steps[0].observation.text == odd
    assert record.trajectory.steps[0].action.arguments == {"x": odd}


@pytest.mark.parametrize("odd", [{"\ud800": 1}, {"query": [float("nan")]}, "nested"])
def test_odd_arguments_survive_the_store(store, odd):
    nested = []
    for _ in range(300):
        nested = [nested]
    arguments = {"query": nested} if odd == "nested" else odd

    def odd_solve(task):
        step = Step(action=Action(name="x", arguments=arguments), observation=Observation(text=""), error="e")
        return Trajectory(
            task_id=task.task_id, user_id=task.user_id, type=task.type, target="B1", steps=(step,)
        )

    (record,) = run_episodes(make_tasks(1), odd_solve, store, **NAMES)
    (again,) = run_episodes(make_tasks(1), never, store, **NAMES)
    assert record.outcome == again.outcome == "scored"
    assert repr(record.trajectory.steps[0].action.arguments) == repr(arguments)


def test_frame_and_counts_keep_what_was_not_scored(store):
    records = run_episodes(make_tasks(4), Flaky(NotEvaluableError("empty"), ["t2"]), store, **NAMES)
    frame = records_frame(records)
    assert frame["task_id"].tolist() == ["t0", "t1", "t2", "t3"]
    assert np.isnan(frame.loc[2, ["function_accuracy", "steps"]].astype(float)).all()
    assert frame.loc[1, "result_official"] == 1.0
    assert count_outcomes(frame).to_dict("records") == [
        {"method": "m", "scored": 3, "infrastructure_error": 0, "not_evaluable": 1}
    ]


def test_a_frame_tells_what_the_agents_model_cost_where_the_episode_was_scored(store):
    def spend(task):
        (step,) = solve(task).steps
        usage = Usage(calls=1, prompt_tokens=3, completion_tokens=2, usd=0.1)
        action = step.action.model_copy(update={"usage": usage})
        return solve(task).model_copy(update={"steps": 2 * (step.model_copy(update={"action": action}),)})

    def play(task):
        return solve(task) if task.task_id == "t0" else spend(task)

    records = run_episodes(make_tasks(3), play, store, **NAMES)
    lost = records[2].model_copy(update={"outcome": "not_evaluable", "trajectory": None, "grade": None})
    found = records_frame([*records[:2], lost])[["tokens", "usd"]].to_numpy()
    assert np.allclose(found, [[0, 0], [10, 0.2], [np.nan, np.nan]], equal_nan=True)


def test_frame_and_counts_of_nothing():
    frame = records_frame([])
    assert len(frame) == 0 and "result_final" in frame
    assert list(count_outcomes(frame)) == ["method", "scored", "infrastructure_error", "not_evaluable"]


def test_a_frame_refuses_episodes_of_two_graders(store):
    first, second = run_episodes(make_tasks(2), solve, store, **NAMES)
    other = first.model_copy(update={"grade": first.grade.model_copy(update={"grader_version": "0"})})
    with pytest.raises(ValueError, match="graded by versions 0, 1 of the grader; expected one"):
        records_frame([other, second])


def test_the_bar_counts_outcomes(store, capsys):
    flaky = Flaky(InfrastructureError("down"), ["t1"])

    def slow(task):
        time.sleep(0.6)  # bars are shown from one second on
        return flaky(task)

    run_episodes(make_tasks(3), slow, store, **NAMES)
    shown = capsys.readouterr().out
    assert "3/3" in shown and "scored=2" in shown and "infrastructure_error=1" in shown


# Methods with memory across tasks


class Rememberer:
    """Remembers the user's tasks so far; raises ``error`` on the tasks of ``bad``."""

    def __init__(self, error=None, bad=()):
        self.error, self.bad, self.calls = error, bad, []

    def __call__(self, task, memory):
        self.calls.append(task.task_id)
        memory.setdefault("seen", []).append(task.task_id)
        if task.task_id in self.bad:
            raise self.error
        return solve(task), memory


def seen(records):
    return {record.task_id: (record.memory or {}).get("seen") for record in records}


# Users u0, u1, u2 take turns; their tasks in time order are t0 t3 t6 ..., t1 t4 t7 ..., t2 t5 t8 ...
ALL_SEEN = {f"t{i}": [f"t{j}" for j in range(i % 3, i + 1, 3)] for i in range(9)}


@pytest.mark.parametrize("workers", [1, 3])
def test_each_users_tasks_run_in_time_order_and_pass_the_memory_on(store, workers):
    solver = Rememberer()
    records = run_user_episodes(reversed(make_tasks(9)), solver, store, **NAMES, workers=workers)
    assert [record.task_id for record in records] == [f"t{i}" for i in reversed(range(9))]
    assert seen(records) == ALL_SEEN
    assert [int(name[1:]) for name in solver.calls if int(name[1:]) % 3 == 1] == [1, 4, 7]
    assert run_user_episodes(reversed(make_tasks(9)), never, store, **NAMES, stored_runs_only=True) == records


def test_a_resumed_run_takes_up_the_stored_memory(tmp_path):
    whole = tmp_path / "whole"
    expected = run_user_episodes(make_tasks(9), Rememberer(), whole, **NAMES)
    lines = whole.read_bytes().splitlines(keepends=True)
    for cut in (0, 1, 4, 8, 9):
        store, again = tmp_path / f"cut{cut}", Rememberer()
        store.write_bytes(b"".join(lines[:cut]))
        assert seen(run_user_episodes(make_tasks(9), again, store, **NAMES)) == seen(expected)
        done = {json.loads(line)["task_id"] for line in lines[:cut]}
        assert sorted(again.calls) == sorted(set(ALL_SEEN) - done)


def test_after_an_infrastructure_error_the_users_later_tasks_wait_for_the_next_run(store):
    failing = Rememberer(InfrastructureError("503"), ["t3"])
    records = run_user_episodes(make_tasks(9), failing, store, **NAMES)
    messages = {r.task_id: r.message for r in records if r.outcome == "infrastructure_error"}
    assert list(messages) == ["t3", "t6"] and "t6" not in failing.calls
    assert messages["t6"] == "InfrastructureError: waits for task t3 of the same user"
    again = Rememberer()
    assert seen(run_user_episodes(make_tasks(9), again, store, **NAMES)) == ALL_SEEN
    assert again.calls == ["t3", "t6"]


def test_a_task_that_cannot_be_evaluated_leaves_the_memory_as_it_was(store):
    failing = Rememberer(NotEvaluableError("no real review"), ["t3"])
    records = run_user_episodes(make_tasks(9), failing, store, **NAMES)
    assert records[3].outcome == "not_evaluable" and records[3].memory == {"seen": ["t0"]}
    assert records[6].memory == {"seen": ["t0", "t6"]}
    assert run_user_episodes(make_tasks(9), never, store, **NAMES) == records


def test_an_episode_with_other_tasks_before_it_is_another_episode(store):
    run_user_episodes(make_tasks(9)[6:], Rememberer(), store, **NAMES)
    again = Rememberer()
    assert seen(run_user_episodes(make_tasks(9), again, store, **NAMES)) == ALL_SEEN
    assert len(again.calls) == 9
    plain = run_episodes(make_tasks(9), solve, store, **NAMES)  # and one without memory is yet another
    assert all(record.memory is None for record in plain)


def test_what_is_remembered_must_be_plain_json(store):
    with pytest.raises(RuntimeError, match="task t0: TypeError: Object of type set is not JSON"):
        run_user_episodes(make_tasks(1), lambda task, memory: (solve(task), {"a": {1}}), store, **NAMES)


def test_an_error_stops_all_users_and_keeps_what_is_finished(store):
    failing = Rememberer(KeyError("price"), ["t9"])
    with pytest.raises(RuntimeError, match="task t9: KeyError"):
        run_user_episodes(make_tasks(300), failing, store, **NAMES, workers=3)
    stored = {json.loads(line)["task_id"] for line in store.open()}
    assert stored == set(failing.calls) - {"t9"}
