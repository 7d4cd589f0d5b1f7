"""The role-play that makes conversations for supervised fine-tuning (Orion, 4.3).

Two sides that share no information: the user's side knows the target and tells of it what it is asked for,
the teacher sees S_t and nothing else. They meet in the environment alone. Kept are the conversations that
succeeded and in which nobody gave anything away; the paper keeps 400.

Departure: the paper does not say what happens to tasks that fail. Here they are played again, after all
others had their turn (:func:`play_roles`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

from pwagents.errors import DataError, NotEvaluableError
from pwagents.orion.agent import orion_messages
from pwagents.orion.reward import Success, has_succeeded
from pwagents.profiles.catalogue import spaced_words
from pwagents.progress import progress
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import TASK_TYPES, Action, Benchmark, Product, Task, TaskType, Trajectory
from pwagents.seeds import rng
from pwagents.settings import plain as as_json
from pwagents.shop.environment import Agent, BeliefState
from pwagents.store import Facts, Keyed, Store, with_code
from pwagents.users.rules import leaks

# Why a trajectory is not kept, in the order in which it is looked for; empty: it is kept.
Failure = Literal[
    "", "not evaluable", "malformed", "leak by the user", "leak by the teacher", "too long", "no success"
]


class Played(Keyed):
    """One episode of the role-play.

    Args:
        key: of the settings it was played with, the same for all episodes of a role-play.
        task_id, round: which task, and in which of the rounds over the tasks.
        failure: why it is not kept; empty where it is.
        trajectory: the steps; None where the task cannot be evaluated. Its belief states are made again by
            :func:`pwagents.orion.agent.belief_states`.
    """

    task_id: str
    round: int
    failure: Failure
    trajectory: Trajectory | None = None


@dataclass(frozen=True)
class RolePlay:
    """What a role-play made.

    Attributes:
        kept: the trajectories; their types take turns.
        failures: why how many others were not kept.
    """

    kept: tuple[Played, ...]
    failures: Counter[Failure]


def play_roles(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    start: StartEpisode,
    teacher: Callable[[int], Agent],
    store: Path | str,
    *,
    success: Success,
    params: Facts,
    n: int,
    rounds: int = 3,
    seed: int = 0,
    workers: int = 1,
) -> RolePlay:
    """Return exactly ``n`` trajectories that succeeded and leak nothing.

    Task types take turns, so that each has its share although teachers succeed at some more often than at
    others; one that has no tasks left drops out. Tasks of a type come in a seeded order. Those that failed
    come again in the next round, with that round's teacher, which may draw other lots, until there are
    enough. So no task is played a second time before every task of its type was played once, and fewer
    trajectories are the first of more. A turn is played whole: up to two successes more are stored.

    Each episode is stored when it ends, kept or not, and never played again: a run may be killed at any
    moment and started again, and ends with the same trajectories, whatever ``workers``.

    Args:
        tasks: training tasks.
        start: begins an episode; the user simulator is in its environment, the update of the profile in it.
        teacher: number of the round (0 ...) -> the agent that plays it, such as
            :func:`pwagents.orion.teacher.make_teacher` of a study.
        store: the file of what was played (:mod:`pwagents.store`); other settings may share it.
        success: what is kept.
        params: plain JSON values: all that decides the result beside data, tasks, seed and ``success`` (who
            plays the two sides, how profiles are made), and under "code" the modules.
        workers: episodes at once; more than one pays where a side waits for an endpoint.

    Raises:
        DataError: the tasks run out, or a line of ``store`` is corrupt.
        InfrastructureError: a model cannot be reached. What is finished is stored: run it again.
        RuntimeError: another process is writing to ``store``.
    """
    # What decides an episode of a task and round, and their order.
    params, hashes = with_code(params)
    parts = [benchmark.content_hash, [task.task_id for task in tasks], seed, as_json(success), params]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    order = [tasks[i] for i in rng(seed, "role-play").permutation(len(tasks))]
    kept: list[Played] = []
    failures: Counter[Failure] = Counter()
    episodes = Store(store, Played)
    with (
        episodes.appending(hashes) as append,
        ThreadPoolExecutor(workers) as threads,
        progress(total=n, desc="role-play", unit="trajectory") as bar,
    ):
        played = {(episode.round, episode.task_id): episode for episode in episodes.read({key})}

        def play(number: int, agent: Agent, task: Task) -> Played:
            """Play one episode, unless it is stored, and say why it is not to be kept."""
            if stored := played.get((number, task.task_id)):
                return stored
            fields = {"key": key, "task_id": task.task_id, "round": number}
            try:
                episode = start(task)
                states = [episode.state]
                while episode.end is None:
                    episode.step(agent(episode.state))
                    states.append(episode.state)
            except NotEvaluableError:
                return append(Played(**fields, failure="not evaluable"))
            trajectory, target = episode.trajectory, benchmark.products[task.target]
            failure = failure_of(task, target, states, trajectory, success)
            return append(Played(**fields, failure=failure, trajectory=trajectory))

        def succeeded(type_: TaskType) -> Iterator[Played]:
            left = [task for task in order if task.type == type_]
            for number in range(rounds):
                # A round is over the tasks that failed in the one before; nobody plays further ahead than
                # the workers reach.
                act, failed = partial(play, number, teacher(number)), []
                for i in range(0, len(left), workers):
                    batch = left[i : i + workers]
                    for task, episode in zip(batch, threads.map(act, batch), strict=True):
                        if episode.failure:
                            failures[episode.failure] += 1
                            failed.append(task)
                        else:
                            yield episode
                left = failed

        in_turns = chain.from_iterable(zip_longest(*map(succeeded, TASK_TYPES)))
        for episode in filter(None, in_turns):  # None in place of a type that ran out
            kept.append(episode)
            bar.update()
            if len(kept) >= n:
                return RolePlay(tuple(kept), failures)
    found = f"{len(kept):,} that succeeded and leak nothing, and these failures: {dict(failures)}"
    where, expected = f"{len(order):,} tasks in {rounds} rounds", "more tasks or rounds, or ask for fewer"
    raise DataError("role-play", where, "trajectories", found, f"{n:,}; give {expected}")


def failure_of(
    task: Task, product: Product, states: Sequence[BeliefState], trajectory: Trajectory, success: Success
) -> Failure:
    """Return why a trajectory is not kept; empty where it is.

    Whatever is kept is imitated, so a malformed call or a leak counts more than the success after it.

    Args:
        product: the target of ``task``.
        states: before each step; more are passed over.
    """
    steps = trajectory.steps
    talk = [step.observation.text for step in steps if step.action.name == "respond" and not step.error]
    if any(step.error for step in steps):
        return "malformed"
    if any(leaks(text, task, product) for text in talk):
        return "leak by the user"
    pairs = zip(states, steps, strict=False)
    if any(gives_target_away(state, step.action, task, product) for state, step in pairs):
        return "leak by the teacher"
    if not steps or steps[-1].action.name != "stop":
        return "too long"
    return "" if has_succeeded(trajectory, success) else "no success"


def gives_target_away(state: BeliefState, action: Action, task: Task, product: Product) -> bool:
    """Return whether an action holds the target's id or title, or the real review, where S_t does not.

    A teacher that says what it cannot know has been told, and a policy cannot learn that from it.
    """
    said = spaced_words(" ".join([action.thought, *_texts(action.arguments)]))
    hidden = [product.parent_asin, product.title, *([task.review.text] if task.type == "review" else [])]
    told = [text for text in map(spaced_words, hidden) if text.strip() and text in said]
    if not told:
        return False

    # All texts of S_t, as plain words.
    history = (text for b in state.history for text in (b.parent_asin, b.review.text))
    session = (
        text
        for step in state.session
        for text in (step.action.thought, *_texts(step.action.arguments), step.observation.text)
    )
    begun = [message["content"] for message in orion_messages(replace(state, session=()))[1:]]
    profiles = [step.profile for step in state.session]
    known = spaced_words(" ".join([*history, *begun, *profiles, *session]))
    return any(text not in known for text in told)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in arguments of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for part in value.values() for text in _texts(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts(part))
