"""How many calls are under way at an endpoint at once: as many as it bears.

Endpoints do not say how many they bear, and it changes with what others ask of them. So the limit is found as
TCP finds its window (additive increase, multiplicative decrease): slowly up while all goes well, sharply down
at the first sign of congestion. Clients that do so come to share an endpoint fairly, and leave it soon enough
for it to recover.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pwagents.llm.failures import Failure


class Limiter:
    """Slots for calls, shared by threads.

    Starts at ``most`` slots. A congested call (rate limit, time-out) halves them, calls that began before the
    last halving aside; as many good calls as there are slots add one.
    """

    def __init__(self, most: int):
        self._most, self._slots = most, float(most)
        self._under_way = self._halvings = 0
        self._freed = threading.Condition()

    @property
    def slots(self) -> int:
        """Calls that may be under way now."""
        return int(self._slots)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a slot and hold it for one call, whose outcome decides on the number of slots."""
        with self._freed:
            self._freed.wait_for(lambda: self._under_way < self.slots)
            self._under_way += 1
            halvings, is_congested, is_good = self._halvings, False, False
        try:
            yield
            is_good = True
        except Failure as failure:
            is_congested = failure.kind == "congested"
            raise
        finally:
            with self._freed:
                self._under_way -= 1
                if is_good:  # one slot more a round, however many there are
                    self._slots = min(float(self._most), self._slots + 1 / self._slots)
                # Calls under way together fail together, for one congestion: it is to be answered once.
                elif is_congested and halvings == self._halvings:
                    self._slots, self._halvings = max(1.0, self._slots / 2), self._halvings + 1
                self._freed.notify_all()
