"""Models behind an endpoint that speaks OpenAI's chat protocol: OpenAI, DeepSeek, vLLM, Ollama and others.

What an endpoint does not accept is learned from its refusals: a sampling parameter is left out or renamed, a
field of its own is not given back, or the roles are made user and assistant in turns. It holds for all later
calls, and tables note it.
"""

import json
import logging
import os
import random
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property, partial
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

from pwagents import urls
from pwagents.llm.answers import give_back, read_answer, read_json
from pwagents.llm.budget import Budget
from pwagents.llm.chat import ChatModel, Reply, Request, alternating
from pwagents.llm.failures import (
    ContentFilterError,
    ContextTooLongError,
    EndpointError,
    Failure,
    RefusedError,
    RejectedError,
    one_line,
    sort_failure,
)

# Seconds without a byte, and in all, after which an attempt has failed.
TIMEOUT_S, TOTAL_S = 120.0, 600.0
# Variables that name certificates to trust: a file, or a folder.
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
FIRST_WAIT_S = 0.5  # before the second attempt, at most; doubled from one to the next
LONGEST_WAIT_S = 60.0  # a server that asks for more is given up
LIST_S = 5.0  # for a list of models
ALMOST_NOW_S = 3600  # of a time in it: clocks differ
# A prompt of so many bytes that counts as fewer tokens than a twelfth of them was not read whole.
LONG_PROMPT, BYTES_A_TOKEN = 2000, 12
# A parameter that is refused -> its other name, tried before it is left out.
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
# What passes with no time: a certificate that is not trusted, no TLS there, a proxy that lets nobody through.
_NEVER = re.compile(r"CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|\A40[37]\b")
_QUESTION = (
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Are you there?"},
)
_TRIAL = Request(messages=_QUESTION, sampling={"max_tokens": 256})  # a thought may come first


