"""Clarification without a web: a request is rewritten from the history and compared with what was meant.

This is Persona2Web's core question, and takes seconds a task. A method gets the text of level 2 and access to
the user's history, and writes the text anew. Its website and the values that level 0 names are looked for in
that text (utilization); where the truth about records is known, so is whether they were retrieved. Tasks are
ours or the released ones. Among the methods are references that read the truth: they say what a history, or
what was retrieved of it, holds at most.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel
from pwagents.persona2web.agents.chat import Asking
from pwagents.persona2web.agents.episode import Brief, Played, World
from pwagents.persona2web.agents.offline import OfflineAgent
from pwagents.persona2web.agents.recall import HistoryIndex, Reader, Recall, RetrievalSettings, question_for
from pwagents.persona2web.judge.scores import retrieval_score
from pwagents.persona2web.world.domains import domains, facet_of, names_value
from pwagents.persona2web.world.history import History, values_of
from pwagents.persona2web.world.released import OfficialTask
from pwagents.persona2web.world.types import WEBSITE, BrowsingEvent, MemoryStep, Value, WebTask
from pwagents.seeds import rng

# Common words of marked values, which say nothing ("under $50 in total").
_EMPTY = {"a", "an", "and", "at", "for", "in", "of", "on", "or", "than", "the", "to", "with"}


@dataclass(frozen=True)
class Request:
    """One task to be clarified.

    Attributes:
        values: by facet (of a released task: by place) what names the value: the value, or its words.
        support: by facet or "website" the ids of records that show it; empty if the truth is not known.
    """

    task_id: str
    user_id: str
    text: str
    site: str
    values: Mapping[str, Value]
    support: Mapping[str, frozenset[str]] = field(default_factory=dict)


Select = Callable[[WebTask, str], Sequence[BrowsingEvent]]  # records about a facet
Method = Callable[[Request], Played]  # its memory steps, and the text as it was rewritten


def our_requests(world: World) -> list[Request]:
    """Return the world's tasks as requests, with what supports each preference."""
    truth = world.truth("implicit").support
    requests = []
    for task in world.tasks:
        goal = task.goal
        names = (WEBSITE, *goal.masked)
        support = {name: truth.get((task.user_id, goal.domain, name), frozenset()) for name in names}
        ids = (task.task_id, task.user_id)
        requests.append(Request(*ids, task.texts[2], goal.host, dict(goal.masked), support))
    return requests


def released_requests(tasks: Sequence[OfficialTask], users: Iterable[str]) -> list[Request]:
    """Return the released tasks of users whose history is at hand, and that name a website and values."""
    known, requests = {*users}, []
    for task in tasks:
        if task.user_id in known and task.site and task.values and 2 in task.texts:
            values = {f"value {place}": value for place, value in enumerate(task.values, 1)}
            requests.append(Request(task.task_id, task.user_id, task.texts[2], task.site, values))
    return requests


def clarify(requests: Sequence[Request], methods: Mapping[str, Method], data: str) -> pd.DataFrame:
    """Return one row a method and request.

    Columns: ``data, method, task_id, user_id``; ``website`` and ``values``, whether the text names the
    website, and the share of values that it names; ``joint``, all of it; ``p_web_found`` and
    ``p_pref_found``, the share of preferences of which three supporting records were retrieved (missing if
    the truth is not known). A request that a model refuses is missing in all of these.
    """
    rows = []
    for name, method in methods.items():
        for request in requests:
            row = {"data": data, "method": name, "task_id": request.task_id, "user_id": request.user_id}
            rows.append(row)
            try:
                played = method(request)
            except NotEvaluableError:
                continue
            text = played.rewritten or request.text
            site = request.site.casefold() in text.casefold()
            named = [names_marked(text, value) for value in request.values.values()]
            row |= {"website": float(site), "values": float(np.mean(named))}
            row["joint"] = float(site and all(named))
            found = {key: retrieval_score(played.steps, ids) == 1 for key, ids in request.support.items()}
            preferences = [hit for key, hit in found.items() if key != WEBSITE]
            row["p_web_found"] = float(found[WEBSITE]) if found else np.nan
            row["p_pref_found"] = float(np.mean(preferences)) if preferences else np.nan
    return pd.DataFrame(rows)


