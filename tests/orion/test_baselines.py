"""Table 1's prompt baselines, played on Orion's tasks by a scripted endpoint."""

from dataclasses import fields

import pytest

from pwagents.evaluation.paper import ORION
from pwagents.orion.baselines import play_baselines
from pwagents.orion.settings import GrpoNotebook
from pwagents.orion.study import make_study

from ..llm.server import ChatServer
from ..paper_standins import answer
from .small_study import GROUPS, small_settings


@pytest.fixture
def play(tmp_path, monkeypatch):
    """A function that has models play four tasks; the episodes, and the requests that the endpoint had."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def run(*policies):
        small = small_settings(tmp_path, study={"eval_tasks": 4})
        groups = {field.name: getattr(small, field.name) for field in fields(small)}
        groups |= {"study": GROUPS["study"] | {"eval_tasks": 4}, "rl": {"max_steps": 1, "methods": ("GRPO",)}}
        with ChatServer(reply=answer) as server:
            players = {"base_url": server.url, "endpoint": "scripted", "policies": policies}
            settings = GrpoNotebook(**groups | {"players": GROUPS["players"] | players})
            study = make_study(settings)
            return study, play_baselines(study, settings), list(server.bodies)

    return run


def test_runs_with_several_models_are_merged_and_nothing_is_played_twice(play):
    study, first, bodies = play("openai:one")
    tasks = [task.task_id for task in study.test_tasks]
    assert first["method"].unique().tolist() == [*ORION] and first["task_id"].tolist() == 5 * tasks
    assert set(first["outcome"]) == {"scored"} and first["steps"].min() >= 1
    asked = [str(body["messages"]) for body in bodies]
    assert all(any(task.instruction in text for text in asked) for task in study.test_tasks)
    assert not any("Wants:" in text for text in asked), "no baseline has Orion's profile"

    _, both, more = play("openai:two")
    assert both["model"].unique().tolist() == ["one", "two"] and len(both) == 2 * len(first) and more
    _, again, none = play()
    assert again.equals(both) and not none
