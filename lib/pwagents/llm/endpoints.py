"""Where an endpoint is: its URL, the name that records have for it, the proxy on the way there."""

import os
import re
from hashlib import sha256
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"


def endpoint_url(base_url: str) -> str:
    """The endpoint meant by ``base_url``: where it is empty that in OPENAI_BASE_URL, else OpenAI's own.

    Raises:
        ValueError: as of :func:`check_url`.
    """
    return check_url(base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL)


def check_url(url: str) -> str:
    """``url`` as it is, but for space around it.

    Raises:
        ValueError: it is no http or https URL, or holds a password or a query, in which keys stand; the
            message does not repeat those.
    """
    url = url.strip()
    if "@" in url or "?" in url:  # wherever it stands: a password may hold any letter
        raise ValueError(
            "base_url holds user:password@ or ?..., which would stand in every result; expected "
            f"http://HOST:PORT/v1 or https://..., and the key in the environment variable {KEY_VARIABLE}"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(
            "base_url is no URL (its host or port cannot be read); expected http://HOST:PORT/v1 or https://..."
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url {without_token(url)!r}; expected http://HOST:PORT/v1 or https://...")
    return url


def endpoint_name(url: str) -> str:
    """What records call an endpoint: its URL without the scheme, and without the port of this machine.

    A server of this machine may come back at another port.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port and not is_loopback(host) else ""
    return f"{host}{port}{without_token(parts.path.rstrip('/'))}"


def without_token(url: str) -> str:
    """``url`` with a hash in the place of each part of its path that may be a token, being long."""
    part = r"(?:(?<=[^/]/)|(?<=\A/))[^/]{16,}(?=/|\Z)"  # the host stands behind two slashes
    return re.sub(part, lambda token: sha256(token[0].encode()).hexdigest()[:8], url)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or its address."""
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for ``url``; None for this machine and for what NO_PROXY lists."""
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
