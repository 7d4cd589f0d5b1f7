"""The result accuracy of attempts at a task (PersonalWAB, equation 1)."""

from collections.abc import Sequence

from pwagents.schema import Trajectory


def rank_accuracy(products: Sequence[str], target: str) -> float:
    """Compute the result accuracy of a ranked list (PersonalWAB, equation 1).

    1 - (r - 1) / 10 for a target at rank r <= 10, else 0. Of an id that occurs twice the first place counts.

    Departures from the published code: ids are compared whole, so that a target's id inside another product's
    text is no hit; and ranks count against ten, as in the equation, however few products were found (the code
    divides by their number: the second of three scores .67 there, .9 here).
    """
    for rank, asin in enumerate(products[:10], start=1):
        if asin == target:
            return 1 - (rank - 1) / 10
    return 0.0


def attempts(trajectory: Trajectory) -> list[float]:
    """Compute the result accuracy (0 to 1) of each attempt at the task, in order.

    An attempt is a well-formed call of the function that the task asks for. A search or a recommendation
    scores by the target's rank, a review by its cosine with the real one, at least 0 (the published code does
    not clip: a review can score below none there).
    """
    if trajectory.type == "review":
        return [min(max(similarity, 0.0), 1.0) for similarity in trajectory.similarities]
    return [
        rank_accuracy(step.observation.products, trajectory.target)
        for step in trajectory.steps
        if trajectory.is_attempt(step)
    ]
