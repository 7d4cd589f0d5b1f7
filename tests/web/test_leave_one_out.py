"""Ranks of held-out products, and the metrics made of them, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.web.leave_one_out import hit_rate, leave_one_out_ranks, ndcg, target_ranks
from pwagents.web.settings import SasRecSettings

TINY = SasRecSettings(hidden=4, blocks=2, heads=2, max_length=5, dropout=0.5, epochs=2, batch_size=4)


def test_hit_rate_and_ndcg_by_hand():
    ranks = np.array([1, 3, 11, np.inf])
    assert hit_rate(ranks, 10) == 0.5 and hit_rate(ranks, 1) == 0.25 and hit_rate(ranks, 20) == 0.75
    assert ndcg(ranks, 10) == pytest.approx((1 + 1 / 2) / 4)  # log2(3 + 1) = 2
    assert ndcg(ranks, 11) == pytest.approx((1 + 1 / 2 + 1 / math.log2(12)) / 4)


def test_ranks_of_the_floors_by_hand():
    sequences = [["a", "b", "b", "a", "b"], ["b", "c", "a", "c"], ["a", "new"], ["alone"]]
    ranks, published = leave_one_out_ranks(sequences, TINY, 0)
    # left for training: a b b a | b c a | a; held out: b, c, new. Counts: a 4, b 3, c 1, alone 0, new 0.
    assert ranks["popularity"].tolist() == [2, 3, 5]
    assert ranks["repeat_last"].tolist() == [2, 2, np.inf]
    assert ranks["ceiling"].tolist() == [1, 1, np.inf]
    assert len(ranks["sasrec"]) == 3 and ranks["sasrec"].min() >= 1 and ranks["sasrec"].max() <= 5
    # Without what a sequence holds: a b b a leaves its target b, b c a its target c; the third leaves out a.
    assert published["popularity"].tolist() == [1, 1, 4]
    assert published["repeat_last"].tolist() == [1, 1, np.inf]
    assert published["ceiling"].tolist() == ranks["ceiling"].tolist()
    assert (published["sasrec"] <= ranks["sasrec"]).all()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_ranks_agree_with_a_full_sort(scores):
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    targets = np.arange(1, len(scores) + 1)
    ranks = target_ranks(np.tile(np.array(scores, dtype=np.float32), (len(scores), 1)), targets)
    assert [order[int(rank) - 1] for rank in ranks] == [t - 1 for t in targets]