def names_marked(text: str, value: Value) -> bool:
    """Return whether a text names a value: ours as it is; words that level 0 marks by their content.

    Of marked words every number must stand in the text, and half of the other words.
    """
    if names_value(text, value):
        return True
    words = set(re.findall(r"\d+(?:\.\d+)?|[^\W\d]+", str(value).casefold())) - _EMPTY
    if isinstance(value, float) or len(words) < 2:
        return False
    there = set(re.findall(r"\d+(?:\.\d+)?|[^\W\d]+", text.casefold()))
    plain = {word for word in words if not word[0].isdigit()}
    return words - plain <= there and len(plain & there) >= len(plain) / 2


# --- methods -----------------------------------------------------------------------------------------------


def chat_method(model: ChatModel, recalls: Mapping[str, Recall]) -> Method:
    """Return a language model that plans questions, reads what they find, and rewrites the request."""

    def method(request: Request) -> Played:
        asking = Asking(model, Brief(request.text, recalls[request.user_id]))
        rewritten = asking.look_before()
        return Played(asking.steps, rewritten=rewritten)

    return method


def reader_method(readers: Mapping[str, Reader], recalls: Mapping[str, Recall]) -> Method:
    """Return the offline agent's reading, which knows only the world that it was trained in."""

    def method(request: Request) -> Played:
        agent = OfflineAgent(readers[request.user_id], "indexed", "pre_execution")
        return agent.clarify(Brief(request.text, recalls[request.user_id]))[0]

    return method


def copying_method(recalls: Mapping[str, Recall], copied: int = 5) -> Method:
    """Return a baseline: the site of most records that the request itself finds, and the first of them."""

    def method(request: Request) -> Played:
        records = recalls[request.user_id](request.text)
        sites = Counter(record.website for record in records if record.website)
        told = [site for site, _ in sites.most_common(1)] + [record.object for record in records[:copied]]
        step = MemoryStep(query=request.text, retrieved=tuple(r.event_id for r in records), answer="")
        return Played([step], rewritten=f"{request.text} ({'; '.join(told)})")

    return method


def references(world: World, seed: int) -> dict[str, Method]:
    """Return guesses, and a perfect reader of some or all records: it knows what each shows.

    It takes the value that most of the records show, noise left out; at a tie, the one listed first. What it
    misses with all records no reader can find; what it misses with retrieved ones, retrieval lost.
    """
    generator, tasks = rng(seed, "implicitness"), {task.task_id: task for task in world.tasks}
    indices = {user: HistoryIndex(h.events, world.embedder) for user, h in world.histories.items()}

    def search(retriever: str) -> Select:
        settings = RetrievalSettings(retriever=retriever)
        return lambda task, facet: indices[task.user_id].search(
            question_for(domains()[task.goal.domain], facet), settings
        )

    def method(select: Select | None) -> Method:
        def play(request: Request) -> Played:
            task, said, steps = tasks[request.task_id], [], []
            for name in (WEBSITE, *task.goal.masked):
                values, domain, records = values_of(task.goal.domain, name), task.goal.domain, ()
                value = values[generator.integers(len(values))] if select is None else None
                if select:
                    records = select(task, name)
                    value = perfect_reader(world.histories[task.user_id], records, domain, name)
                steps.append(MemoryStep(query=name, retrieved=tuple(r.event_id for r in records), answer=""))
                said.append(str(value) if name == WEBSITE else facet_of(domain, name).state(value))
            return Played(steps, rewritten=f"{request.text} ({'; '.join(said)})")

        return play

    selections = {
        "BM25 top 20": search("bm25"),
        "MiniLM top 20": search("minilm"),
        "all records": lambda task, _: world.histories[task.user_id].events,
    }
    readers = {f"{name}, perfect reader": method(select) for name, select in selections.items()}
    return {"random": method(None)} | readers


def perfect_reader(history: History, records: Sequence[BrowsingEvent], domain: str, facet: str) -> Value:
    """Return the value (or host) that most records of the sub-domain show, without noise."""
    counts: Counter[Value] = Counter()
    for record in records:
        shown = history.shown[record.event_id]
        if shown.domain == domain and not shown.noise and facet in (WEBSITE, shown.facet):
            counts[record.website if facet == WEBSITE else shown.value] += 1
    return max(values_of(domain, facet), key=lambda value: counts[value])  # max takes the first of equals
