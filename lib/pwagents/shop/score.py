"""The score of an episode: the result accuracy of its attempts, and its metrics.

PersonalWAB (section 3.3) scores the choice of function once a task; Orion (section 5.1) scores it at each
step. PersonalWAB's published scorer keeps the best attempt of an episode; what the user is left with is the
last one. Both readings of each are kept, under different names.
"""

from collections.abc import Sequence

from pwagents.schema import Record, Trajectory

GRADER_VERSION = "1"  # raise it when grade() changes, so that tables say so
GRADER = f"pwagents {GRADER_VERSION}"  # its name in tables

# Functions that are apt in every task as long as the call is valid.
_HELPFUL = ("respond", "get_product_details_by_asin")


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


class Grade(Record):
    """The metrics of one episode.

    ``function_accuracy``, ``step_accuracy``, ``result_official`` and ``result_final`` lie in 0 to 1;
    ``steps`` and ``attempts`` are counts.
    """

    function_accuracy: float
    step_accuracy: float
    result_official: float
    result_final: float
    steps: int
    attempts: int


METRICS: tuple[str, ...] = tuple(Grade.model_fields)


def grade(trajectory: Trajectory) -> Grade:
    """Grade an episode.

    - ``function_accuracy`` (PersonalWAB): 1 if some step was an attempt, that is, a well-formed call of the
      function the task asks for, else 0.
    - ``step_accuracy`` (Orion): the share of steps whose call is valid and apt. The paper does not define
      apt. Here it is an attempt, a valid ``respond``, a valid ``get_product_details_by_asin``, or a
      ``stop`` after at least one attempt. 0 for an episode without steps.
    - ``result_official``: the best result accuracy among the attempts, as the published scorer takes it;
      ``result_final``: that of the last attempt. Both 0 without an attempt.
    - ``steps``: every call of the model, ``respond`` and ``stop`` included.

    An episode that the policy's model refused to go on with, or in which the agent raised an error, is 0
    throughout, whatever came before: it was not brought to its end.
    """
    if trajectory.end in ("refused", "error"):
        zero = dict.fromkeys(("function_accuracy", "step_accuracy", "result_official", "result_final"), 0.0)
        return Grade(**zero, steps=len(trajectory.steps), attempts=0)
    results = attempts(trajectory)
    # By step, as Orion scores it: what is apt depends on what was called before.
    apt, attempted = 0, False
    for step in trajectory.steps:
        is_attempt, name = trajectory.is_attempt(step), step.action.name
        if not step.error:
            apt += is_attempt or name in _HELPFUL or (name == "stop" and attempted)
        attempted = attempted or is_attempt
    n_steps = len(trajectory.steps)
    return Grade(
        function_accuracy=float(bool(results)),
        step_accuracy=apt / n_steps if n_steps else 0.0,
        result_official=max(results, default=0.0),
        result_final=results[-1] if results else 0.0,
        steps=n_steps,
        attempts=len(results),
    )
