"""How well judges agree: with the programmatic truth, which is no human's, and with a person's labels.

Judged are scripted episodes, two valid routes of a task and eight ways to fail, each walked on the local web,
so that its pages and its log are real; and the agents' own episodes.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import ValidationError
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import cohen_kappa_score

from pwagents.errors import DataError
from pwagents.llm.chat import ChatModel
from pwagents.persona2web.agents.episode import WebEpisode, World, run_condition
from pwagents.persona2web.agents.offline import SCRIPTED, VALID, scripts_of
from pwagents.persona2web.judge import judges
from pwagents.persona2web.judge.judges import CRITERIA, Transcript
from pwagents.persona2web.judge.scores import VIEWS, Scores, View, judge

MEASURES: Mapping[str, Callable[[Scores], float]] = {
    "website": lambda scores: scores.p_web,
    "preference": lambda scores: scores.p_pref,
    "intent": lambda scores: scores.intent,
    "success": lambda scores: scores.success,
}
REASONS: View = "reasoning_aware"


def play_scripts(
    world: World, store: Path, n_tasks: int, stored_runs_only: bool = False
) -> dict[str, list[WebEpisode]]:
    """Return every script's episodes of the first tasks, by its name; they are kept as others are."""
    few, truth = replace(world, tasks=world.tasks[:n_tasks]), world.truth("implicit")
    scripts = {
        task.task_id: scripts_of(task, world.histories[task.user_id], world.web.sites[task.goal.host], truth)
        for task in few.tasks
    }
    played = {}
    for name in next(iter(scripts.values()), ()):
        agents = {task_id: agents[name] for task_id, agents in scripts.items()}
        options = {"method": name, "stored_runs_only": stored_runs_only}
        played[name] = run_condition(few, SCRIPTED, lambda t, a=agents: a[t.task_id], store, **options)
    return played


def judge_scripts(
    world: World, played: Mapping[str, Sequence[WebEpisode]], model: ChatModel | None = None
) -> pd.DataFrame:
    """Tabulate how judges agree with the truth on scripted episodes, on three views.

    Judges see transcripts, without ids and states; the action-wise view compares with the first valid route.
    A row each judge ("rules"; "language model", if there is one), view and measure.
    """
    records = [record for episodes in played.values() for record in episodes]
    routes = {record.task_id: record for record in played[VALID]}
    true, frames = judged_by("programmatic", world, records), []
    for view in VIEWS:
        for name in ("rules", *(["language model"] if model else [])):
            scores = judged_by(name, world, records, view, model, routes)
            frames.append(agreement(true, scores).assign(judge=name, view=view))
    return pd.concat(frames, ignore_index=True)


def judge_agents(
    world: World, records: Sequence[WebEpisode], model: ChatModel | None, labels: Path | None = None
) -> pd.DataFrame:
    """Tabulate how judges agree on the agents' own episodes, with all that the agents wrote before them.

    ``reference`` is "truth", or "person" for the labels of a sheet (:func:`write_sheet`) that was filled in.
    """
    others = ("rules", *(["language model"] if model else []))
    said = {name: judged_by(name, world, records, REASONS, model) for name in ("programmatic", *others)}
    true = said["programmatic"]
    frames = [agreement(true, said[name]).assign(judge=name, reference="truth") for name in others]
    if labels:
        by_key = read_sheet(labels)
        person = [by_key.get((record.task_id, record.method)) for record in records]
        for name, scores in said.items():
            pairs = [(a, b) for a, b in zip(person, scores, strict=True) if a is not None]
            if pairs:
                frames.append(agreement(*zip(*pairs, strict=True)).assign(judge=name, reference="person"))
    return pd.concat(frames, ignore_index=True).assign(view=REASONS)


def judged_by(
    name: str,
    world: World,
    records: Sequence[WebEpisode],
    view: View = REASONS,
    model: ChatModel | None = None,
    routes: Mapping[str, WebEpisode] = {},
) -> list[Scores | None]:
    """Return the scores of a judge ("programmatic", "rules", "language model"); None if it gives none.

    ``routes`` holds a valid route of each task, for the action-wise view.
    """
    if name == "programmatic":
        tasks, truth = {task.task_id: task for task in world.tasks}, world.truth("implicit")
        return [judge(tasks[each.task_id], each.trajectory, truth) for each in records]
    seen = transcripts(world, records, view, routes)
    return judges.ask_judge(model, seen) if name != "rules" else [*map(judges.judge_by_rules, seen)]


def transcripts(
    world: World, records: Sequence[WebEpisode], view: View, routes: Mapping[str, WebEpisode] = {}
) -> list[Transcript]:
    """Return what a view shows of each episode, with a valid route of its task where there is one."""
    tasks = {task.task_id: task for task in world.tasks}
    events = {event.event_id: event for history in world.histories.values() for event in history.events}
    seen = []
    for each in records:
        route = routes[each.task_id].trajectory if routes else None
        seen.append(judges.transcribe(tasks[each.task_id], each.trajectory, view, events, route))
    return seen


def agreement(truth: Sequence[Scores], judged: Sequence[Scores | None]) -> pd.DataFrame:
    """Return one row a measure: Spearman, Pearson, accuracy, Cohen's kappa, and how many could be judged.

    Accuracy and kappa take each score as a class of its own; correlations are NaN where a side never varies.
    """
    pairs = [(a, b) for a, b in zip(truth, judged, strict=True) if b is not None]
    rows = []
    for name, measure in MEASURES.items():
        true = np.array([measure(a) for a, _ in pairs])
        said = np.array([measure(b) for _, b in pairs])
        varies = len(pairs) > 1 and np.ptp(true) > 0 and np.ptp(said) > 0
        classes = ((4 * true).astype(int), (4 * said).astype(int))
        correlations = [float(f(true, said).statistic) if varies else np.nan for f in (spearmanr, pearsonr)]
        accuracy = float(np.mean(true == said)) if pairs else np.nan
        kappa = float(cohen_kappa_score(*classes)) if varies else np.nan
        rows.append((name, *correlations, accuracy, kappa, len(pairs), len(truth) - len(pairs)))
    columns = ["measure", "spearman", "pearson", "accuracy", "kappa", "judged", "unreadable"]
    return pd.DataFrame(rows, columns=columns)


def write_sheet(path: Path, world: World, records: Sequence[WebEpisode]) -> None:
    """Write a sheet on which a person labels episodes: what happened, and an empty cell for each score.

    What is not to be scored says so. A filled sheet is read by :func:`read_sheet`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(["task_id", "method", *CRITERIA, "right website", "right values", "task", "episode"])
        for record, seen in zip(records, transcripts(world, records, REASONS), strict=True):
            values = "; ".join(wish.wording for wish in (*seen.stated.values(), *seen.masked.values()))
            about = [seen.host, values, seen.text, judges.tell(seen)]
            sheet.writerow([record.task_id, record.method, *[""] * len(CRITERIA), *about])


def read_sheet(path: Path) -> dict[tuple[str, str], Scores]:
    """Return a person's scores by task and method; DataError for one off the scale of 0, 0.5 and 1."""
    labels = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 1):
            given = {name: row[name] for name in CRITERIA if row.get(name)}
            try:
                scores = Scores(**{name: float(value) for name, value in given.items()}) if given else None
            except (ValidationError, ValueError) as error:
                expected = f"0, 0.5 or 1 in {', '.join(CRITERIA)}"
                raise DataError(path, f"row {number}", "scores", given, expected) from error
            if scores:
                labels[row["task_id"], row["method"]] = scores
    return labels
