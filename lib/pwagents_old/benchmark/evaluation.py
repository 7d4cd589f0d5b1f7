"""What an agent reached in :func:`pwagents_old.benchmark.evaluate.evaluate`: table, note, and a page to read."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.files import write_aside
from pwagents.notebook import Run
from pwagents.results.episodes import records_frame
from pwagents.shop.score import GRADER, grade
from pwagents.results.references import score_references, with_references
from pwagents.results.statistics import by_task
from pwagents.results.viewer import show_episodes
from pwagents.schema import Benchmark, Task, Usage
from pwagents.shop.environment import Track
from pwagents.store import Episode
from pwagents_old.benchmark.study import Study
from pwagents.llm.make import notes

# Metrics as the tables of each track call them.
SINGLE_TURN = {"function_accuracy": "function", "result_official": "result"}
MULTI_TURN = SINGLE_TURN | {"result_official": "official", "result_final": "final", "steps": "steps"}
# What a task costs, and the format of each column.
COSTS = {
    "calls": ".2f",
    "prompt tokens": ",.0f",
    "reply tokens": ",.0f",
    "US dollars": ".5f",
    "replies parted": ".2f",
    "user's tokens": ",.0f",
    "user's US dollars": ".5f",
}
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
    records: Sequence[Episode]
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


def write_evaluation(
    run: Run, study: Study, track: Track, name: str, records: Sequence[Episode], stored: str
) -> Evaluation:
    """Write table and page of the episodes, and say what has to be said of them.

    Args:
        stored: what the note says of episodes that were stored before.
    """
    runs = {name: records}
    metrics = MULTI_TURN if track == "multi_turn" else SINGLE_TURN
    beside = score_references(study.shop, study.tasks, study.settings.seed)
    means, cells = by_task(with_references(records_frame(records).assign(method=name), beside), metrics)
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


def _write_page(path: Path, name: str, study: Study, records: Sequence[Episode]) -> None:
    """All episodes, one below the other, each folded into a line."""
    parts = [f"<h1>{escape(name)}</h1>"]
    for task, record in zip(study.sample, records, strict=True):
        if record.trajectory is None:
            parts.append(f"<p>{escape(f'{task.type}, {task.instruction}: {record.message}')}</p>")
            continue
        line = f"{grade(record.trajectory).result_final:.2f} · {task.type} · {task.instruction}"
        shown = show_episodes(task, {name: record.trajectory}, study.benchmark.products).data
        parts.append(f"<details><summary>{escape(line)}</summary>{shown}</details>")
    head = '<!doctype html><html lang="en"><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width">'
    look = "body{font:14px/1.5 sans-serif;margin:16px;background:#fff;color:#222}summary{cursor:pointer}"
    text = f"{head}<title>{escape(name)}</title><style>{look}</style>{''.join(parts)}</html>"
    write_aside(path, text.encode("utf-8", "replace"))  # what a model wrote may hold lone surrogates


def costs(runs: Mapping[str, Sequence[Episode]]) -> pd.DataFrame:
    """Average what a task costs by method: ``method, tasks``, :data:`COSTS`; no row where no model played.

    Replies that came from the store count as what they cost when they were made.
    """
    rows = []
    for name, records in runs.items():
        spent = []
        for played in (record.trajectory for record in records if record.outcome == "scored"):
            agent, user = played.usage, sum((step.user_usage or Usage() for step in played.steps), Usage())
            tokens = agent.calls, agent.prompt_tokens, agent.completion_tokens
            spent.append((*tokens, agent.usd, agent.parted, user.tokens, user.usd))
        if spent:
            rows.append((name, len(spent), *np.mean(spent, axis=0)))
    frame = pd.DataFrame(rows, columns=["method", "tasks", *COSTS])
    return frame if frame[[*COSTS]].to_numpy().any() else frame.iloc[:0]
