"""One call that evaluates an agent: episodes, a table beside references, and a page to read them.

    from pwagents.benchmark.evaluate import evaluate

    evaluate(my_agent, preset="smoke", track="multi_turn")

It plays where notebook 03's methods play, leak-free: the same data, shop, user and grader.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents import engine, portable
from pwagents.agents.methods import METHODS, TRACKS
from pwagents.benchmark import own_agent
from pwagents.benchmark.analyses_03 import COSTS, MULTI_TURN, SINGLE_TURN, costs, frame_of
from pwagents.benchmark.references import references, with_references
from pwagents.benchmark.settings import BenchmarkNotebook
from pwagents.benchmark.study import Study
from pwagents.data import load_benchmark
from pwagents.errors import SettingsError
from pwagents.evaluation.breakdowns import by_task
from pwagents.evaluation.episodes import EpisodeRecord, require_played
from pwagents.evaluation.metrics import GRADER
from pwagents.evaluation.viewer import show_episodes
from pwagents.llm.make import notes
from pwagents.llm.settings import model_folder, parse_player
from pwagents.notebook.run import Run
from pwagents.notebook.settings import load_settings
from pwagents.project import write_aside
from pwagents.schema import Benchmark, Task, check_choice
from pwagents.settings import plain
from pwagents.web.environment import Track

COST = "cost of a task"  # heading over the columns of costs, where a language model plays
_FUNCTION = "Function: the right one, with well-formed parameters."
_COLUMNS = {
    "single_turn": f"{_FUNCTION} Result: result accuracy.",
    "multi_turn": f"{_FUNCTION} Official, final: result accuracy of the best attempt, of the last.",
}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What an agent reached. In a notebook it shows its table; a shell and ``print`` tell the same as text.

    Attributes:
        table: means by task type, a row for the agent and each reference.
        cells: the same as text, with 95% intervals.
        records: one an episode, in the order of ``tasks``.
        page: the HTML file with all episodes.
    """

    name: str
    benchmark: Benchmark
    tasks: Sequence[Task]
    records: Sequence[EpisodeRecord]
    table: pd.DataFrame
    cells: pd.DataFrame
    note: str
    page: Path
    html: str

    def show(self, place: int = 0):
        """The episode on the task at ``place``, to be displayed."""
        record = self.records[place]
        if record.trajectory is None:
            raise ValueError(f"task {record.task_id} has no episode: {record.message}")
        return show_episodes(self.tasks[place], {self.name: record.trajectory}, self.benchmark.products)

    def __repr__(self) -> str:
        parts = [
            f"{heading}\n{self.cells[heading].dropna(how='all').fillna('-').rename_axis(None).to_string()}"
            for heading in dict.fromkeys(self.cells.columns.get_level_values(0))
        ]
        return "\n\n".join([*parts, f"{self.note}\nAll episodes: {self.page}"])

    def _repr_html_(self) -> str:
        return self.html


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
        agent: see :mod:`pwagents.benchmark.own_agent`; also a chat model, as ``players.policy`` takes it
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
        raise SettingsError(f"name: found {name!r}; expected one that no reference has")

    settings = study_settings(preset, tasks, output_dir, changes)
    engine.use(settings.engine)
    run = Run.begin("evaluate", plain(settings), settings.output_dir)
    benchmark, _ = load_benchmark(settings.data, settings.seed)
    study = Study(benchmark, settings, run)
    if model:
        name, stored = name or f"{method}, {study.roles.name}", ""
        records = study.play(method, track)
    else:
        name = name or own_agent.name_of(agent)
        records, n, why_anew = own_agent.play(study, track, agent, name, str(version))
        require_played(records)
        stored = f" {n:,} of {len(records):,} episodes were stored."
        if why_anew:
            reason = f"The agent cannot be pickled ({why_anew})"
            stored += f" {reason}, so each call plays it anew, or give its version."
    finished = _finish(run, study, track, name, records, stored)
    run.finish(benchmark.content_hash)
    return finished


