"""Tables of paired differences."""

import pandas as pd
import pytest

from pwagents.benchmark.gains import paired_gains
from pwagents.evaluation.tables import format_differences


def test_gains_are_paired_within_each_group_and_told_with_their_interval():
    rows = [
        (method, added, f"{user}-{added}", user, value)
        for added, values in (
            (2, {"a": (0.6, 0.8), "b": (0.5, 0.5)}),
            (1, {"a": (0.5, 0.5), "b": (0.5, 0.5)}),
        )
        for method, pair in values.items()
        for user, value in zip(("u", "v"), pair, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["method", "added", "task_id", "user_id", "accuracy"])
    gains = paired_gains(frame, "accuracy", "a", "b", by="added")
    assert gains["added"].tolist() == [2, 1]  # as they first appear
    assert gains["difference"].tolist() == pytest.approx([0.2, 0.0])
    shown = format_differences(gains)
    assert list(shown) == ["added", "difference", "p", "tasks", "users"]
    assert shown.loc[1, "difference"] == "0.000 ±0.000" and shown.loc[0, "difference"].startswith("0.200 ±")
