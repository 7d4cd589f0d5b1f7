"""URLs of endpoints: which one is meant, what records call it, and which parts are secret."""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
# A part of a path that may be a token, being long or named so; the host stands behind two slashes.
TOKEN = re.compile(r"(?:(?<=[^/]/)|(?<=\A/))(?:[^/]{16,}|sk-[^/]+)(?=/|\Z)")


def endpoint_url(base_url: str) -> str:
    """Return the endpoint meant by ``base_url``: where it is empty that in OPENAI_BASE_URL, else OpenAI's.

    Raises:
        ValueError: as of :func:`check_url`.
    """
    return check_url(base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL)


def check_url(url: str) -> str:
    """Return ``url`` as it is, but for space around it.

    Raises:
        ValueError: it is no http or https URL, or holds a password or a query, in which keys stand; the
            message does not repeat those.
    """
    url = url.strip().rstrip("/")
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


def changes_served(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what an endpoint says of its model otherwise than before; an empty text if nothing."""
    # A time that was the answer's own is left out on one side.
    names = sorted({*before, *now} - ({"created"} - ({*before} & {*now})))
    changes = [(name, before.get(name), now.get(name)) for name in names]
    return "; ".join(f"{name} was {a!r:.60}, is {b!r:.60}" for name, a, b in changes if a != b)


def without_token(url: str) -> str:
    """Return a URL with a hash in the place of each part of a URL's path that may be a token."""
    return TOKEN.sub(lambda token: sha256(token[0].encode()).hexdigest()[:8], url)


def without_passwords(text: str) -> str:
    """Return a text without the user:password@ of any URL, and without tokens in that of an endpoint."""
    text = re.sub(r"//[^/\s\"'@\\]+@", "//[password]@", text)
    return re.sub(r"(?<=base_url)(\W+)(https?://[^\s\"'\\,})]+)", lambda m: m[1] + without_token(m[2]), text)


def secrets_of(url: str) -> tuple[str, ...]:
    """Return what no log and no record may hold: the key, and the tokens in an endpoint's URL."""
    key, tokens = os.environ.get(KEY_VARIABLE, "").strip(), TOKEN.findall(url)
    # Shorter ones ("none", "EMPTY") are stand-ins for local endpoints, and words.
    return tuple(dict.fromkeys(s for s in (key, *tokens, *map(unquote, tokens)) if len(s) >= 8))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or its address."""
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
