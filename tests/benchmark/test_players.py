"""The players of notebook 02's roles: offline ones, language models, and what is told of them."""

import pytest

from pwagents.benchmark.profile_players import ProfileRoles
from pwagents.benchmark.settings import ProfilePlayers
from pwagents.llm import make

from ..agents.conftest import ScriptedModel


@pytest.fixture
def roles(world, tmp_path):
    """``roles(**players)``: who plays, as configured."""
    return lambda **players: ProfileRoles(
        ProfilePlayers(**players), world.benchmark, tmp_path / "r.sqlite", 0
    )


def test_the_estimate_has_a_row_for_each_language_model(roles, world):
    made = roles(profiler="openai:gpt-4o-mini", judge="openai:gpt-4o-mini")
    table = made.estimate().set_index("role")
    assert list(table.index) == ["profiler", "judge"]
    users = len({task.user_id for task in world.benchmark.tasks["test"]})
    assert (
        table.loc["profiler", "calls"] == 5 * users and table.loc["judge", "prompt tokens"] == 20_000 * users
    )
    assert (table["US dollars"] > 0).all()


def test_unusable_replies_are_reported(roles, world, monkeypatch):
    mute = ScriptedModel(lambda request: "I do not know.")
    monkeypatch.setattr(make.Models, "__call__", lambda models, spec: mute)
    made = roles(profiler="openai:mute", updater="openai:mute", writer="openai:mute")
    user = next(iter(world.benchmark.behaviors))
    made.profiler.write_global([world.benchmark.train_period(user)])
    assert made.report().splitlines() == [
        "profiler: unreadable 1", "updater: nothing went wrong", "writer: nothing went wrong",
        "ambiguous writer: nothing went wrong",
    ]  # fmt: skip
