"""Result accuracy of a ranked list (PersonalWAB, equation 1)."""

from collections.abc import Sequence


def rank_accuracy(products: Sequence[str], target: str) -> float:
    """1 - (r - 1) / 10 for a target at rank r <= 10, else 0.

    Departures from the published code: ids are compared whole, so that a target's id inside another product's
    text is no hit; and ranks count against ten, as in the equation, however few products were found (the code
    divides by their number: the second of three is worth .67 there, .9 here). Of an id that occurs twice the
    first place counts.
    """
    for rank, asin in enumerate(products[:10], start=1):
        if asin == target:
            return 1 - (rank - 1) / 10
    return 0.0
