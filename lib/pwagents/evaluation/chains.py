"""Episodes played in threads, each stored by the thread that played it."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

R = TypeVar("R")
# Plays episodes one after another: each yield hands out a record and gets it back as it was stored.
Chain = Generator[R, R, None]


def play_chains(chains: Sequence[Chain[R]], append: Callable[[R], R], workers: int) -> Iterator[R]:
    """Play all chains and store each record once it is there; yield the records as stored.

    Each thread stores its own: an interrupt reaches only the main thread, so it cannot fall into a write. On
    any exception no new episode begins, and those under way are finished and stored.

    Args:
        append: stores a record for good, as of :meth:`pwagents.evaluation.store.Store.appending`.
    """
    stop = threading.Event()
    results: SimpleQueue[R | BaseException | None] = SimpleQueue()  # None: a chain has ended

    def play(chain: Chain[R]) -> None:
        try:
            record = next(chain, None)
            while record is not None:
                stored = append(record)
                results.put(stored)
                if stop.is_set():
                    return
                record = _send(chain, stored)
            results.put(None)
        except BaseException as error:  # the main thread raises it
            results.put(error)

    pool = ThreadPoolExecutor(workers)
    try:
        for chain in chains:
            pool.submit(play, chain)
        ended = 0
        while ended < len(chains):
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                ended += 1
            else:
                yield result
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _send(chain: Chain[R], stored: R) -> R | None:
    """Hand a stored record back to its chain: the next one, or None at the end."""
    try:
        return chain.send(stored)
    except StopIteration:
        return None
