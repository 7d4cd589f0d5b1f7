"""Preference pairs for PUMA's DPO (PersonalWAB, 5.2): the model's own parameters, scored in the shop.

For each train task the fine-tuned model samples a beam of parameters at a high temperature
(``generate_param_dpo.sh``: 10 beams, temperature 1.5). Each is carried out in the shop to learn in, and its
result accuracy goes into a dict by its text, so that equal texts count once (``test.py --evaluate_dpo``).
Every task makes a pair (``prepare_dpo_data.py``): the first of the best texts is chosen, the last of the
worst is rejected. Where all do equally well these are ties, and where all are one text it is both.

Departure: 1. a result is graded as everywhere here: a target at rank r is worth 1 - (r - 1) / 10, a review
at least 0, a malformed call 0. Result: table ``04_pairs`` of notebook 04.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pwagents.evaluation.metrics import attempts
from pwagents.puma.labels import Begun, StartEpisode
from pwagents.puma.settings import PreferenceSettings
from pwagents.schema import Action

Outcome = Literal["differs", "tie", "one text"]


class Pair(NamedTuple):
    """The chosen and the rejected text of a task, and the result accuracy (0 to 1) of both."""

    begun: Begun
    chosen: str
    rejected: str
    best: float
    worst: float

    @property
    def outcome(self) -> Outcome:
        """What the pair teaches: something, nothing sure, nothing at all."""
        if self.best > self.worst:
            return "differs"
        return "one text" if self.chosen == self.rejected else "tie"


def carry_out(begun: Begun, action: Action, start: StartEpisode) -> float:
    """Return the result accuracy of one call in an episode of its own; a malformed one is worth 0."""
    environment = start(begun.task)
    environment.step(action)
    return max(attempts(environment.trajectory), default=0.0)


def choose_pair(begun: Begun, scores: Mapping[str, float]) -> Pair:
    """Take the first of the best and the last of the worst texts.

    Args:
        scores: text -> result accuracy, in the order of the beam.
    """
    best, worst = max(scores.values()), min(scores.values())
    chosen = next(text for text, score in scores.items() if score == best)
    rejected = next(text for text, score in reversed(scores.items()) if score == worst)
    return Pair(begun, chosen, rejected, best, worst)


def part(pairs: Sequence[Pair], preferences: PreferenceSettings) -> tuple[list[Pair], list[Pair]]:
    """Part pairs into those to learn from and those to judge by, which are the same for all settings.

    The last share of the tasks is held out. Where none is, all are learned from and judged by. A pair that
    does not differ says nothing of a preference, so it judges nothing.
    """
    n = round(len(pairs) * (1 - preferences.held_out))
    learned, held_out = pairs[:n], pairs[n:] if preferences.held_out else pairs
    differing = [pair for pair in learned if pair.outcome == "differs"]
    judges = [pair for pair in held_out if pair.outcome == "differs"]
    return list(learned) if preferences.pairs == "every_task" else differing, judges
