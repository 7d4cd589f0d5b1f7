"""How an endpoint is reached: proxy, certificates, bounds on its answers."""

import logging
import os
import ssl
import time
from contextlib import closing
from functools import cache
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

from pwagents.llm.failures import RefusedError, without_secrets
from pwagents.urls import KEY_VARIABLE, OPENAI_URL, TOKEN, is_loopback, secrets_of

# Seconds without a byte, and in all, after which an attempt has failed.
TIMEOUT_S, TOTAL_S = 120.0, 600.0
LARGEST = 32 * 2**20  # bytes of an answer; the longest reply of a model has a thousandth of it
# Variables that name certificates to trust: a file, or a folder.
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names; None for this machine and for what NO_PROXY lists."""
    parts, proxies = urlsplit(url), getproxies_environment()
    host = parts.hostname or ""
    proxies["no"] = proxies.get("no", "").replace("*.", ".")
    if is_loopback(host) or proxy_bypass_environment(parts.netloc, proxies):
        return None
    for entry in proxies["no"].split(","):  # networks, which the standard library does not read
        try:
            if ip_address(host) in ip_network(entry.strip().strip("[]"), strict=False):
                return None
        except (ValueError, TypeError):
            continue
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def open_client(url: str):
    """Return the official client of the endpoint at ``url``; its key is in the environment.

    Raises:
        RefusedError: a variable of the environment holds no key, or names no usable proxy or certificates; it
            is named.
    """
    import httpx2
    from openai import DefaultHttpxClient, OpenAI

    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and url == OPENAI_URL:
        raise RefusedError(f"{url}: no key; set the environment variable {KEY_VARIABLE}")
    if not all("!" <= letter <= "~" for letter in key):
        raise RefusedError(f"{KEY_VARIABLE} holds spaces or other characters that no key has; set it again")

    named = {name: value for name in _CERTIFICATES if (value := os.environ.get(name))}
    verify: ssl.SSLContext | bool = True
    if named and urlsplit(url).scheme == "https":
        # A file and a folder count both; REQUESTS_CA_BUNDLE may be either.
        places = {"capath" if os.path.isdir(place) else "cafile": place for place in reversed(named.values())}
        try:
            verify = ssl.create_default_context(**places)
        except (OSError, ValueError) as error:
            names = ", ".join(f"{name}={value}" for name, value in named.items())
            raise RefusedError(f"{names}: no certificates there ({error})") from None

    def read(answer: httpx2.Response) -> None:
        """Read the body, unless it grows too long or takes too much time: the client knows no such bounds."""
        end, body = time.monotonic() + TOTAL_S, bytearray()
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the server compressed its answer, although it was asked not to")
        with closing(answer.stream) as stream:
            for part in stream:
                body += part
                if len(body) > LARGEST:
                    raise httpx2.DecodingError(f"an answer of more than {LARGEST // 2**20} MB")
                if time.monotonic() > end:
                    raise httpx2.ReadTimeout("the answer does not end")
        answer.stream = httpx2.ByteStream(bytes(body))

    _hide_tokens(url)
    proxy = proxy_of(url)
    try:
        http = DefaultHttpxClient(
            timeout=TIMEOUT_S,
            headers={"Accept-Encoding": "identity"},  # a few compressed bytes may unpack to gigabytes
            follow_redirects=False,  # a redirect would hand the prompts to another host
            event_hooks={"response": [read]},
            proxy=proxy,
            trust_env=False,  # what it makes of NO_PROXY breaks on networks
            verify=verify,
        )
    except (ValueError, ImportError, httpx2.InvalidURL) as error:
        scheme, _, host = (proxy or "").partition("://")
        shown = f"{scheme}://...@{host.rpartition('@')[2]}" if "@" in host else proxy  # no password
        raise RefusedError(f"proxy {shown} of HTTPS_PROXY or ALL_PROXY: {error}") from None
    # Retries are ours: the client's ignore the failures of other threads, and errors in a 200.
    return OpenAI(api_key=key or "none", base_url=url, http_client=http, max_retries=0)


@cache  # one filter a URL, however many clients it has
def _hide_tokens(url: str) -> None:
    """Remove the tokens of a URL from what the HTTP client logs of each call."""
    if TOKEN.search(url):

        def hide(record: logging.LogRecord) -> bool:
            record.msg, record.args = without_secrets(record.getMessage(), secrets_of(url)), ()
            return True

        logging.getLogger("httpx2").addFilter(hide)
