"""The number of calls under way follows what the endpoint bears."""

import threading
import time

import pytest

from pwagents.llm.failures import TransientError
from pwagents.llm.limiter import Limiter


def fail(limiter, congested=True):
    with pytest.raises(TransientError), limiter.slot():
        raise TransientError("no", congested=congested)


def succeed(limiter):
    with limiter.slot():
        pass


def test_congestion_halves_and_success_adds_one_per_round():
    limiter = Limiter(16)
    fail(limiter)
    assert limiter.slots == 8
    for _ in range(9):
        succeed(limiter)
    assert limiter.slots == 9
    for _ in range(200):
        succeed(limiter)
    assert limiter.slots == 16


def test_other_failures_change_nothing_and_one_slot_always_stays():
    limiter = Limiter(4)
    fail(limiter, congested=False)
    assert limiter.slots == 4
    for _ in range(5):
        fail(limiter)
    assert limiter.slots == 1


def test_calls_that_fail_together_halve_once():
    limiter = Limiter(8)
    together = threading.Barrier(8)

    def call():
        with pytest.raises(TransientError), limiter.slot():
            together.wait()
            raise TransientError("no", congested=True)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limiter.slots == 4


def test_no_more_calls_than_slots():
    limiter, at_once, most = Limiter(3), [], []

    def call():
        with limiter.slot():
            at_once.append(1)
            most.append(len(at_once))
            time.sleep(0.005)
            at_once.pop()

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 3
