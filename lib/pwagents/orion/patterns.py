"""What an agent asks and searches for, without its words: "color + type", "brand, then color".

A policy that does the same on every task, whatever it is told, shows as one pattern with nearly all episodes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.profiles.catalogue import BANDS, TOPIC, Catalogue, Trait
from pwagents.profiles.update import OfflineUpdater
from pwagents.rl.rollout import count_asks
from pwagents.schema import FUNCTION_OF, Step, Trajectory
from pwagents.words import content_words

TYPE, OTHER, NOTHING = "type", "other words", "nothing"


def query_pattern(query: str, catalogue: Catalogue) -> str:
    """The attributes that a query names, in alphabetical order: "brand + color + type".

    ``type`` stands for words of products' titles that are no attribute's value, "other words" for the rest.
    """
    found = [trait for _, trait in catalogue.find(query)]
    taken = {word for trait in found for word in trait.value.lower().split()}
    names = {trait.about for trait in found}
    if not set(query.lower().split()).isdisjoint(BANDS):
        names.add("price")
    for word in content_words(query):
        if word not in taken and word not in BANDS:
            names.add(TYPE if catalogue.is_used(Trait(TOPIC, word)) else OTHER)
    return " + ".join(sorted(names)) or NOTHING


def queries(trajectory: Trajectory, catalogue: Catalogue) -> list[str]:
    """The patterns of an episode's searches, each once."""
    texts = [step.action.arguments["query"] for step in _valid(trajectory, FUNCTION_OF["search"])]
    return list(dict.fromkeys(query_pattern(text, catalogue) for text in texts))


def questions(trajectory: Trajectory, updater: OfflineUpdater) -> list[str]:
    """What an episode's questions are about, in their order, as one pattern: "color, brand"."""
    texts = [step.action.arguments["content"] for step in _valid(trajectory, "respond")]
    abouts = [updater.find_attribute(text) or "something else" for text in texts]
    return [", ".join("type or anything" if about == TOPIC else about for about in abouts) or NOTHING]


def frequent_patterns(
    records: Sequence[EpisodeRecord], patterns_of: Callable[[Trajectory], list[str]], n: int = 10
) -> pd.DataFrame:
    """The ``n`` most frequent patterns of each method, side by side.

    Args:
        records: of one or several methods; those that were not scored are left out.
        patterns_of: the patterns of an episode, such as :func:`queries`.

    Returns:
        Rows by ``rank``; a method's columns are ``pattern``, ``share`` of its episodes that have it, and the
        ``result accuracy`` of these episodes.
    """
    scored = [record for record in records if record.outcome == "scored"]
    rows = [
        (record.method, pattern, record.grade.result_final)
        for record in scored
        for pattern in patterns_of(record.trajectory)
    ]
    frame = pd.DataFrame(rows, columns=["method", "pattern", "result"])
    parts = {}
    for method, episodes in Counter(record.method for record in scored).items():
        groups = frame[frame["method"] == method].groupby("pattern")["result"]
        table = pd.DataFrame({"share": groups.size() / episodes, "result accuracy": groups.mean()})
        table = table.rename_axis("pattern").reset_index()
        table = table.sort_values(["share", "pattern"], ascending=[False, True]).head(n)
        parts[method] = table.set_axis(range(1, len(table) + 1))
    return pd.concat(parts, axis=1).rename_axis("rank")


def sameness(records: Sequence[EpisodeRecord], updater: OfflineUpdater) -> pd.DataFrame:
    """Whether methods ask the same on every task, one row a method.

    Returns:
        ``method``, its ``most frequent`` sequence of questions, the ``share`` of its episodes that ask just
        that, how many ``different`` sequences there are, and the mean number of ``questions``.
    """
    scored: dict[str, list[Trajectory]] = {}
    for record in records:
        if record.outcome == "scored":
            scored.setdefault(record.method, []).append(record.trajectory)
    rows = []
    for method, episodes in scored.items():
        found = Counter(pattern for episode in episodes for pattern in questions(episode, updater))
        pattern, times = min(found.items(), key=lambda item: (-item[1], item[0]))
        asks = sum(map(count_asks, episodes)) / len(episodes)
        rows.append((method, pattern, times / len(episodes), len(found), asks))
    return pd.DataFrame(rows, columns=["method", "most frequent", "share", "different", "questions"])


def _valid(trajectory: Trajectory, function: str) -> Iterator[Step]:
    return (step for step in trajectory.steps if step.action.name == function and not step.error)
