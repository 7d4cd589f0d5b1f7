"""The tasks of a preset: those that ``evaluate`` plays, or tasks to learn from."""

import pytest

from pwagents.adapters.core import Session
from pwagents.adapters.load import load_tasks
from pwagents.errors import SettingsError
from pwagents.web.recommender import RecommendersByTime

TINY = {
    "data": {"n_users": 12, "n_products": 300},
    "shop": {"rec_dates": 1, "recommender": {"epochs": 1, "hidden": 8}},
}


@pytest.fixture(autouse=True)
def no_training(monkeypatch):
    monkeypatch.setattr(RecommendersByTime, "fit", lambda *_: RecommendersByTime([], []))


@pytest.fixture
def load(tmp_path):
    return lambda *given, **options: load_tasks(
        *given, **{"tasks": 6, "output_dir": tmp_path, **TINY, **options}
    )


@pytest.mark.parametrize("split", ["test", "train"])
def test_an_agent_sees_what_lies_before_the_first_task_of_the_split(load, split):
    tasks = load(split=split)
    benchmark = tasks.start(next(iter(tasks.tasks.values()))).shop.benchmark
    assert set(tasks) <= {task.task_id for task in benchmark.tasks[split]} and len(tasks) == 6
    for task_id, task in tasks.tasks.items():
        history = tasks.start(task).state.history
        assert history == benchmark.history(task, split)
        assert all(behavior.timestamp < task.timestamp for behavior in history)
        assert Session(tasks).reset(task_id).count("  Title: ") == min(len(history), 20)


def test_the_single_turn_track_has_no_talk_and_ends_with_the_first_call(load):
    tasks = load(track="single_turn")
    assert not {"respond", "stop"} & set(tasks.functions)
    session = Session(tasks)
    assert "cannot ask anything back" in session.reset(next(iter(tasks)))
    assert session.step("search_product_by_query", {"query": "coat"}).done


def test_wrong_names_are_one_line(load):
    with pytest.raises(SettingsError, match="track is 'both'"):
        load(track="both")
    with pytest.raises(ValueError, match="split is 'dev'; expected one of train, test"):
        load(split="dev")
    with pytest.raises(SettingsError, match="found 'none'; expected one of"):
        load("none")
