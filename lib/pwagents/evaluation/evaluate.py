"""Evaluate an agent: its episodes, a table beside references, and a page to read them.

    from pwagents import evaluate

    evaluate(my_agent, preset="smoke", track="multi_turn")

It plays where notebook 03's methods play, leak-free: the same data, shop, user and grader. On PersonalWAB's
own tasks, by its protocol and its scorer, into the file of its leaderboard:

    evaluate(my_agent, source="personalwab", protocol="published", trials=3, export="results.json")
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pwagents.agents import methods
from pwagents.agents.chat import Setup
from pwagents.agents.methods import METHODS
from pwagents.agents.offline import OfflinePolicy
from pwagents.agents.play import make_player
from pwagents.errors import SettingsError
from pwagents.evaluation import own_agent
from pwagents.evaluation.testbed import Testbed, open_testbed
from pwagents.files import write_aside
from pwagents.llm.parts import utf8
from pwagents.progress import counts
from pwagents.results.episodes import records_frame
from pwagents.results.leaderboard import export_results, score_episode
from pwagents.results.references import with_references
from pwagents.results.statistics import by_task
from pwagents.results.tables import save_table
from pwagents.results.viewer import show_episodes
from pwagents.schema import Benchmark, Protocol, Task, Usage, check_choice
from pwagents.settings import parse_player, project_path
from pwagents.shop.environment import Track
from pwagents.shop.score import GRADER, grade
from pwagents.store import Episode, episodes

# Metrics as the tables of each track call them.
_SINGLE_TURN = {"function_accuracy": "function", "result_official": "result"}
_MULTI_TURN = _SINGLE_TURN | {"result_official": "official", "result_final": "final", "steps": "steps"}
# What a task costs, and the format of each column.
_COSTS = {
    "calls": ".2f",
    "prompt tokens": ",.0f",
    "reply tokens": ",.0f",
    "US dollars": ".5f",
    "replies parted": ".2f",
    "user's tokens": ",.0f",
    "user's US dollars": ".5f",
}
COST = "cost of a task"  # heading over the columns of costs, where a language model plays
TRIALS = "over trials"  # heading over mean and variance of the result accuracy of whole trials
_FUNCTION = "Function: the right one, with well-formed parameters."
_COLUMNS = {
    "single_turn": f"{_FUNCTION} Result: result accuracy.",
    "multi_turn": f"{_FUNCTION} Official, final: result accuracy of the best attempt, of the last.",
}


def evaluate(
    agent: Any,
    preset: str = "",
    track: Track = "multi_turn",
    *,
    protocol: Protocol = "leak_free",
    trials: int = 1,
    export: str | Path = "",
    tasks: int | None = None,
    output_dir: str | Path = "",
    name: str = "",
    version: str = "",
    method: str = "Last memory",
    **changes: Any,
) -> "Evaluation":
    """Let an agent play test tasks, and return what it reached, beside references.

    An agent of one's own is played anew at each call unless it has a ``version``. A chat model is known by
    its name and a trained model by its content, so their stored episodes are not played again.

    Args:
        agent: see :mod:`pwagents.evaluation.own_agent`; also a chat model, as ``players.policy`` takes it
            ("openai:gpt-4o-mini"), or the folder of a trained model, which is the same as "local:FOLDER".
        preset: empty: smoke, or paper under the published protocol, which has all official tasks.
        protocol: published: an agent knows all before the task at hand, and PersonalWAB's scorer grades.
        trials: how often each task is played, each time with other seeds of user, random memory and replies.
        export: the file for PersonalWAB's leaderboard, as its ``run.py`` writes it; empty: none.
        tasks: how many, drawn at random; 0 takes all test tasks, None as many as the preset's methods play.
        output_dir: of episodes, tables and the page; empty: ``outputs/evaluate/<preset>``.
        name: what tables call the agent; empty: its own name.
        version: of an agent of one's own: stored episodes of the same name and version are used. Give another
            one whenever the agent changes.
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
    check_choice("protocol", protocol, Protocol)
    if not isinstance(trials, int) or trials < 1:
        raise SettingsError(f"trials: found {trials!r}; expected a number from 1 on")
    is_published = protocol == "published"
    if name.startswith("Reference"):
        raise SettingsError(f"name: {name!r} is the name of a reference row; expected another")
    if model := _chat_model(agent):
        allowed = [each for each, kind in METHODS.items() if track in kind.rules]
        if method not in allowed:
            why = ", which runs in the multi-turn track alone" if method in METHODS else ""
            raise SettingsError(f"method: found {method!r}{why}; expected one of {', '.join(allowed)}")
        changes = {**changes, "players": {**changes.get("players", {}), "policy": model}}
    else:
        own_agent.require_agent(agent)
    if is_published:  # nobody else plays, so nobody else's key is needed
        alone = {"policy": "offline", "baselines": ""} | ({"user": "none"} if track == "single_turn" else {})
        changes = {**changes, "players": {**alone, **changes.get("players", {})}}
    preset = preset or ("paper" if is_published else "smoke")
    bed = open_testbed(preset, track, tasks, output_dir, changes, protocol=protocol)
    world, players, before = bed.world, bed.settings.players, counts["episodes stored"]
    policy = model and (OfflinePolicy(world.identify()) if model == "offline" else bed.models(model))
    who = getattr(policy, "name", "offline policy") if model else ""
    name, version = name or (f"{method}, {who}" if model else own_agent.name_of(agent)), str(version)
    records: list[Episode] = []
    for trial in map(bed.trial, range(trials)):
        file = trial.settings.output_dir / "runs" / "evaluate.jsonl"
        options = {"workers": players.workers, "served": bed.models.served}
        if model:
            items = (bed.settings.play.published_items[0] if is_published else 0) or None
            made_of = (policy, world.shop.benchmark.products, track, world.embedder, items)
            setup = Setup(*made_of, prompts=world.prompts.texts, seed=trial.seed)
            solve, memory = make_player(method, setup, world.shop, protocol, trial.user)
            facts = trial.facts | {"code": methods.CODE} | ({"items": items} if items else {})
            options |= {"method": method, "model": who, "memory": memory}
            records += episodes(file, world.tasks, solve, facts, **options)
            agent = METHODS[method](setup)
        else:
            options |= {"name": name, "version": version}
            begun = world.tasks, trial.begin, world.shop.benchmark.products
            records += own_agent.play_agent(agent, *begun, file, trial.facts, **options)
    counted = f"{counts['episodes stored'] - before:,} of {len(records):,} episodes were stored."
    if not model:
        anew = "All were played anew; give the agent a version to use stored ones."
        counted = f"Of version {version}, {counted}" if version else anew
    if export:
        told = {"model": who or name, "agent_strategy": method if model else "own agent"}
        told |= {"user_model": players.user, "max_concurrency": players.workers, "seed": bed.seed}
        run = world.shop, world.tasks, records, (lambda record: agent) if model else None
        export_results(*run, project_path(export), track=track, protocol=protocol, arguments=told)
    return _report(bed, name, records, counted)


