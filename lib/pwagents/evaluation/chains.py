"""Episodes in chains, each played after the one before it: in threads, or on a cluster."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from pwagents import engine
from pwagents.evaluation.store import Keyed, as_stored

C = TypeVar("C")
R = TypeVar("R", bound=Keyed)
# Plays episodes one after another: each yield hands out a record and gets it back as it was stored.
Play = Callable[[C], Generator[R, R, None]]


def play_chains(
    play: Play[C, R], chains: Sequence[C], append: Callable[[R], R], workers: int, here: bool
) -> Iterator[R]:
    """Play all chains and store each record once it is there; yield the records as stored.

    On any exception no new episode begins, and those under way are finished and stored.

    Args:
        append: stores a record for good, as of :meth:`pwagents.evaluation.store.Store.appending`.
        workers: threads, where they are played here.
        here: whatever the engine (:mod:`pwagents.engine`).
    """
    at_work = None if here else engine.remote(partial(_play_whole, play))
    if at_work is None:
        yield from _in_threads([play(chain) for chain in chains], append, workers)
        return
    for played in at_work(chains):
        yield from [append(record) for records, _ in played for record in records]
        for _, error in played:
            if error is not None:
                raise error


def _play_whole(play: Play[C, R], chain: C) -> tuple[list[R], Exception | None]:
    """A chain's records, and what ended it before its time."""
    records: list[R] = []
    episodes = play(chain)
    try:
        record = next(episodes, None)
        while record is not None:
            records.append(as_stored(record))
            record = _send(episodes, records[-1])
    except Exception as error:  # the process that asked raises it, once the records are stored
        return records, error
    return records, None


def _in_threads(
    chains: Sequence[Generator[R, R, None]], append: Callable[[R], R], workers: int
) -> Iterator[R]:
    """Each thread stores its own: an interrupt reaches only the main thread, and cannot fall into a write."""
    stop = threading.Event()
    results: SimpleQueue[R | BaseException | None] = SimpleQueue()  # None: a chain has ended

    def play(chain: Generator[R, R, None]) -> None:
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


def _send(chain: Generator[R, R, None], stored: R) -> R | None:
    """Hand a stored record back to its chain: the next one, or None at the end."""
    try:
        return chain.send(stored)
    except StopIteration:
        return None
