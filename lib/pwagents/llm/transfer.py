"""The HTTP client below the official one: proxies, certificates, answers of bounded size and time.

httpx2 is the official client's own HTTP library; it is imported with it, at the first call.
"""

import os
import ssl
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

import httpx2

from pwagents.llm.failures import RefusedError

LARGEST = 32 * 2**20  # bytes of an answer; the longest reply of a model has a thousandth of it


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or its address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for ``url``; None for this machine and for what NO_PROXY lists."""
    parts, proxies = urlsplit(url), getproxies_environment()
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass_environment(host, proxies):
        return None
    for entry in proxies.get("no", "").split(","):  # networks, which the standard library does not read
        try:
            if ip_address(host) in ip_network(entry.strip().strip("[]"), strict=False):
                return None
        except (ValueError, TypeError):
            continue
    return proxies.get(parts.scheme) or proxies.get("all")


def http_client(url: str, timeout_s: float, total_s: float):
    """An HTTP client for the official client and the endpoint at ``url``.

    Args:
        timeout_s: between two bytes. total_s: of a whole body.

    Raises:
        RefusedError: a variable of the environment names no usable proxy or certificates; it is named.
    """
    from openai import DefaultHttpxClient

    certificates = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    verify: ssl.SSLContext | bool = True
    if any(certificates.values()) and not is_loopback(urlsplit(url).hostname or ""):
        try:
            verify = ssl.create_default_context(
                cafile=certificates["SSL_CERT_FILE"], capath=certificates["SSL_CERT_DIR"]
            )
        except (OSError, ValueError) as error:
            names = ", ".join(f"{name}={value}" for name, value in certificates.items() if value)
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
        raise RefusedError(
            f"proxy {_without_password(proxy or '')} of HTTPS_PROXY or ALL_PROXY: {error}"
        ) from None


def _without_password(url: str) -> str:
    head, _, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if head else tail


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
