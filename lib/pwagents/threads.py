"""Threads: torch's, where the last bit of a number matters, and one for what must end in time."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch compute on one core: sums over several depend on how many there are."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, if it ends in time.

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