class OpenAIModel(ChatModel):
    """A model at an endpoint, through the official client.

    Failures that may pass (rate limit, server error, time-out, dropped connection, an answer that is no chat
    completion) are tried again, with exponential back-off and jitter, not before the server's Retry-After.
    Unusable replies (malformed tool JSON, cut off, empty) are returned: what to do is for who asked.

    Args:
        name: the model's name at the endpoint.
        base_url: the endpoint; "" for the one in OPENAI_BASE_URL, else OpenAI's own.
        endpoint: its name, by which stored replies differ; "" for its URL.
        workers: calls under way at once, at most; fewer while the endpoint is congested.
        attempts: how often a call is tried in all.
    """

    def __init__(
        self,
        name: str,
        base_url: str = "",
        *,
        endpoint: str = "",
        budget: Budget | None = None,
        workers: int = 64,
        attempts: int = 8,
    ):
        self.name, self.workers, self.attempts = name, workers, attempts
        self.base_url = urls.endpoint_url(base_url)
        self.endpoint = endpoint or urls.without_token(self.base_url)
        self.budget, self.limiter = budget or Budget(), Limiter(workers)
        self._names: dict[str, str | None] = {}  # a parameter -> its name here; None: it is not accepted
        self._alternates = False  # whether roles are user and assistant in turns
        self._answers = False  # whether a call was answered
        self._cut: tuple[int, int] | None = None  # bytes of a prompt, and the fewer tokens reported
        self._lock = threading.Lock()

    def try_out(self) -> None:
        """Ask one short question, twice at most, before any work; errors are those of :meth:`reply`."""
        self.reply(_TRIAL, 2)

    def reply(self, request: Request, attempts: int | None = None) -> Reply:
        """Ask until there is an answer, ``attempts`` times at most.

        Raises:
            EndpointError: every attempt failed.
            RefusedError: at once, for a missing or wrong key, an unknown model, a setting out of range, a
                request of a kind that was never answered.
            ContextTooLongError, ContentFilterError, RejectedError: this request is refused, others are not.
        """
        attempt, attempts = 1, min(attempts or self.attempts, self.attempts)
        while True:
            # What is learned meanwhile, by other threads, is not what this attempt was refused for.
            alternates = self._alternates
            sampling = {self._names.get(name, name): value for name, value in request.sampling.items()}
            sampling.pop(None, None)
            if sampling.get("seed") is not None:
                sampling["seed"] += request.sample  # else an endpoint that heeds the seed repeats itself
            messages = alternating(request.messages) if alternates else request.messages
            messages, names = give_back(messages, self.endpoint, self._names)
            body = {"model": self.name, "messages": messages, **sampling}
            sent = dict.fromkeys(names) | sampling
            if request.tools:
                body["tools"] = request.tools
            try:
                with self.limiter.slot():
                    reply = self.budget.pay(partial(self._attempt, body, sent))
                self._answers = True
                return reply
            except Failure as failure:
                if self._learn(failure, alternates):
                    continue  # written differently, it is another request
                if failure.kind not in ("later", "congested"):
                    raise self._final(failure, request) from None
                if attempt >= attempts or failure.wait > LONGEST_WAIT_S:
                    text = self._named(f"attempt {attempt} of {attempts}: {failure.text}")
                    raise EndpointError(text) from None
                # Full jitter: threads that failed together must not come back together. On top of what the
                # server asks for, never before. Not seeded: it decides when a reply is made, not which.
                wait = failure.wait + random.random() * min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (attempt - 1))
            time.sleep(wait)  # without a slot: others may call meanwhile
            attempt += 1

    def note(self) -> str:
        """Return what the endpoint did not accept of the calls so far, and whether it cut prompts."""
        sent = [f"{other} in place of {own}" if other else f"no {own}" for own, other in self._names.items()]
        if self._alternates:
            sent.append("the system message within the user's first one, and neighbours of one role as one")
        noted = [f"{self.name} was sent {each}" for each in sent]
        if self._cut:
            noted.append(
                f"{self.name} counted {self._cut[1]:,} tokens in a prompt of {self._cut[0]:,} bytes: its "
                "server seems to cut prompts, so these are results of a model that did not read them whole"
            )
        return " ".join(f"{line[0].upper()}{line[1:]}." for line in noted)

    @cached_property
    def served(self) -> dict[str, Any]:
        """Return what the endpoint's list of models (``/models``) says of this one, {} without a list.

        Where the list lacks its name, as llama.cpp's does, all ids are returned. What is made for the answer
        (times, ids of permissions) is left out.
        """
        from httpx2 import Response

        with suppress(Exception):  # it is no part of a run: many an endpoint has no such list
            client = self._client.with_options(timeout=LIST_S)
            listed = read_json(client.get("/models", cast_to=Response).content, self._secrets)["data"]
            said = next((each for each in listed if each["id"] == self.name), {})
            said = said or {"listed": [each["id"] for each in listed]}
            if abs(time.time() - said.get("created", 0)) < ALMOST_NOW_S:
                said.pop("created")
            return {name: value for name, value in said.items() if name != "permission"}
        return {}

    def _attempt(self, body: dict[str, Any], sent: dict[str, Any]) -> Reply:
        import openai
        from httpx2 import Response

        # Half a surrogate pair becomes "?": it has no UTF-8 form.
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        try:
            # chat.completions.create would check every message's fields, at twice the CPU time.
            answer = self._client.post("/chat/completions", cast_to=Response, content=content)
        except openai.APIStatusError as error:
            answer = error.response  # which holds the server's words unabridged
            words = read_json(answer.content, self._secrets)
            raise sort_failure(error.status_code, words, answer.headers, sent) from None
        except openai.APITimeoutError:
            raise Failure("congested", "no answer in time") from None
        except openai.APIConnectionError as error:
            reason = str(error.__cause__ or "") or type(error.__cause__ or error).__name__
            through = "via the proxy of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY "
            proxy = through if proxy_of(self.base_url) else ""
            port = urlsplit(self.base_url).port or (443 if self.base_url.startswith("https") else 80)
            text = f"no connection to port {port} {proxy}({reason})"
            if "CERTIFICATE" in reason:
                text += "; SSL_CERT_FILE names the file of certificates to trust"
            raise Failure("refused" if _NEVER.search(reason) else "later", text) from None
        reply = read_answer(answer.content, self._secrets, self.name, len(content), sent, self.endpoint)
        n_tokens = reply.usage.prompt_tokens
        is_long = len(content) > max(LONG_PROMPT, BYTES_A_TOKEN * n_tokens, *(self._cut or ()))
        if is_long and None not in sent.values():  # of its own earlier thoughts a server may count none
            self._cut = len(content), n_tokens
        return reply

    def _learn(self, failure: Failure, alternates: bool) -> bool:
        """Remember how to write what the endpoint does not accept; return whether there is another way."""
        with self._lock:
            for sent in failure.parameters:
                own = next((own for own, other in self._names.items() if other == sent), sent)
                if self._names.get(own, own) == sent:
                    self._names[own] = None if own in self._names else _OTHER_NAME.get(own)
            self._alternates |= failure.kind == "roles"
        return bool(failure.parameters) or (failure.kind == "roles" and not alternates)

    def _final(self, failure: Failure, request: Request) -> Exception:
        """Return the error of a failure that no further attempt mends."""
        text = self._named(failure.text)
        trial = request.model_copy(update={"messages": _QUESTION})
        if request == trial:  # a short question is refused for no task's sake
            return RefusedError(text)
        # Is it this request that is rejected, or are all of its kind? A short one shows it.
        if failure.kind in ("rejected", "roles") and self._answers:
            with suppress(RefusedError):
                self.reply(trial, 2)
                return RejectedError(text)
        kinds = {"too_long": ContextTooLongError, "filtered": ContentFilterError}
        return kinds.get(failure.kind, RefusedError)(text)

    def _named(self, text: str) -> str:
        """Return a text with model and host before it, on one line."""
        return f"{self.name} at {urlsplit(self.base_url).hostname}: {one_line(text, self._secrets)}"

    @property
    def _secrets(self) -> tuple[str, ...]:
        return urls.secrets_of(self.base_url)

    @cached_property
    def _client(self):
        return open_client(self.base_url)


