"""Profiles to be read: what one user's profiles say, what an instruction calls for, and how it changes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.data.personalwab import read_profiles
from pwagents.embedding import Embedder
from pwagents.errors import SettingsError
from pwagents.profiles.global_micro import (
    adaptive_clusters,
    category_clusters,
    contextual_profile,
    embed_items,
    kmeans_clusters,
    nearest_clusters,
)
from pwagents.profiles.types import Cluster, ContextualProfile, GlobalProfile, UserProfiles
from pwagents.profiles.update import Updater
from pwagents.project import project_path
from pwagents.schema import Behavior, Benchmark, Product, Task, Trajectory, UserProfile

BUCKETINGS: dict[str, Callable[..., tuple[Cluster, ...]]] = {
    "adaptive": adaptive_clusters,
    "category": category_clusters,
    "k-means": kmeans_clusters,
}
_ENOUGH = 3  # clusters that make a user worth looking at
_SHOWN = 3  # clusters of a user that are shown


def published_profiles(benchmark: Benchmark, file: str) -> Mapping[str, UserProfile]:
    """The profiles that came with the benchmark, else those of PersonalWAB's ``file``; none where there is no
    such file."""
    path = project_path(file)
    return benchmark.profiles or (read_profiles(path) if path.is_file() else {})


def cluster_sizes(
    histories: Mapping[str, Sequence[Behavior]], products: Mapping[str, Product], embedder: Embedder
) -> pd.DataFrame:
    """What each way of bucketing makes of the users' histories: ``bucketing, clusters of a user, smallest,
    largest``, means over users."""
    vectors = embed_items(histories.values(), products, embedder)
    rows = []
    for name, bucketing in BUCKETINGS.items():
        for history in histories.values():
            sizes = [len(found.members) for found in bucketing(history, products, vectors)]
            rows.append((name, len(sizes), min(sizes), max(sizes)))
    frame = pd.DataFrame(rows, columns=["bucketing", "clusters of a user", "smallest", "largest"])
    return frame.groupby("bucketing", sort=False).mean().reset_index()


def example_user(profiles: Mapping[str, UserProfiles], tasks: Sequence[Task], position: int) -> str:
    """The user at a position among those with a search task: the ones with most clusters first, as far as
    three, then by id. Where nobody has clusters, the position is among all of them; where nobody searches,
    among the users with any task.

    Raises:
        SettingsError: there is no such user, or only others have clusters to show.
    """
    searching = {task.user_id for task in tasks if task.type == "search"}
    askers = sorted(searching or {task.user_id for task in tasks})
    users = sorted(askers, key=lambda user: -min(len(profiles[user].clusters), _ENOUGH))
    n_clustered = sum(bool(profiles[user].clusters) for user in users)
    n_shown, clustered = (n_clustered, " and a history of more than alpha behaviours") if n_clustered else (
        len(users), ""
    )  # fmt: skip
    if position >= n_shown:
        raise SettingsError(
            f"group profiles, setting example_user: found {position}; expected less than {n_shown}, the "
            f"number of users with a search task{clustered}"
        )
    return users[position]


def item_map(
    profiles: UserProfiles, history: Sequence[Behavior], products: Mapping[str, Product], embedder: Embedder
) -> pd.DataFrame:
    """A user's products on the plane of their embeddings' two largest components (PCA).

    Returns:
        ``x, y, cluster, product``, one row a behaviour in the order of the clusters.
    """
    from sklearn.decomposition import PCA

    vectors = embed_items([history], products, embedder)
    rows = [(cluster.name, history[i].parent_asin) for cluster in profiles.clusters for i in cluster.members]
    items = np.stack([vectors[asin] for _, asin in rows]).astype(np.float64)
    places = PCA(2, svd_solver="full").fit_transform(items).round(4)  # the exact solver: no random start
    frame = pd.DataFrame(places, columns=["x", "y"])
    frame["cluster"] = [name for name, _ in rows]
    frame["product"] = [products[asin].title for _, asin in rows]
    return frame


def global_profile_table(profile: GlobalProfile) -> pd.DataFrame:
    """A global profile, one row a fact, then what is liked and avoided everywhere: ``field, value``."""
    rows = {
        **profile.facts.model_dump(by_alias=True),
        "likes everywhere": ", ".join(profile.positive),
        "avoids everywhere": ", ".join(profile.negative),
    }
    return pd.DataFrame(rows.items(), columns=["field", "value"])


def micro_profile_table(profiles: UserProfiles) -> pd.DataFrame:
    """The micro-profiles of a user's three largest clusters, one a row."""
    pairs = sorted(
        zip(profiles.clusters, profiles.micro, strict=True), key=lambda pair: -len(pair[0].members)
    )
    rows = [
        (cluster.name, len(cluster.members), ", ".join(micro.recommendations), ", ".join(micro.avoidances))
        for cluster, micro in pairs[:_SHOWN]
    ]
    return pd.DataFrame(rows, columns=["cluster", "behaviours", "recommendations", "avoidances"])


def tell_retrieval(instruction: str, profiles: UserProfiles, embedder: Embedder) -> str:
    """An instruction, the three nearest clusters with their weights, and the contextual profile of the
    nearest."""
    (near,) = nearest_clusters([instruction], [profiles], embedder, m=_SHOWN)
    clusters = [f"{found.weight:.2f}  {profiles.clusters[found.cluster].name}" for found in near]
    told = contextual_profile(instruction, profiles, embedder).describe()
    return "\n".join([instruction, "", *clusters, "", told])


def update_table(
    start: ContextualProfile, trajectory: Trajectory, instruction: str, updater: Updater
) -> tuple[pd.DataFrame, ContextualProfile]:
    """How a contextual profile changes over an episode.

    Returns:
        One row a step: ``step, action, answer, new, dropped`` (the lines that came and went), and the profile
        after the last step.
    """
    rows, profile = [], start
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
    return pd.DataFrame(rows), profile


def _lines(these: ContextualProfile, without: ContextualProfile) -> str:
    left = [line for line in these.lines if line not in without.lines]
    return "; ".join(f"{'+' if line.positive else '-'} {line.text} ({line.provenance})" for line in left)
