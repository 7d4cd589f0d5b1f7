"""How an endpoint is reached: its key, proxy, certificates, time."""

import logging
import os
import ssl
import time
from contextlib import closing
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

from pwagents.llm.failures import RefusedError
from pwagents.urls import KEY_VARIABLE, OPENAI_URL, TOKEN, is_loopback

# Seconds without a byte, and in all, after which an attempt has failed.
TIMEOUT_S, TOTAL_S = 120.0, 600.0
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
    """Return the official client of the endpoint at ``url``.

    Raises:
        RefusedError: a variable of the environment holds no key, or names no usable proxy or certificates.
    """
    import httpx2
    from openai import DefaultHttpxClient, OpenAI

    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and url == OPENAI_URL:
        raise RefusedError(f"{url}: no key; set the environment variable {KEY_VARIABLE}")
    if not all("!" <= letter <= "~" for letter in key):
        raise RefusedError(f"{KEY_VARIABLE} holds spaces or other characters that no key has; set it again")

    verify: ssl.SSLContext | bool = True
    named = {name: place for name in _CERTIFICATES if (place := os.environ.get(name))}
    if named and urlsplit(url).scheme == "https":
        # A file and a folder count both; REQUESTS_CA_BUNDLE may be either.
        places = {"capath" if os.path.isdir(place) else "cafile": place for place in reversed(named.values())}
        try:
            verify = ssl.create_default_context(**places)
        except (OSError, ValueError) as error:
            names = ", ".join(f"{name}={place}" for name, place in named.items())
            raise RefusedError(f"{names}: no certificates there ({error})") from None

    def read(answer: httpx2.Response) -> None:
        """Read the body within a time: the client waits for ever where a byte comes now and then."""
        end, parts = time.monotonic() + TOTAL_S, []
        with closing(answer.stream) as stream:
            for part in stream:
                parts.append(part)
                if time.monotonic() > end:
                    raise httpx2.ReadTimeout("the answer does not end")
        answer.stream = httpx2.ByteStream(b"".join(parts))

    if TOKEN.search(url):
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs the URL of each call
    proxy = proxy_of(url)
    try:
        http = DefaultHttpxClient(
            timeout=TIMEOUT_S,
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
