"""How implicit the histories are: what simple ways of reading them find of what tasks leave out.

A perfect reader knows which value each record shows and that noise shows none; it takes the value that
most of the records it is given show. What it misses with all records, no reader can find; what it misses with
retrieved ones, retrieval lost. It is a reference, not an agent: it reads the truth.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.embedding import Embedder
from pwagents.persona2web.agents.recall import HistoryIndex, RetrievalSettings, question_for
from pwagents.persona2web.world.domains import domains
from pwagents.persona2web.world.history import History, values_of
from pwagents.persona2web.world.types import WEBSITE, BrowsingEvent, Value, WebTask
from pwagents.results.statistics import share_interval
from pwagents.seeds import rng

# A task and a facet (or "website") -> what is taken to be preferred.
Guess = Callable[[WebTask, str], Value]
_LAST = (1, 5, 20)


def implicitness(
    tasks: Sequence[WebTask], histories: Mapping[str, History], embedder: Embedder, seed: int
) -> pd.DataFrame:
    """What each baseline finds: one row each.

    Columns: ``baseline``; ``website`` and ``values``, shares of websites and of masked values found;
    ``joint``, share of tasks of which the website and all masked values were; ``low`` and ``high``, its 95%
    interval, clustered by user; ``n``, tasks.
    """
    guesses = _baselines(tasks, histories, embedder, seed)
    return pd.DataFrame([{"baseline": name, **_score(tasks, guess)} for name, guess in guesses.items()])


def chance(tasks: Sequence[WebTask]) -> dict[str, float]:
    """What guessing finds, by counting: the website, all masked values, and both."""
    sites = [1 / len(values_of(task.goal.domain, WEBSITE)) for task in tasks]
    masked = [
        float(np.prod([1 / len(values_of(task.goal.domain, name)) for name in task.goal.masked]))
        for task in tasks
    ]
    both = [a * b for a, b in zip(sites, masked, strict=True)]
    return {name: float(np.mean(of)) for name, of in (("website", sites), ("values", masked), ("both", both))}


def _baselines(
    tasks: Sequence[WebTask], histories: Mapping[str, History], embedder: Embedder, seed: int
) -> dict[str, Guess]:
    generator = rng(seed, "implicitness")
    indices = {user: HistoryIndex(histories[user].events, embedder) for user in {t.user_id for t in tasks}}

    def random(task: WebTask, facet: str) -> Value:
        values = values_of(task.goal.domain, facet)
        return values[generator.integers(len(values))]

    def popular(task: WebTask, facet: str) -> Value:
        key = (task.goal.domain, facet)
        others = [history.person.wants for user, history in histories.items() if user != task.user_id]
        return _most([wants[key] for wants in others if key in wants], *key)

    def read(task: WebTask, facet: str, records: Sequence[BrowsingEvent]) -> Value:
        return perfect_reader(histories[task.user_id], records, task.goal.domain, facet)

    def last(n: int) -> Guess:
        return lambda task, facet: read(task, facet, _last(histories[task.user_id], task.goal.domain, n))

    def retrieved(settings: RetrievalSettings) -> Guess:
        return lambda task, facet: read(
            task,
            facet,
            indices[task.user_id].search(question_for(domains()[task.goal.domain], facet), settings),
        )

    return {
        "random": random,
        "popular among other users": popular,
        **{f"last {n} of the sub-domain, perfect reader": last(n) for n in _LAST},
        "BM25 top 20, perfect reader": retrieved(RetrievalSettings(retriever="bm25")),
        "MiniLM top 20, perfect reader": retrieved(RetrievalSettings()),
        "all records, perfect reader": lambda task, facet: read(task, facet, histories[task.user_id].events),
    }


def perfect_reader(history: History, records: Sequence[BrowsingEvent], domain: str, facet: str) -> Value:
    """The value (or host) that most of the records show, of those of the sub-domain that are no noise.

    Among values shown equally often, or where none is, the one listed first.
    """
    shown = [(record.website, history.shown[record.event_id]) for record in records]
    counted = [(host, truth) for host, truth in shown if truth.domain == domain and not truth.noise]
    if facet == WEBSITE:
        return _most([host for host, _ in counted], domain, facet)
    return _most([truth.value for _, truth in counted if truth.facet == facet], domain, facet)


def _last(history: History, domain: str, n: int) -> list[BrowsingEvent]:
    """The last records of a sub-domain that show something: its transactions, reviews and telling visits."""
    found = []
    for event in reversed(history.events):
        truth = history.shown[event.event_id]
        if truth.domain == domain and truth.facet and not truth.noise:
            found.append(event)
        if len(found) == n:
            break
    return found


def _most(found: Sequence[Value], domain: str, facet: str) -> Value:
    counts = Counter(found)
    return max(values_of(domain, facet), key=lambda value: counts[value])  # max takes the first of equals


def _score(tasks: Sequence[WebTask], guess: Guess) -> dict[str, float]:
    website, values, joint = [], [], []
    for task in tasks:
        site = guess(task, WEBSITE) == task.goal.host
        right = [guess(task, facet) == value for facet, value in task.goal.masked.items()]
        website.append(site)
        values += right
        joint.append(site and all(right))
    interval = share_interval(joint, [task.user_id for task in tasks])
    return {
        "website": float(np.mean(website)),
        "values": float(np.mean(values)),
        "joint": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": len(joint),
    }