def _chat_model(agent: Any) -> str:
    """Return the chat model that an agent's text names; an empty text for other agents.

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


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What an agent reached. A notebook shows its table; a shell and ``print`` show the same as text.

    Attributes:
        table: means by task type, a row for the agent and each reference.
        cells: the same as text, with 95% intervals.
        tasks: of each trial, one after the other.
        records: one an episode, in the order of ``tasks``.
        page: the HTML file with all episodes.
    """

    name: str
    benchmark: Benchmark
    tasks: Sequence[Task]
    records: Sequence[Episode]
    table: pd.DataFrame
    cells: pd.DataFrame
    note: str
    page: Path
    html: str

    def show(self, place: int = 0):
        """Return the episode on the task at ``place``, to be displayed."""
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


def _report(bed: Testbed, name: str, records: Sequence[Episode], stored: str = "") -> Evaluation:
    """Write table and page of the episodes, with a note on how they were played and what went wrong.

    Args:
        stored: how many of the episodes were stored: shown, but in no file, as it differs from run to run.
    """
    settings, track, tasks = bed.settings, bed.track, bed.world.tasks
    n_trials, is_published = len(records) // max(1, len(tasks)), bed.protocol == "published"
    own = records_frame(records).assign(method=name)
    if is_published:
        for i, (task, record) in enumerate(zip([*tasks] * n_trials, records, strict=True)):
            if played := record.trajectory:
                official = score_episode(bed.world.shop, task, played, protocol="published")
                own.loc[i, ["function_accuracy", "result_official", "result_final"]] = [*official, np.nan]
    results = with_references(own, bed.world.references())
    means, cells = by_task(results, _MULTI_TURN if track == "multi_turn" else _SINGLE_TURN)
    further = {(COST, column): value for column, value in _mean_costs(records).items()}
    if n_trials > 1:
        each = own["result_official"].groupby(np.arange(len(own)) // len(tasks)).mean()
        further |= {(TRIALS, "mean"): each.mean(), (TRIALS, "variance"): each.var()}
    for (heading, column), value in further.items():
        means[heading, column] = pd.Series({name: value})
        cells[heading, column] = pd.Series({name: format(value, _COSTS.get(column, ".3g"))})

    plays, known = f"{n_trials} trials of " * (n_trials > 1), "as published" if is_published else "leak-free"
    grader = f"PersonalWAB's; of references {GRADER}" if is_published else GRADER
    notes = [
        f"{plays}{len(tasks):,} test tasks, {settings.data.label}, preset {settings.preset}, seed "
        f"{settings.seed}, {known}. Means, 95% intervals clustered by user. References are leak-free, need "
        "no agent; the oracle knows the answer.",
        f"User: {settings.players.user}." if track == "multi_turn" else "",
        f"{_COLUMNS[track]} Grader: {grader}.",
        "Preset smoke is small: compare agents with preset laptop." if settings.preset == "smoke" else "",
        *(*_problems(records), bed.models.note()),
    ]
    note = utf8(" ".join(filter(None, notes)))

    # Of names that are written alike each has files of its own; no file system takes 300 letters.
    file = re.sub(r"[^a-zA-Z0-9-]+", "_", name)[:60].strip("_") or "agent"
    if file != name:
        file = f"{file}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    file = f"{file}_{track}_{settings.data.source}_{settings.preset}_{len(tasks)}"
    file += "_published" * is_published + f"_{n_trials}_trials" * (n_trials > 1)
    options = {"title": f"{name}, {track.replace('_', '-')} track", "note": note, "shown": cells}
    table = save_table(means, f"evaluate_{file}", output_dir=settings.output_dir, **options)
    page = settings.output_dir / "episodes" / f"{file}.html"
    benchmark = bed.world.shop.benchmark
    html = f"{table.html}<p>{escape(stored)}</p>"
    played = [*tasks] * n_trials
    finished = Evaluation(name, benchmark, played, records, means, cells, f"{note} {stored}", page, html)
    _write_page(finished)
    return finished


def _problems(records: Sequence[Episode]) -> list[str]:
    """Return what could not be scored, what counts 0 for the agent's errors, and malformed calls."""
    notes = []
    if unscored := sum(record.outcome == "not_evaluable" for record in records):
        notes.append(f"{unscored} tasks could not be scored.")
    played = [record.trajectory for record in records if record.trajectory]
    for end, what in {"error": "an error of the agent", "refused": "a refusal of its model"}.items():
        if ended := [each for each in played if each.end == end]:
            first = f"the first (task {ended[0].task_id}): {ended[0].message}"
            notes.append(f"{len(ended):,} of {len(played):,} tasks ended in {what} and count as 0, {first}.")
    steps = [(each.task_id, step) for each in played for step in each.steps]
    if failed := [(task_id, step.error) for task_id, step in steps if step.error]:
        counted = f"{len(failed):,} of {len(steps):,} calls could not be carried out"
        notes.append(f"{counted}, the first (task {failed[0][0]}): {failed[0][1]}.")
    return notes


def _mean_costs(records: Sequence[Episode]) -> dict[str, float]:
    """Return what a task costs, by the columns of :data:`_COSTS`; nothing if no language model was asked.

    Replies that came from the store count as what they cost when they were made.
    """
    spent = []
    for played in (record.trajectory for record in records if record.outcome == "scored"):
        agent, user = played.usage, sum((step.user_usage or Usage() for step in played.steps), Usage())
        tokens = agent.calls, agent.prompt_tokens, agent.completion_tokens
        spent.append((*tokens, agent.usd, agent.parted, user.tokens, user.usd))
    means = np.mean(spent, axis=0) if spent else np.zeros(0)
    return dict(zip(_COSTS, means, strict=True)) if means.any() else {}


def _write_page(evaluation: Evaluation) -> None:
    """Write all episodes, one below the other, each folded into a line."""
    name, parts = escape(evaluation.name), []
    for task, record in zip(evaluation.tasks, evaluation.records, strict=True):
        if record.trajectory is None:
            parts.append(f"<p>{escape(f'{task.type}, {task.instruction}: {record.message}')}</p>")
            continue
        line = f"{grade(record.trajectory).result_final:.2f} · {task.type} · {task.instruction}"
        shown = show_episodes(task, {evaluation.name: record.trajectory}, evaluation.benchmark.products).data
        parts.append(f"<details><summary>{escape(line)}</summary>{shown}</details>")
    head = '<!doctype html><html lang="en"><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width">'
    look = "body{font:14px/1.5 sans-serif;margin:16px;background:#fff;color:#222}summary{cursor:pointer}"
    head += f"<title>{name}</title><style>{look}</style><h1>{name}</h1>"
    # What a model wrote may hold lone surrogates.
    write_aside(evaluation.page, f"{head}{''.join(parts)}</html>".encode("utf-8", "replace"))
