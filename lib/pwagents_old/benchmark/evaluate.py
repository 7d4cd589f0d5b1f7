"""One call that evaluates an agent: episodes, a table beside references, and a page to read them.

    from pwagents import evaluate

    evaluate(my_agent, preset="smoke", track="multi_turn")

It plays where notebook 03's methods play, leak-free: the same data, shop, user and grader.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pwagents import engine, portable
from pwagents.agents.methods import METHODS, TRACKS
from pwagents.errors import SettingsError
from pwagents.notebook import Run
from pwagents.schema import check_choice
from pwagents.settings import BenchmarkNotebook, load_settings, parse_player, project_path
from pwagents.shop.environment import Track
from pwagents_old.benchmark import own_agent
from pwagents_old.benchmark.evaluation import Evaluation, write_evaluation
from pwagents_old.benchmark.study import Study
from pwagents.llm.make import notes


def evaluate(
    agent: Any,
    preset: str = "smoke",
    track: Track = "multi_turn",
    *,
    tasks: int | None = None,
    output_dir: str | Path = "",
    name: str = "",
    version: str = "",
    method: str = "Last memory",
    **changes: Any,
) -> Evaluation:
    """Let an agent play test tasks, beside references; what is stored already is not played again.

    Stored episodes are known by the agent's name and by what it pickles to: its code, what it holds, and the
    globals that it uses. What it reads elsewhere (a file, a server) is not seen: give another ``version``.

    Args:
        agent: see :mod:`pwagents_old.benchmark.own_agent`; also a chat model, as ``players.policy`` takes it
            ("openai:gpt-4o-mini"), or the folder of a trained model, which is the same as "local:FOLDER".
        tasks: how many, drawn at random; 0 takes all test tasks, None as many as the preset's methods play.
        output_dir: of episodes, tables and the page; empty: ``outputs/evaluate/<preset>``.
        name: what tables call the agent; empty: its own name.
        version: of the agent, in place of what it pickles to.
        method: how a chat model is prompted, one of :data:`pwagents.agents.methods.METHODS`. A model that
            was trained on prompts of its own (notebooks 04 to 06) does worse with these.
        changes: of the preset, as in notebook 03's parameters cell: ``seed=1``, ``source="amazon"`` with
            ``data_dir="..."``, ``players={"user": "none", "workers": 8}``.

    Raises:
        SettingsError: an argument is wrong; says what was found and what was expected.
        InfrastructureError: some episode could not be played (an endpoint is down). All others are stored.
        RuntimeError: the agent cannot be made, or its first three tasks end in the same error of its own.
    """
    check_choice("track", track, Track)
    if model := _chat_model(agent):
        if method not in TRACKS[track]:
            why = ", which runs in the multi-turn track alone" if method in METHODS else ""
            expected = ", ".join(TRACKS[track])
            raise SettingsError(f"method: found {method!r}{why}; expected one of {expected}")
        changes = {**changes, "players": {**changes.get("players", {}), "policy": model}}
    else:
        own_agent.require_agent(agent)
    if name.startswith("Reference"):
        raise SettingsError(f"name: {name!r} is the name of a reference row; expected another")

    # It plays as notebook 03's methods do, in a run of its own.
    settings = study_settings(preset, tasks, output_dir, changes)
    engine.use(settings.engine)
    run = Run.begin("evaluate", settings, notes=notes)
    study = Study.load(settings, run)
    if model:
        name, stored = name or f"{method}, {study.policy_name}", ""
        records = study.play(method, track)
    else:
        name = name or own_agent.name_of(agent)
        records, n, why_anew = own_agent.play(study, track, agent, name, str(version))
        stored = f" {n:,} of {len(records):,} episodes were stored."
        if why_anew:
            reason = f"The agent cannot be pickled ({why_anew})"
            stored += f" {reason}, so each call plays it anew, or give its version."
    finished = write_evaluation(run, study, track, name, records, stored)
    run.finish(study.benchmark.content_hash)
    return finished


def _chat_model(agent: Any) -> str:
    """The chat model that an agent's text names; empty for other agents.

    Raises:
        SettingsError: a text that names no agent.
    """
    if not isinstance(agent, str | Path):
        return ""
    model = f"local:{agent}" if project_path(str(agent)).is_dir() else str(agent)
    try:
        parse_player(model, ("offline",))
    except ValueError as error:
        raise SettingsError(f"agent: {error}. An agent is {own_agent.KINDS}") from None
    return model


def study_settings(
    preset: str, tasks: int | None, output_dir: str | Path, changes: Mapping[str, Any]
) -> BenchmarkNotebook:
    """Load notebook 03's settings for one policy, leak-free, with as many tasks as are wanted, all played."""
    given = {"preset": preset, "stored_runs_only": False}
    given["output_dir"] = str(output_dir) or f"outputs/evaluate/{preset}"
    settings = load_settings("03_benchmark", {**changes, **given})
    if not settings.portable:
        portable.switch_off()
    wanted = settings.play.method_tasks if tasks is None else tasks
    if not isinstance(wanted, int) or wanted < 0:
        raise SettingsError(f"tasks: found {tasks!r}; expected a number, 0 for all")
    play = {"max_tasks": wanted, "method_tasks": 0, "protocols": ("leak_free",)}
    return settings.changed(play=play, players={"more_policies": ()})
