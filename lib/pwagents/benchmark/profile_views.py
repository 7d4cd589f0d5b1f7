"""Profiles to be looked at: a map of interests, an update turn by turn, and what a query gains by them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.evaluation.figures import plain, plot_lines, use_style
from pwagents.profiles.types import ContextualProfile, UserProfiles
from pwagents.profiles.update import Updater
from pwagents.schema import Behavior, Product, Task, Trajectory
from pwagents.web.functions import RESULTS
from pwagents.web.reward import rank_accuracy
from pwagents.web.search import SearchEngine

_MARKERS = "osD^vPX*<>"


def item_map(
    profiles: UserProfiles,
    history: Sequence[Behavior],
    vectors: Mapping[str, np.ndarray],
    products: Mapping[str, Product],
) -> pd.DataFrame:
    """A user's products on the plane of their embeddings' two largest components (PCA).

    Returns:
        ``x, y, cluster, product``, one row a behaviour in the order of the clusters.
    """
    from sklearn.decomposition import PCA

    rows = [(cluster.name, history[i].parent_asin) for cluster in profiles.clusters for i in cluster.members]
    items = np.stack([vectors[asin] for _, asin in rows]).astype(np.float64)
    places = PCA(2, svd_solver="full").fit_transform(items).round(4)
    frame = pd.DataFrame(places, columns=["x", "y"])
    frame["cluster"] = [name for name, _ in rows]
    frame["product"] = [products[asin].title for _, asin in rows]
    return frame


def plot_item_map(frame: pd.DataFrame):
    """:func:`item_map` as a figure, a colour and a marker a cluster, for ``figures.save_figure``."""
    import matplotlib.pyplot as plt

    use_style()
    names = list(frame["cluster"].unique())
    fig, ax = plt.subplots(figsize=(8, 5.5 + 0.25 * len(names)))
    colors = plt.get_cmap("tab20" if len(names) > 6 else "Dark2")
    for i, name in enumerate(names):
        part = frame[frame["cluster"] == name]
        marker = _MARKERS[i % len(_MARKERS)]
        label = f"{_shortened(name)} ({len(part)})"
        ax.scatter(part["x"], part["y"], color=colors(i), marker=marker, s=70, label=plain(label), alpha=0.85)
    ax.set(xlabel="first component of the item embeddings", ylabel="second component")
    fig.legend(loc="outside lower center", ncols=2)
    return fig


def _shortened(name: str) -> str:
    return name if len(name) <= 38 else name[:37] + "\N{HORIZONTAL ELLIPSIS}"


def update_table(
    start: ContextualProfile, trajectory: Trajectory, instruction: str, updater: Updater
) -> tuple[pd.DataFrame, list[ContextualProfile]]:
    """How a contextual profile changes over an episode.

    Returns:
        One row a step: ``step, action, answer, new, dropped`` (the lines that came and went), and the profile
        after each step.
    """
    rows, profile, profiles = [], start, []
    for i, step in enumerate(trajectory.steps, start=1):
        before, profile = profile, updater(profile, instruction, trajectory.steps[:i]).profile
        said = step.action.arguments.get("content") or step.action.arguments.get("query") or ""
        rows.append(
            {
                "step": i,
                "action": f"{step.action.name}: {said}" if said else step.action.name,
                "answer": step.observation.text if step.action.name == "respond" else "",
                "new": _lines(profile, before),
                "dropped": _lines(before, profile),
            }
        )
        profiles.append(profile)
    return pd.DataFrame(rows), profiles


def _lines(these: ContextualProfile, without: ContextualProfile) -> str:
    left = [line for line in these.lines if line not in without.lines]
    return "; ".join(f"{'+' if line.positive else '-'} {line.text} ({line.provenance})" for line in left)


def search_with_profiles(
    engine: SearchEngine,
    tasks: Sequence[Task],
    told: Mapping[str, Sequence[Sequence[str]]],
    added: Sequence[int] = (0, 1, 2, 3, 4, 5),
) -> pd.DataFrame:
    """What a query gains by the values of a profile: one row a search task, method and number of values.

    The query is the instruction and the first so many values that it does not hold; no agent, no model.

    Args:
        told: method -> for each of ``tasks``, the values its profile names, the weightiest first.

    Returns:
        ``method, added, task_id, user_id, type, result_accuracy``.
    """
    rows = []
    for method, values in told.items():
        for task, own in zip(tasks, values, strict=True):
            if task.type == "search":
                new = [value for value in own if value.lower() not in task.instruction.lower()]
                for n in added:
                    query = " ".join([task.instruction, *new[:n]])
                    ranking = [asin for asin, _ in engine.search(query, RESULTS)]
                    accuracy = rank_accuracy(ranking, task.target)
                    rows.append((method, n, task.task_id, task.user_id, task.type, accuracy))
    columns = ["method", "added", "task_id", "user_id", "type", "result_accuracy"]
    return pd.DataFrame(rows, columns=columns)


def plot_search_gain(summary: pd.DataFrame):
    """Result accuracy by number of values added, a line a method, with intervals.

    Args:
        summary: ``method, added, mean, low, high``.
    """
    return plot_lines(
        summary, "added", "mean", hue="method", xlabel="values of the profile added to the instruction",
        ylabel="result accuracy of the search",
    )  # fmt: skip
