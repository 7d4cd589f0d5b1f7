"""The benchmark of rollouts compares like with like."""

import pandas as pd
import pytest


@pytest.fixture
def rollouts(project_root, monkeypatch):
    """The script ``benchmarks/rollouts.py``."""
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    import rollouts

    return rollouts


def test_one_at_a_time_and_at_once_are_the_same_episodes(rollouts, tmp_path, monkeypatch):
    for name, value in {"ALONE": 1, "ROUNDS": 1, "BATCHES": (3,)}.items():
        monkeypatch.setattr(rollouts, name, value)
    stage = rollouts.make_stage(tmp_path, episodes=6, sft_steps=10)
    frame, alike = rollouts.measure_rollouts(stage)
    assert alike == 1.0
    assert list(frame.index) == ["generate, one at a time", "decoder, 3 at once"]
    assert (frame["episodes_per_s"] > 0).all() and frame["ratio"].iloc[0] == 1.0


def test_each_batch_has_a_verdict_of_its_own(rollouts):
    ratios = pd.DataFrame({"ratio": [1.0, 7.99, 8.0]}, index=["alone", "64 at once", "128 at once"])
    slow, fast = rollouts.verdict(ratios).splitlines()
    assert slow.startswith("FAIL: 64 at once is 7.99 times")
    assert fast.startswith("OK: 128 at once is 8.00 times")
