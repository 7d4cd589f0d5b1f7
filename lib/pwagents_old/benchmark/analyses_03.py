"""Analyses of notebook 03: what methods reach and gain, and what happens in episodes.

Runs are given by the name that tables show: name of the method -> its episodes, in the order of the tasks.
What happened within episodes is read off those that were scored.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import pandas as pd

from pwagents.results.metrics import GRADER
from pwagents.results.statistics import by_task, paired_gains, sort_by_type
from pwagents.results.tables import recommender_name
from pwagents.schema import ProblemKind, Usage
from pwagents_old.benchmark.method_players import PROTOCOLS, Cell
from pwagents_old.benchmark.study import Study
from pwagents.store import Episode
from pwagents.results.metrics import records_frame

Runs = Mapping[str, Sequence[Episode]]

# Metrics as the tables of each track call them.
SINGLE_TURN = {"function_accuracy": "function", "result_official": "result"}
MULTI_TURN = SINGLE_TURN | {"result_official": "official", "result_final": "final", "steps": "steps"}
# Kinds of problems, as the table shows them: "malformed_json" is "malformed JSON".
PROBLEMS = {kind: kind.replace("_", " ").replace("json", "JSON") for kind in get_args(ProblemKind) if kind}
COST_NOTE = (
    "Replies that came from the store count as what they cost when they were made. Parted: thought or calls "
    "came as text, and were read here."
)
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


def frame_of(runs: Runs) -> pd.DataFrame:
    """Put all episodes into one frame, one row each; ``method`` is the shown name."""
    return pd.concat([records_frame(records).assign(method=name) for name, records in runs.items()])


def merge_equal(runs: Runs) -> tuple[dict[str, Sequence[Episode]], str]:
    """Keep the first of each set of methods that played the very same episodes; with a line on which."""
    same: dict[str, list[str]] = {}
    for name, records in runs.items():
        episodes = [record.trajectory for record in records]
        first = next((other for other in same if [r.trajectory for r in runs[other]] == episodes), name)
        same.setdefault(first, []).append(name)
    sets = "; ".join(" = ".join(names) for names in same.values() if len(names) > 1)
    line = f"One row for methods that played the same episodes, as the policy reads no prompt: {sets}."
    return {name: runs[name] for name in same}, line if sets else ""


def name_cells(study: Study) -> dict[Cell, list[str]]:
    """Say in words what tells each cell of a study from the others; nothing where there is one alone."""
    cells = study.roles.cells
    words = {}
    for cell in cells:
        items = f"{cell.items} items" if cell.items else "the paper's items"
        words[cell] = cell.policy, PROTOCOLS[cell.protocol], items if cell.protocol == "published" else ""
    differs = [len({*values} - {""}) > 1 for values in zip(*words.values(), strict=True)]
    return {
        cell: [word for word, is_telling in zip(own, differs, strict=True) if word and is_telling]
        for cell, own in words.items()
    }


def backbone(study: Study, cell: Cell | None = None) -> str:
    """Say what played a cell, the first where none is named: its model, and what tells it from others."""
    cell = cell or study.roles.cells[0]
    return ", ".join(dict.fromkeys([cell.policy, *name_cells(study)[cell]]))


def rows_of(study: Study, played: Mapping[Cell, Runs]) -> dict[str, Sequence[Episode]]:
    """Return the runs of all cells as rows: the method, and what tells its cell from others."""
    names = name_cells(study)
    return {
        ", ".join([method, *names[cell]]): records
        for cell, runs in played.items()
        for method, records in runs.items()
    }


def shown_rows(study: Study, played: Mapping[Cell, Runs]) -> tuple[Runs, str]:
    """Return the runs that tables show, and a note: what the offline policy plays alike is one row."""
    runs = rows_of(study, played)
    return merge_equal(runs) if study.roles.offline else (runs, "")


def table_by_task(
    study: Study, played: Mapping[Cell, Runs], metrics: Mapping[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Tabulate prompting methods by task: means, cells with intervals, and what stands below it.

    Args:
        metrics: our name of a metric -> its heading.
    """
    rows, same = shown_rows(study, played)
    return *by_task(frame_of(rows), metrics), f"{note(study)} {same}".strip()


def over_seeds(study: Study, methods: Sequence[str]) -> pd.DataFrame:
    """Play some methods multi-turn under each of ``noise_seeds`` seeds, one row an episode and ``seed``."""
    first = study.settings.seed
    frames = []
    for seed in range(first, first + study.settings.play.noise_seeds):
        runs = {method: study.play(method, "multi_turn", seed) for method in methods}
        frames.append(frame_of(runs).assign(seed=seed))
    return pd.concat(frames)


def note(study: Study) -> str:
    """Say what stands below a table of prompting methods."""
    protocols = study.settings.play.protocols
    text = (
        f"{len(study.sample):,} test tasks, source {study.settings.data.source}, "
        f"{' and '.join(PROTOCOLS[protocol] for protocol in protocols)}. "
        f"Policy: {', '.join(study.roles.policies)}; {study.roles.prompts.origin}. Grader: {GRADER}. "
        "Means, 95% intervals clustered by user."
    )
    if "published" in protocols:
        loss = study.settings.shop.recommender.loss
        text += f" Recommender as published: {recommender_name(study.shop, loss, 'published')}."
    return text


def gains_of_memory(results: pd.DataFrame, without: str) -> pd.DataFrame:
    """Test result accuracy of each method minus that of the method ``without`` memory, by task type.

    Args:
        results: one row an episode, all under one protocol.

    Returns:
        ``method, task, difference, low, high, p, n_tasks, n_users``, paired by task, clustered by user.
    """
    base, others = (sort_by_type(results[results["method"].eq(without) == is_it]) for is_it in (True, False))
    base = pd.concat([base.assign(of=method) for method in others["method"].unique()])
    both = pd.concat([others.assign(of=others["method"], method="with"), base.assign(method="without")])
    gains = paired_gains(both, "result_official", "with", "without", by=["of", "type"])
    return gains.rename(columns={"of": "method", "type": "task"})


def gains_of_hindsight(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Test result accuracy as published minus leak-free (``protocol``), as :func:`gains_of_memory` does."""
    both = sort_by_type(outcomes).rename(columns={"method": "of", "protocol": "method"})
    gains = paired_gains(both, "result_official", "published", "leak_free", by=["of", "type"])
    return gains.rename(columns={"of": "method", "type": "task"})


def problem_counts(runs: Runs) -> pd.DataFrame:
    """Count replies that could not be carried out: ``method, steps``, a column a kind; no row without any."""
    rows = []
    for name, records in runs.items():
        steps = [step for r in records if r.outcome == "scored" for step in r.trajectory.steps]
        counts = Counter(step.error_kind for step in steps)
        rows.append((name, len(steps), *(counts[kind] for kind in PROBLEMS)))
    frame = pd.DataFrame(rows, columns=["method", "steps", *PROBLEMS.values()])
    return frame if frame[[*PROBLEMS.values()]].to_numpy().any() else frame.iloc[:0]


def costs(runs: Runs) -> pd.DataFrame:
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
