"""Which tasks a step of a training plays, and which of its groups are drawn anew (dynamic sampling).

A group whose episodes all succeed, or all fail, says nothing of success: whatever they earned besides, the
policy would move by that alone. Such a group is drawn anew, another task of the same kind in its place, until
it was drawn ``draws`` times (Yu et al. 2025, DAPO, 3.2, which filters by accuracy, without a bound). Then
its slot stays empty. Kinds of tasks take turns at slots: else those that are hardly ever informative would
leave the training.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pwagents.rl.rollout import Game, Played, play_batch
from pwagents.schema import TASK_TYPES, Task
from pwagents.seeds import derive_seed, rng
from pwagents.settings import GrpoSettings, PpoSettings


class Stream:
    """The tasks of a training, in its order: kinds take turns at slots, and each has an order of its own.

    A slot's tasks follow from its number alone, so a training that was killed goes on with the same ones.

    Args:
        tasks: to train on.
        draws: tasks that a slot may need.
        seed: of the order.

    Raises:
        ValueError: there are no tasks.
    """

    def __init__(self, tasks: Sequence[Task], draws: int, seed: int):
        if not tasks:
            raise ValueError("there are no tasks to train on")
        own = {kind: [task for task in tasks if task.type == kind] for kind in TASK_TYPES}
        self._own, self.draws = {kind: tasks for kind, tasks in own.items() if tasks}, draws
        self.kinds = list(self._own)

        @lru_cache(maxsize=8)  # every pass over the tasks of a kind is shuffled anew
        def order(kind: str, epoch: int) -> np.ndarray:
            return rng(seed, "order of tasks", kind, str(epoch)).permutation(len(self._own[kind]))

        self._order = order

    def task(self, slot: int, draw: int) -> Task:
        """Return the task of a slot, numbered since the training began, at its ``draw``-th draw."""
        round_, number = divmod(slot, len(self.kinds))
        own = self._own[kind := self.kinds[number]]
        epoch, place = divmod(round_ * self.draws + draw, len(own))
        return own[self._order(kind, epoch)[place]]


@dataclass(frozen=True)
class Drawn:
    """What a step played.

    Attributes:
        first: the episodes that were drawn first: a sample of what the policy does that no filter touched.
        groups: those to learn from, in the order of their slots.
        counts: for the log: ``sampled``, episodes in all; where episodes of a task are compared, of each kind
            ``drawn_...`` and ``informative_...``, groups that were drawn, and those of them in which some
            episodes succeeded and others did not.
    """

    first: Played
    groups: list[Played]
    counts: dict[str, int]


def draw_groups(
    game: Game,
    model: Any,
    tokenizer: Any,
    stream: Stream,
    slots: Sequence[int],
    config: GrpoSettings | PpoSettings,
    seed: int,
) -> Drawn:
    """Play a group of episodes for each slot; draw those anew that teach nothing, as ``config`` says."""
    n, first, kept = config.num_generations, None, dict[int, Played]()
    kinds, counts = stream.kinds if n > 1 else (), Counter({"sampled": 0})
    counts |= {f"{what}_{kind}": 0 for kind in kinds for what in ("drawn", "informative")}
    for draw in range(stream.draws):
        if not (empty := [slot for slot in slots if slot not in kept]):
            break
        tasks = [stream.task(slot, draw) for slot in empty]
        batch = [task for task in tasks for _ in range(n)]
        played = play_batch(game, model, tokenizer, batch, derive_seed(seed, "draw", str(draw)))
        first = first or played
        counts["sampled"] += len(batch)
        for i, (slot, task) in enumerate(zip(empty, tasks, strict=True)):
            group = played[i * n : (i + 1) * n]
            if n > 1:
                paid = group.parts["task"] if stream.draws > 1 else group.parts.get("task", ())
                is_informative = len({value > 0 for value in paid}) > 1
                counts[f"drawn_{task.type}"] += 1
                counts[f"informative_{task.type}"] += is_informative
            if stream.draws == 1 or is_informative:
                kept[slot] = group
    return Drawn(first, [kept[slot] for slot in sorted(kept)], dict(counts))
