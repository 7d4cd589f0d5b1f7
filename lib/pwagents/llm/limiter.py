"""How many calls are under way at an endpoint at once: as many as it bears; and how long one may take.

Endpoints do not say how many they bear, and it changes with what others ask of them. So the limit is found as
TCP finds its window (additive increase, multiplicative decrease): slowly up while all goes well, sharply down
at the first sign of congestion. Clients that do so come to share an endpoint fairly, and leave it soon enough
for it to recover.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pwagents.llm.failures import TransientError

T = TypeVar("T")


class Limiter:
    """Slots for calls, shared by threads.

    Starts at ``most`` slots. A congested call (rate limit, time-out) halves them, calls that began before the
    last halving aside; as many good calls as there are slots add one.
    """

    def __init__(self, most: int):
        self._most, self._slots = most, float(most)
        self._under_way = 0
        self._halvings = 0
        self._freed = threading.Condition()

    @property
    def slots(self) -> int:
        """Calls that may be under way now."""
        return int(self._slots)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a slot and hold it for one call, whose outcome decides on the number of slots."""
        with self._freed:
            while self._under_way >= self.slots:
                self._freed.wait()
            self._under_way += 1
            halvings = self._halvings
        try:
            yield
            self._grow()
        except TransientError as failure:
            if failure.congested:
                self._halve(halvings)
            raise
        finally:
            with self._freed:
                self._under_way -= 1
                self._freed.notify_all()

    def _grow(self) -> None:
        with self._freed:
            # One more after as many good calls as there are slots: one a round, however many slots there are.
            self._slots = min(float(self._most), self._slots + 1 / self._slots)

    def _halve(self, halvings_at_start: int) -> None:
        with self._freed:
            # Calls under way together fail together, for one congestion: it is to be answered once.
            if halvings_at_start == self._halvings:
                self._slots = max(1.0, self._slots / 2)
                self._halvings += 1


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return or raise what ``call`` does, if it ends in time.

    No library for HTTP limits a whole request: each byte that a server sends begins the wait anew. A call
    that is late is left to itself, in a thread that does not keep the process alive.

    Raises:
        TimeoutError: it is late.
    """
    ended: queue.SimpleQueue = queue.SimpleQueue()

    def run() -> None:
        try:
            ended.put((call(), None))
        except BaseException as error:  # whatever it is, it is for who asked
            ended.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no whole answer in {seconds:g} s") from None
    if error is not None:
        raise error
    return result
