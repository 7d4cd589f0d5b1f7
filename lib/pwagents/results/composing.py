"""Who does the work: does a policy compose its calls, or repeat what its prompt says?

:func:`who_does_the_work` holds each first call against the prompt that it follows. :func:`follow_swaps`
changes what the user answered, the line of the profile that a rule wrote of it, or both, or a line of the
history, and looks whether the query follows.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from pwagents.llm.chat import Message
from pwagents.orion.agent import belief_states, orion_messages
from pwagents.orion.judge import holds, singular
from pwagents.orion.study import Study
from pwagents.orion.teacher import is_result
from pwagents.profiles.catalogue import TOPIC, Trait, spaced_words
from pwagents.schema import FUNCTION_OF, Action, Step
from pwagents.seeds import rng
from pwagents.shop.environment import BeliefState
from pwagents.store import Episode

REPEATS = 0.8  # Jaccard overlap of words from which a call repeats a line
# What is swapped: which lines of the messages. Only lines of the profile begin so.
BOTH, ANSWER, STATED = "an answer and its line", "an answer alone", "its line alone"
HISTORY = "a line of the history"
SWAPPED: Mapping[str, Callable[[str], bool]] = {
    BOTH: lambda line: True,
    ANSWER: lambda line: not line.startswith("- ["),
    STATED: lambda line: line.startswith("- ["),
    HISTORY: lambda line: line.startswith("- [history]"),
}
# Conversations so far -> what a policy does next in each.
Act = Callable[[Sequence[Sequence[Message]]], Sequence[Action]]


def first_calls(study: Study, records: Sequence[Episode]) -> list[tuple[Episode, BeliefState, Step]]:
    """Return the first search, recommendation or review of each episode, with the belief state before it."""
    tasks, calls = {task.task_id: task for task in study.test_tasks}, []
    for record in records:
        steps = record.trajectory.steps if record.trajectory else ()
        if (i := next((i for i, step in enumerate(steps) if is_result(step)), None)) is not None:
            states = belief_states(study.start(tasks[record.task_id]).state, record.trajectory)
            calls.append((record, states[i], steps[i]))
    return calls


def who_does_the_work(study: Study, records: Sequence[Episode]) -> pd.DataFrame:
    """Count how many first calls repeat what the prompt says already: rules compose them, not the policy.

    A call's words are compared with each line of the prompt that it follows (but for rules and the policy's
    own turns), with and without a label and a colon. Words repeat others where they overlap by
    :data:`REPEATS`.

    Returns:
        A row a method and type: ``calls``, and the shares of them that repeat ``one line`` of the prompt,
        ``two or three lines`` that stand beside each other (or one), and those ``within the profile``, all of
        whose words stand in its profile parts. Then ``ids told``: the share of a recommendation's ids that
        are of purchases in the prompt; who cannot copy makes up ids. Last, of searches, ``the whole
        profile``: the share whose words, but for the request's own, repeat the values, all together, that the
        profile wants.
    """
    rows = []
    for record, state, step in first_calls(study, records):
        messages = orion_messages(state, study.settings.players.shown)[1:]
        told = [m["content"] for m in messages if m["role"] != "assistant"]
        written = [line for text in told for line in text.splitlines()]
        lines = [spaced_words(line).split() for line in written]
        bare = [spaced_words(line.partition(":")[2]).split() for line in written]
        begun = state.context.profile.describe() if state.context else ""
        profile = spaced_words(" ".join([begun, *(step.profile for step in state.session)])).split()
        (argument,) = step.action.arguments.values()
        # The argument of a call is a text, or ids of products.
        listed = {x.asin for x in state.context.purchases} if state.context else set()
        told_ids = np.mean([asin in listed for asin in argument]) if isinstance(argument, list) else np.nan
        call = set(spaced_words(argument if isinstance(argument, str) else " ".join(argument)).split())
        one = any(_repeats(call, words) for words in (*lines, *bare))
        runs = (of[i : i + n] for of in (lines, bare) for n in (2, 3) for i in range(len(of)))
        several = one or any(_repeats(call, [word for line in run for word in line]) for run in runs)
        whole = np.nan
        if record.type == "search" and "query" in step.action.arguments:  # a wrong function has none
            wanted = [x for x in (state.profile.lines if state.profile else ()) if x.positive]
            values = " ".join(x.value for x in wanted if x.about != TOPIC and not x.is_amount)
            request, values = (set(spaced_words(text).split()) for text in (state.instruction, values))
            whole = _repeats(call - request, values - request)
        shares = (one, several, bool(call) and call <= set(profile), told_ids, whole)
        rows.append((record.method, record.type, 1, *shares))
    headings = ["one line", "two or three lines", "within the profile", "ids told", "the whole profile"]
    frame = pd.DataFrame(rows, columns=["method", "type", "calls", *headings])
    groups = frame.groupby(["method", "type"], sort=False)
    return groups.mean().astype(float).assign(calls=groups["calls"].sum()).reset_index()


def _repeats(words: set[str], others: Iterable[str]) -> bool:
    """Return whether words overlap with others by :data:`REPEATS` (Jaccard); none overlap with nothing."""
    others = set(others)
    return len(words & others) >= REPEATS * len(words | others) > 0


def follow_swaps(study: Study, records: Sequence[Episode], act: Act) -> pd.DataFrame:
    """Count how often a query follows where one answer, or one line of the profile, says something else.

    Swapped is a value that stands in the first query, for another value of its attribute: in an answer, in
    the profile's lines made of it, in both, or in what the profile knew before the first step. The first
    three are of the same queries and have the same new values.

    Args:
        records: of one method.
        act: this method.

    Returns:
        A row for each of :data:`SWAPPED`: ``method, swapped, tasks``, and the share whose query ``follows``:
        it holds the new value, and no longer the old one.
    """
    values: dict[str, list[str]] = {}  # attribute -> its values in the shop
    for trait in sorted({t for asin in study.catalogue.products for t in study.catalogue.traits(asin)}):
        values.setdefault(trait.about, []).append(trait.value)
    searches = [
        (record, state, singular(step.action.arguments["query"]))
        for record, state, step in first_calls(study, records)
        if step.action.name == FUNCTION_OF["search"]
    ]
    # The value that each query could be led away from: the first one told, in an answer or by the history.
    swaps: dict[bool, list[tuple[list[Message], int, str, str]]] = {False: [], True: []}
    for (record, state, query), of_history in product(searches, swaps):
        messages = orion_messages(state, study.settings.players.shown)
        # Where each value is told first: an answer follows its question, the profile stands in the task.
        if of_history:
            lines = state.profile.lines if state.profile else ()
            wanted = (x for x in lines if x.positive and x.provenance == "history")
            told = [(1, Trait(x.about, x.value)) for x in wanted if x.about != TOPIC]
        else:
            talk = [(3 + 2 * i, x.observation.text) for i, x in enumerate(state.session) if x.is_talk]
            told = [(place, trait) for place, text in talk for trait in study.catalogue.find(text)]
        for place, (about, old) in told:
            others = [v for v in values.get(about, ()) if not holds(query, v)]
            if holds(query, old) and others:
                lot = rng(study.seed, "swaps", str(of_history), record.task_id)
                swaps[of_history].append((messages, place, old, others[lot.integers(len(others))]))
                break
    rows = []
    for kind, is_swapped in SWAPPED.items():
        own = swaps[kind == HISTORY]
        actions = act([_swapped(*swap, is_swapped) for swap in own])
        queries = [singular(str(action.arguments.get("query", ""))) for action in actions]
        led = zip(queries, own, strict=True)
        follows = [holds(query, new) and not holds(query, old) for query, (*_, old, new) in led]
        rows.append((records[0].method, kind, len(follows), pd.Series(follows, dtype=float).mean()))
    return pd.DataFrame(rows, columns=["method", "swapped", "tasks", "follows"])


def _swapped(
    messages: Sequence[Message], place: int, old: str, new: str, is_swapped: Callable[[str], bool]
) -> list[Message]:
    """Return messages with another value, from one of them on, in some lines; but for the policy's turns."""
    made = list(messages)
    value = re.compile(rf"\b{re.escape(old)}\b", re.IGNORECASE)
    for i, message in enumerate(made):
        if i >= place and message["role"] != "assistant":
            lines = message["content"].split("\n")
            lines = [value.sub(lambda _: new, line) if is_swapped(line) else line for line in lines]
            made[i] = message | {"content": "\n".join(lines)}
    return made
