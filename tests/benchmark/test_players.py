"""The players of notebook 02's roles: offline ones, language models, and what is told of them."""

import pytest

from pwagents.benchmark.profile_players import ProfileRoles
from pwagents.benchmark.settings import ProfilePlayers
from pwagents.llm import make
from pwagents.llm.chat import ChatModel, Reply
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.tasks.writers import LlmInstructionWriter


@pytest.fixture
def roles(world, tmp_path):
    """``roles(**players)``: who plays, as configured."""
    return lambda **players: ProfileRoles(
        ProfilePlayers(**players), world.benchmark, tmp_path / "r.sqlite", 0
    )


def test_offline_players_need_no_language_model(roles):
    made = roles()
    assert made.estimate().empty and made.report() == "No language model was asked."
    assert isinstance(made.profiler, OfflineProfiler) and made.updater is made.rules


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
    class Mute(ChatModel):
        name = "mute"

        def reply(self, request):
            return Reply(text="I do not know.")

    monkeypatch.setattr(make.Models, "__call__", lambda models, spec: Mute())
    made = roles(profiler="openai:mute", updater="openai:mute", writer="openai:mute")
    assert isinstance(made.profiler, LlmProfiler) and isinstance(made.updater, LlmUpdater)
    assert all(isinstance(writer, LlmInstructionWriter) for writer in made.writers)
    user = next(iter(world.benchmark.behaviors))
    made.profiler.write_global([world.benchmark.train_period(user)])
    assert made.report().splitlines() == [
        "profiler: unreadable 1", "updater: nothing went wrong", "writer: nothing went wrong",
        "ambiguous writer: nothing went wrong",
    ]  # fmt: skip