def _chat_model(agent: Any) -> str:
    """The chat model that an agent's text names; empty for other agents.

    Raises:
        SettingsError: a text that names no agent.
    """
    if not isinstance(agent, str | Path):
        return ""
    model = f"local:{agent}" if model_folder(str(agent)).is_dir() else str(agent)
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
    settings = load_settings("03_benchmark", BenchmarkNotebook, {**changes, **given})
    if not settings.portable:
        portable.switch_off()
    wanted = settings.play.method_tasks if tasks is None else tasks
    if not isinstance(wanted, int) or wanted < 0:
        raise SettingsError(f"tasks: found {tasks!r}; expected a number, 0 for all")
    play = replace(settings.play, max_tasks=wanted, method_tasks=0, protocols=("leak_free",))
    return replace(settings, play=play, players=replace(settings.players, more_policies=()))


def _finish(
    run: Run, study: Study, track: Track, name: str, records: Sequence[EpisodeRecord], stored: str
) -> Evaluation:
    """Table and page of the episodes, and what has to be said of them."""
    runs = {name: records}
    metrics = MULTI_TURN if track == "multi_turn" else SINGLE_TURN
    beside = references(study.benchmark, study.shops, study.tasks, study.settings.seed)
    means, cells = by_task(with_references(frame_of(runs), beside), metrics)
    for spent in costs(runs)[[*COSTS]].to_dict("records"):  # one, or none where no model was asked
        for column, value in spent.items():
            means[COST, column] = pd.Series({name: value})
            cells[COST, column] = pd.Series({name: format(value, COSTS[column])})

    # How it was played.
    settings = study.settings
    user = f" User: {settings.players.user}." if track == "multi_turn" else ""
    small = " Preset smoke is small: compare agents with preset laptop." if settings.preset == "smoke" else ""
    note = (
        f"{len(study.sample):,} test tasks, {settings.data.label}, preset {settings.preset}, seed "
        f"{settings.seed}, leak-free. Means, 95% intervals clustered by user. References need no agent; the "
        f"oracle knows the answer.{user} {_COLUMNS[track]} Grader: {GRADER}.{small}{stored}"
    )
    # What could not be scored, what scored 0 for the agent's errors, and which calls were malformed.
    if unscored := sum(record.outcome == "not_evaluable" for record in records):
        note += f" {unscored} tasks could not be scored."
    played = [record.trajectory for record in records if record.trajectory]
    for end, what in {"error": "an error of the agent", "refused": "a refusal of its model"}.items():
        if ended := [each for each in played if each.end == end]:
            first = f"the first (task {ended[0].task_id}): {ended[0].message}"
            note += f" {len(ended):,} of {len(played):,} tasks ended in {what} and count as 0, {first}."
    steps = [(each.task_id, step) for each in played for step in each.steps]
    if failed := [(task_id, step.error) for task_id, step in steps if step.error]:
        counted = f"{len(failed):,} of {len(steps):,} calls could not be carried out"
        note += f" {counted}, the first (task {failed[0][0]}): {failed[0][1]}."

    # Of names that are written alike each has files of its own; no file system takes 300 letters.
    file = re.sub(r"[^a-zA-Z0-9-]+", "_", name)[:60].strip("_") or "agent"
    if file != name:
        file = f"{file}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    file = f"{file}_{track}_{settings.data.source}_{settings.preset}_{len(study.sample)}"
    table = run.table(means, file, title=f"{name}, {track.replace('_', '-')} track", note=note, shown=cells)
    page = run.output_dir / "episodes" / f"{file}.html"
    _write_page(page, name, study, records)
    note = f"{note} {notes(run.store)}".strip()
    return Evaluation(name, study.benchmark, study.sample, records, means, cells, note, page, table.html)


def _write_page(path: Path, name: str, study: Study, records: Sequence[EpisodeRecord]) -> None:
    """All episodes, one below the other, each folded into a line."""
    parts = [f"<h1>{escape(name)}</h1>"]
    for task, record in zip(study.sample, records, strict=True):
        if record.trajectory is None:
            parts.append(f"<p>{escape(f'{task.type}, {task.instruction}: {record.message}')}</p>")
            continue
        line = f"{record.grade.result_final:.2f} · {task.type} · {task.instruction}"
        shown = show_episodes(task, {name: record.trajectory}, study.benchmark.products).data
        parts.append(f"<details><summary>{escape(line)}</summary>{shown}</details>")
    head = '<!doctype html><html lang="en"><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width">'
    look = "body{font:14px/1.5 sans-serif;margin:16px;background:#fff;color:#222}summary{cursor:pointer}"
    text = f"{head}<title>{escape(name)}</title><style>{look}</style>{''.join(parts)}</html>"
    write_aside(path, text.encode("utf-8", "replace"))  # what a model wrote may hold lone surrogates
