"""The HTTP client below the official one: proxies, certificates, answers of bounded size and time.

httpx2 is the official client's own HTTP library; it is imported with it, at the first call.
"""

import os
import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2

from pwagents.llm.endpoints import proxy_of
from pwagents.llm.failures import RefusedError

LARGEST = 32 * 2**20  # bytes of an answer; the longest reply of a model has a thousandth of it
_FILES, _FOLDER = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), "SSL_CERT_DIR"  # variables that name certificates


def http_client(url: str, timeout_s: float, total_s: float):
    """An HTTP client for the official client and the endpoint at ``url``.

    Args:
        timeout_s: between two bytes. total_s: of a whole body.

    Raises:
        RefusedError: a variable of the environment names no usable proxy or certificates; it is named.
    """
    from openai import DefaultHttpxClient

    given = {name: value for name in (*_FILES, _FOLDER) if (value := os.environ.get(name))}
    verify: ssl.SSLContext | bool = True
    if given and urlsplit(url).scheme == "https":
        try:
            file = next((given[name] for name in _FILES if name in given), None)
            is_folder = file and os.path.isdir(file)  # as REQUESTS_CA_BUNDLE may be
            files = {"capath": file} if is_folder else {"cafile": file, "capath": given.get(_FOLDER)}
            verify = ssl.create_default_context(**files)
        except (OSError, ValueError) as error:
            names = ", ".join(f"{name}={value}" for name, value in given.items())
            raise RefusedError(f"{names}: no certificates there ({error})") from None

    def bound(answer: httpx2.Response) -> None:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("a compressed answer, which was not asked for")
        answer.stream = _Bounded(answer.stream, total_s)

    proxy = proxy_of(url)
    try:
        # A few compressed bytes may unpack to gigabytes. A redirect would hand the prompts to another host.
        return DefaultHttpxClient(
            timeout=timeout_s,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [bound]},
            proxy=proxy,
            trust_env=False,  # what it makes of NO_PROXY breaks on networks
            verify=verify,
        )
    except (ValueError, ImportError, httpx2.InvalidURL) as error:
        scheme, _, host = (proxy or "").partition("://")
        shown = f"{scheme}://...@{host.rpartition('@')[2]}" if "@" in host else proxy  # no password
        raise RefusedError(f"proxy {shown} of HTTPS_PROXY or ALL_PROXY: {error}") from None


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
