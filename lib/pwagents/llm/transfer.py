"""The HTTP client below the official one: no redirects, and an answer of bounded length and time.

httpx2 is the official client's own HTTP library; it is imported with it, at the first call.
"""

import time
from collections.abc import Iterator

import httpx2

LARGEST = 32 * 2**20  # bytes of an answer; the longest reply of a model has a thousandth of it


class _Bounded(httpx2.SyncByteStream):
    """The body of an answer, broken off where it grows too long or takes too much time."""

    def __init__(self, body: httpx2.SyncByteStream, seconds: float):
        self._body, self._end = body, time.monotonic() + seconds

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._body:
            size += len(part)
            if size > LARGEST:
                raise httpx2.DecodingError(f"an answer of more than {LARGEST // 2**20} MB")
            if time.monotonic() > self._end:
                raise httpx2.ReadTimeout("the answer does not end")
            yield part

    def close(self) -> None:
        self._body.close()


def http_client(timeout_s: float, total_s: float):
    """An HTTP client for the official client.

    Args:
        timeout_s: between two bytes. total_s: of a whole body.
    """
    from openai import DefaultHttpxClient

    def bound(answer: httpx2.Response) -> None:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("a compressed answer, which was not asked for")
        answer.stream = _Bounded(answer.stream, total_s)

    # A few compressed bytes may unpack to gigabytes. A redirect would hand the prompts to another host.
    return DefaultHttpxClient(
        timeout=timeout_s,
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [bound]},
    )