class Limiter:
    """Slots for calls, shared by threads: as many as the endpoint bears.

    Endpoints do not say how many they bear, so the limit is found as TCP finds its window: a congested call
    (rate limit, time-out) halves it, and as many good calls as there are slots add one.
    """

    def __init__(self, most: int):
        self._most, self._slots = most, float(most)
        self._under_way = self._halvings = 0
        self._freed = threading.Condition()

    @property
    def slots(self) -> int:
        """Calls that may be under way now."""
        return int(self._slots)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a slot and hold it for one call, whose outcome decides on the number of slots."""
        with self._freed:
            self._freed.wait_for(lambda: self._under_way < self.slots)
            self._under_way += 1
            halvings, outcome = self._halvings, ""
        try:
            yield
            outcome = "good"
        except Failure as failure:
            outcome = failure.kind
            raise
        finally:
            with self._freed:
                self._under_way -= 1
                if outcome == "good":  # one slot more a round, however many there are
                    self._slots = min(float(self._most), self._slots + 1 / self._slots)
                # Calls under way together fail together, for one congestion: it is to be answered once.
                elif outcome == "congested" and halvings == self._halvings:
                    self._slots, self._halvings = max(1.0, self._slots / 2), self._halvings + 1
                self._freed.notify_all()


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names; None for this machine and for what NO_PROXY lists."""
    parts, proxies = urlsplit(url), getproxies_environment()
    host = parts.hostname or ""
    proxies["no"] = proxies.get("no", "").replace("*.", ".")
    if urls.is_loopback(host) or proxy_bypass_environment(parts.netloc, proxies):
        return None
    for entry in proxies["no"].split(","):  # networks, which the standard library does not read
        with suppress(ValueError, TypeError):
            if ip_address(host) in ip_network(entry.strip().strip("[]"), strict=False):
                return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def open_client(url: str):
    """Return the official client of the endpoint at ``url``.

    Raises:
        RefusedError: a variable of the environment holds no key, or names no usable proxy or certificates.
    """
    import httpx2
    from openai import DefaultHttpxClient, OpenAI

    key = os.environ.get(urls.KEY_VARIABLE, "").strip()
    if not key and url == urls.OPENAI_URL:
        raise RefusedError(f"{url}: no key; set the environment variable {urls.KEY_VARIABLE}")
    if not all("!" <= letter <= "~" for letter in key):
        wrong = "holds spaces or other characters that no key has; set it again"
        raise RefusedError(f"{urls.KEY_VARIABLE} {wrong}")

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

    if urls.TOKEN.search(url):
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
