"""The number of calls under way follows what the endpoint bears."""

import threading
import time

import pytest

from pwagents.llm.failures import Failure
from pwagents.llm.openai_model import Limiter


def fail(limiter, kind="congested", together=lambda: None):
    with pytest.raises(Failure), limiter.slot():
        together()
        raise Failure(kind, "no")


def run(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def succeed(limiter):
    with limiter.slot():
        pass


def test_congestion_halves_and_success_adds_one_per_round():
    limiter = Limiter(16)
    fail(limiter, "later")
    assert limiter.slots == 16
    fail(limiter)
    assert limiter.slots == 8
    for _ in range(9):
        succeed(limiter)
    assert limiter.slots == 9
    for _ in range(200):
        succeed(limiter)
    assert limiter.slots == 16
    for _ in range(9):
        fail(limiter)
    assert limiter.slots == 1


def test_calls_that_fail_together_halve_once():
    limiter, barrier = Limiter(8), threading.Barrier(8)
    run(*[lambda: fail(limiter, together=barrier.wait)] * 8)
    assert limiter.slots == 4


def test_no_more_calls_than_slots():
    limiter, at_once, most = Limiter(3), [], []

    def call():
        with limiter.slot():
            at_once.append(1)
            most.append(len(at_once))
            time.sleep(0.005)
            at_once.pop()

    run(*[call] * 20)
    assert max(most) == 3
