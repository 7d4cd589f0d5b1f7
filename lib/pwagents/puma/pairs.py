"""Preference pairs for PUMA's DPO (PersonalWAB, 5.2): the model's own parameters, scored in the shop.

For each train task the fine-tuned model samples a beam of parameters at a high temperature
(``generate_param_dpo.sh``: 10 beams, temperature 1.5). Each is carried out in the shop, and its result
accuracy goes into a dict by its text, so that equal texts count once (``test.py --evaluate_dpo``). The best
and the worst make a pair (``prepare_dpo_data.py``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pwagents.embedding import Embedder
from pwagents.evaluation.metrics import attempts
from pwagents.progress import progress
from pwagents.puma.agent import read_parameter
from pwagents.puma.labels import Begun, StartEpisode
from pwagents.puma.memory import REVIEW, Recall
from pwagents.puma.settings import Method
from pwagents.schema import Protocol

Scores = dict[str, float]  # text of a candidate -> its result accuracy, in the order of the beam


class Pair(NamedTuple):
    """Two texts for one task, and the scores of both."""

    begun: Begun
    chosen: str
    rejected: str
    best: float
    worst: float

    @property
    def outcome(self) -> Literal["differs", "tie", "one text"]:
        """What the pair teaches: something, nothing sure, nothing at all."""
        if self.best > self.worst:
            return "differs"
        return "one text" if self.chosen == self.rejected else "tie"


def score_texts(
    tasks: Sequence[Begun],
    recalls: Sequence[Recall],
    texts: Sequence[Sequence[str]],
    method: Method,
    protocol: Protocol,
    start: StartEpisode,
    embedder: Embedder,
) -> list[Scores]:
    """Carry out all texts, each in an episode of its own; what is malformed is worth 0.

    Args:
        start: begins an episode in the shop to learn in.
        embedder: the shop's; sampled reviews are embedded in one go.
    """
    reviews = {
        text for begun, many in zip(tasks, texts, strict=True) if begun.function == REVIEW for text in many
    }
    embedder.encode(sorted(reviews), show_progress=True)
    scored = []
    rows = zip(tasks, recalls, texts, strict=True)
    for begun, recall, many in progress(rows, total=len(tasks), desc="score parameters", unit="task"):
        scores = {}
        for text in dict.fromkeys(many):
            environment = start(begun.task)
            environment.step(read_parameter(begun.function, text, recall, method, protocol))
            scores[text] = max(attempts(environment.trajectory), default=0.0)
        scored.append(scores)
    return scored


def choose_pair(begun: Begun, scores: Mapping[str, float]) -> Pair:
    """Take the first of the best and the last of the worst, as published: every task makes a pair.

    Of equally good texts the first is chosen and the last rejected; where all are one text, it is both.
    """
    best, worst = max(scores.values()), min(scores.values())
    chosen = next(text for text, score in scores.items() if score == best)
    rejected = next(text for text, score in reversed(scores.items()) if score == worst)
    return Pair(begun, chosen, rejected, best, worst)


def count_pairs(pairs: Sequence[Pair]) -> Counter:
    """Count pairs by ``(type, outcome)``."""
    return Counter((pair.begun.task.type, pair.outcome) for pair in pairs)
