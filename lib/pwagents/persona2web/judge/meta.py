"""How well judges agree with the programmatic truth, which is no human's.

The episodes are scripted: valid routes of a task and eight ways to fail. Each is walked on the local web, so
that its pages and its log are real; what differs is what the script lets the agent find, believe and do.
Scripts know the truth, which is what the programmatic judge says with everything before it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import cohen_kappa_score

from pwagents.llm.chat import ChatModel
from pwagents.persona2web.agents.episode import Condition, WebEpisode, World, run_condition
from pwagents.persona2web.agents.offline import LEVEL, SCHEME, SCRIPTS, agent_of, scripts_of
from pwagents.persona2web.browser.driver import HtmlDriver
from pwagents.persona2web.judge.judges import LlmJudge, judge_by_rules, transcribe
from pwagents.persona2web.judge.scores import VIEWS, Scores, judge
from pwagents.persona2web.world.types import Architecture

MEASURES: Mapping[str, Callable[[Scores], float]] = {
    "website": lambda scores: scores.p_web,
    "preference": lambda scores: scores.p_pref,
    "intent": lambda scores: scores.intent,
    "success": lambda scores: scores.success,
}


def meta_evaluation(
    world: World,
    store: Path,
    model: ChatModel | None = None,
    n_tasks: int = 50,
    architecture: Architecture = "indexed",
    stored_runs_only: bool = False,
) -> pd.DataFrame:
    """How three judges agree with the truth, on three views: what notebook 09 shows.

    Plays two valid routes and eight scripted failures of each of the first ``n_tasks`` tasks at level 2
    through the HTML driver (what ``store`` holds is not played again), and has every judge score them all.

    Args:
        model: of the third judge, a language model; without one its rows are left out.

    Returns:
        One row for each judge ("programmatic", "rules", "language model"), view and measure (website and
        preference: P_web and P_pref; intent; success), with the columns of :func:`agreement`. The truth is
        the programmatic judge on the reasoning-aware view, whose rows are therefore all 1.

    Raises:
        InfrastructureError: the model cannot be reached.
        DataError, RuntimeError: see :func:`pwagents.store.episodes`.
    """
    few = replace(world, tasks=world.tasks[:n_tasks])
    return judge_scripts(few, play_scripts(few, store, architecture, stored_runs_only), model)


def play_scripts(
    world: World, store: Path, architecture: Architecture, stored_runs_only: bool = False
) -> dict[str, list[WebEpisode]]:
    """Every script of every task, by the script's name; episodes are kept as others are."""
    condition, truth = Condition(architecture, SCHEME, LEVEL), world.truth("implicit")
    scripts = {
        task.task_id: scripts_of(task, world.histories[task.user_id], world.web.sites[task.goal.host], truth)
        for task in world.tasks
    }
    return {
        name: run_condition(
            world,
            condition,
            lambda task, name=name: agent_of(scripts[task.task_id][name], architecture),
            [HtmlDriver(world.web)],
            store,
            method=name,
            stored_runs_only=stored_runs_only,
        )
        for name in SCRIPTS
    }


def judge_scripts(
    world: World, played: Mapping[str, Sequence[WebEpisode]], model: ChatModel | None = None
) -> pd.DataFrame:
    """The rows of :func:`meta_evaluation` for episodes that were played.

    The judges that read text see transcripts, without ids and states; the action-wise view compares with the
    first valid route of the task.
    """
    tasks, truth = {task.task_id: task for task in world.tasks}, world.truth("implicit")
    records = {event.event_id: event for history in world.histories.values() for event in history.events}
    routes = {episode.task_id: episode.trajectory for episode in played[SCRIPTS[0]]}
    shown = [(tasks[e.task_id], e.trajectory) for episodes in played.values() for e in episodes]
    true = [judge(task, each, truth) for task, each in shown]
    frames = []
    for view in VIEWS:
        texts = [transcribe(task, each, view, records, routes[task.task_id]) for task, each in shown]
        said = {
            "programmatic": [judge(task, each, truth, view) for task, each in shown],
            "rules": [judge_by_rules(text) for text in texts],
        }
        if model:
            said["language model"] = LlmJudge(model)(texts)
        frames += [agreement(true, scores).assign(judge=name, view=view) for name, scores in said.items()]
    frame = pd.concat(frames, ignore_index=True)
    return frame[["judge", "view", *frame.columns.drop(["judge", "view"])]]


def agreement(truth: Sequence[Scores], judged: Sequence[Scores | None]) -> pd.DataFrame:
    """One row a measure: Spearman, Pearson, accuracy, Cohen's kappa, and how many could be judged.

    Accuracy and kappa take each score as a class of its own; correlations are NaN where a side never varies.

    Args:
        judged: None where the judge's reply could not be read; those are counted and left out.
    """
    pairs = [(a, b) for a, b in zip(truth, judged, strict=True) if b is not None]
    rows = []
    for name, measure in MEASURES.items():
        true = np.array([measure(a) for a, _ in pairs])
        said = np.array([measure(b) for _, b in pairs])
        varies = len(pairs) > 1 and np.ptp(true) > 0 and np.ptp(said) > 0
        rows.append(
            {
                "measure": name,
                "spearman": float(spearmanr(true, said).statistic) if varies else np.nan,
                "pearson": float(pearsonr(true, said).statistic) if varies else np.nan,
                "accuracy": float(np.mean(true == said)) if pairs else np.nan,
                "kappa": _kappa(true, said) if varies else np.nan,
                "judged": len(pairs),
                "unreadable": len(truth) - len(pairs),
            }
        )
    return pd.DataFrame(rows)


def _kappa(true: np.ndarray, said: np.ndarray) -> float:
    return float(cohen_kappa_score((4 * true).astype(int), (4 * said).astype(int)))
