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
    for name, value in {"ALONE": 4, "ROUNDS": 1, "BATCHES": (3,)}.items():
        monkeypatch.setattr(rollouts, name, value)
    stage = rollouts.make_stage(tmp_path, episodes=6, sft_steps=10)
    frame, alike = rollouts.measure_rollouts(stage)
    assert alike == 1.0
    assert list(frame.index) == ["generate, one at a time", "decoder, 3 at once"]
    assert (frame["episodes_per_cpu_s"] > 0).all() and frame["ratio"].iloc[0] == 1.0


def test_the_verdict_goes_by_the_slowest_batch(rollouts):
    ratios = pd.DataFrame({"ratio": [1.0, 9.0, 7.5]})
    assert rollouts.verdict(ratios).startswith("FAIL: 7.5 times")
    assert rollouts.verdict(ratios[:2]).startswith("OK: 9.0 times")
