"""PersonalWAB's own grader, written down from its published code: a second one beside ours, for comparison.

Tables use ours (:mod:`pwagents.evaluation.metrics`), unless they say this one's name. Where the two differ:

- A call of the right function counts, also with an empty query or review, or with a text where a list of
  ids is expected; ours wants well-formed parameters, and an empty text is none. Both give 0 where the
  function itself fails.
- A target at rank r of n results is worth 1 - (r - 1) / n; ours divides by ten, as in equation 1.
- The target is found by its id within the text of a result, maybe another product's; ours compares ids.
- A review is worth its cosine with the real one, below 0 too; ours is clipped to 0.
"""

from typing import NamedTuple

from pwagents.schema import FUNCTION_OF, Action, Task
from pwagents.web.documents import product_text
from pwagents.web.functions import RESULTS, Shop

GRADER = "PersonalWAB's code 1"  # its name in tables; the number is raised when this file's reading changes


class Score(NamedTuple):
    """Function accuracy and result accuracy of one call."""

    function: float
    result: float


def published_score(shop: Shop, task: Task, action: Action) -> Score:
    """What the published environment gives one call, and its scorer then keeps of it.

    Of a call of another function than the task's the scorer keeps nothing.
    """
    if action.name != FUNCTION_OF[task.type] or len(action.arguments) != 1:
        return Score(0.0, 0.0)
    (argument,) = action.arguments.values()
    if task.type == "review":
        is_text = isinstance(argument, str)
        return Score(1.0, shop.embedder.cosine(argument, task.review.text)) if is_text else Score(0.0, 0.0)
    if task.type == "search":
        if not isinstance(argument, str):
            return Score(0.0, 0.0)
        found = [asin for asin, _ in shop.search_engine.search(argument, RESULTS)]
    else:
        if not isinstance(argument, str | list):
            return Score(0.0, 0.0)
        found = shop.recommender.recommend(list(argument), RESULTS)  # of a text, its letters
    return Score(1.0, _rank_score([product_text(shop.benchmark.products[a]) for a in found], task.target))


def _rank_score(texts: list[str], target: str) -> float:
    ranks = [i for i, text in enumerate(texts) if target in text]
    return 1 - ranks[0] / len(texts) if ranks else 0.0
