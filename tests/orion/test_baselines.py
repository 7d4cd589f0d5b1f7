"""Table 1's prompt baselines, played on Orion's tasks by a scripted endpoint."""

import pandas as pd
import pytest

from pwagents.evaluation.paper import ORION, Setup, below_paper, with_prompted
from pwagents.orion.baselines import play_baselines
from pwagents.orion.settings import GrpoNotebook

from ..llm.server import ChatServer
from ..paper_standins import answer
from .small_study import elsewhere, notebook


@pytest.fixture
def play(study, tmp_path, monkeypatch):
    """A function that has models play four tasks; the episodes, and the requests that the endpoint had."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    here = elsewhere(study, tmp_path)
    here.test_tasks = study.test_tasks[:4]

    def run(*policies):
        with ChatServer(reply=answer) as server:
            players = {"base_url": server.url, "endpoint": "scripted", "policies": policies}
            settings = notebook(GrpoNotebook, study.settings, players=players)
            return play_baselines(here, settings), [str(body["messages"]) for body in server.bodies]

    return run


def test_runs_with_several_models_are_one_table_and_nothing_is_played_twice(study, play):
    first, asked = play("openai:gpt-4.1")
    tasks = study.test_tasks[:4]
    assert first["method"].unique().tolist() == [*ORION]
    assert first["task_id"].tolist() == 5 * [task.task_id for task in tasks]
    assert set(first["outcome"]) == {"scored"} and first["steps"].min() >= 1
    assert all(any(task.instruction in text for text in asked) for task in tasks)
    assert not any("Wants:" in text for text in asked), "no baseline has Orion's profile"

    both, _ = play("openai:some/other")
    again, none = play()
    assert again.equals(both) and len(both) == 2 * len(first) and not none

    empty = below_paper(pd.DataFrame(), "Orion", "Table 1", Setup("", ""), ["Orion (Ours)"])
    table = with_prompted(empty, both, "embedded world").droplevel(1, axis=1)
    ours, absent = (table[table["source"] == source] for source in ("here", "not run"))
    assert ours["row"].tolist() == [f"{name} ({of})" for name in ("gpt-4.1", "some/other") for of in ORION]
    assert set(ours["n"]) == {4} and table["row"].iloc[15] == "Orion (Ours)"
    assert absent["backbone"].tolist() == 5 * ["DeepSeek-V3"] + 5 * ["Qwen2.5"]
    assert absent["needs"].str.contains("OPENAI_API_KEY.*06_orion_grpo.*policies: .openai:").all()
    assert len(with_prompted(empty, both.head(0), "")) == 16 + 15
