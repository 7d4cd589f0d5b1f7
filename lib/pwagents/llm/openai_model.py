"""Models behind an endpoint that speaks OpenAI's chat protocol: OpenAI, DeepSeek, vLLM, Ollama and others.

One call: :meth:`OpenAIModel.reply` says a request in the endpoint's way, sends it, reads the answer. What an
endpoint will not take is learned from its refusals: a sampling parameter is left out or renamed, the system
message goes to the head of the user's first one. What was learned holds for all later calls and is told.
"""

import json
import math
import os
import random
import re
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from pwagents.llm.budget import Budget, cost_usd
from pwagents.llm.chat import ChatModel, FinishReason, Reply, Request, ToolCall, fold_system
from pwagents.llm.failures import (
    ContentFilterError,
    ContextTooLongError,
    EndpointError,
    Failure,
    RefusedError,
    RejectedError,
    one_line,
    sort_failure,
    without_key,
)
from pwagents.llm.limiter import Limiter
from pwagents.llm.parts import call_id
from pwagents.schema import Usage

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
FIRST_WAIT_S = 0.5  # before the second attempt, at most; doubled from one to the next
MOST_TOKENS = 10**8  # of a call; an endpoint that tells of more is not believed
# A prompt of so many bytes that counts as fewer tokens than a twelfth of them was not read whole.
LONG_PROMPT, BYTES_A_TOKEN = 2000, 12
# Servers' words for why a reply ended; one that is not among them is a failure.
FINISH_REASONS: Mapping[Any, FinishReason] = {
    **dict.fromkeys(
        (None, "", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "stop_token"), "stop"
    ),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use", "tool_call"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_length"), "length"),
    **dict.fromkeys(("content_filter", "safety", "refusal", "recitation", "sensitive"), "content_filter"),
}
# A parameter that is refused -> its other name, tried before it is left out.
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_TRIAL = Request(
    messages=(
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Are you there?"},
    ),
    sampling={"temperature": 0.0, "max_tokens": 16},
)


class OpenAIModel(ChatModel):
    """A model at an endpoint, through the official client.

    Failures that may pass (rate limit, server error, time-out, dropped connection, an answer that is no chat
    completion) are tried again, with exponential back-off and jitter, not before the server's Retry-After.
    Unusable replies (malformed tool JSON, cut off, empty) are returned: what to do is for who asked. Tokens
    that the endpoint does not tell are counted as a third of the bytes, more than tokenizers make of them.

    :meth:`reply` raises EndpointError when every attempt failed; RefusedError, at once, for a missing or
    wrong key, an unknown model, a request of a kind that was never answered; ContextTooLongError,
    ContentFilterError or RejectedError for one request that is refused while others are answered.

    Args:
        name: the model's name at the endpoint.
        base_url: the endpoint; "" for the one in OPENAI_BASE_URL, else OpenAI's own.
        endpoint: its name, which stored replies are told apart by; "" for :func:`endpoint_name` of the URL.
        budget: what calls are paid from.
        key_variable: the environment variable that holds the key; a local endpoint needs none.
        workers: calls under way at once, at most; fewer while the endpoint is congested.
        timeout_s, total_s: seconds without a byte, and in all, after which an attempt has failed.
        attempts: how often a call is tried in all.
        longest_wait_s: the longest back-off; a server that asks for a longer wait is given up.
    """

    def __init__(
        self,
        name: str,
        base_url: str = "",
        *,
        endpoint: str = "",
        budget: Budget | None = None,
        key_variable: str = KEY_VARIABLE,
        workers: int = 64,
        timeout_s: float = 120.0,
        total_s: float = 600.0,
        attempts: int = 8,
        longest_wait_s: float = 60.0,
    ):
        self.name, self.workers = name, workers
        self.base_url = endpoint_url(base_url)
        self.endpoint = endpoint or endpoint_name(self.base_url)
        self.budget, self.key_variable = budget or Budget(), key_variable
        self.timeout_s, self.total_s = timeout_s, total_s
        self.attempts, self.longest_wait_s = attempts, longest_wait_s
        self.limiter = Limiter(workers)
        self.learned: dict[str, str] = {}  # what is said otherwise -> how
        self._answered: set[bool] = set()  # whether calls without and with tools were answered
        self._cut: tuple[int, int] | None = None  # bytes of a prompt, and the fewer tokens told of it
        self._lock = threading.Lock()

    def try_out(self) -> None:
        """Ask one short question, before any work.

        Raises:
            InfrastructureError: as of :meth:`reply`, after two attempts.
        """
        self._reply(_TRIAL, attempts=min(2, self.attempts))

    def reply(self, request: Request) -> Reply:
        return self._reply(request, self.attempts)

    def notes(self) -> list[str]:
        """What is to be told of the calls so far: what the endpoint did not take, and prompts that it cut."""
        told = [f"{self.name} was sent {how}" for how in self.learned.values()]
        if self._cut:
            told.append(
                f"{self.name} counted {self._cut[1]:,} tokens in a prompt of {self._cut[0]:,} bytes: its "
                "server seems to cut prompts, so these are results of a model that did not read them whole"
            )
        return told

    def _reply(self, request: Request, attempts: int) -> Reply:
        attempt = 1
        while True:
            try:
                with self.limiter.slot():
                    reply = self.budget.pay(lambda: self._attempt(request))
                self._answered.add(bool(request.tools))
                return reply
            except Failure as failure:
                if self._learn(failure):
                    continue  # said otherwise, it is another request
                if failure.kind not in ("later", "congested"):
                    raise self._final(failure, request) from None
                if attempt >= attempts or failure.wait > self.longest_wait_s:
                    text = self._named(f"attempt {attempt} of {attempts}: {failure.text}")
                    raise EndpointError(text) from None
                # Full jitter: threads that failed together must not come back together. On top of what the
                # server asks for, never before. Not seeded: it decides when a reply is made, not which.
                back_off = min(self.longest_wait_s, FIRST_WAIT_S * 2 ** (attempt - 1))
                wait = failure.wait + random.random() * back_off
            time.sleep(wait)  # without a slot: others may call meanwhile
            attempt += 1

    def _learn(self, failure: Failure) -> bool:
        """Remember how to say what the endpoint will not take; False where that was tried already."""
        with self._lock:
            before = len(self.learned)
            if failure.kind == "system":
                self.learned.setdefault("system", "the system message within the user's first one")
            for name in failure.parameters:
                other = _OTHER_NAME.get(name)
                if other and name not in self.learned and other not in self.learned:
                    self.learned[name] = f"{other} in place of {name}"
                elif self.learned.get(name) != f"no {name}":
                    self.learned[name] = f"no {name}"
                    self.learned |= {old: f"no {old}" for old, new in _OTHER_NAME.items() if new == name}
                    before -= 1
            return len(self.learned) > before

    def _final(self, failure: Failure, request: Request) -> Exception:
        """The error of a failure that no further attempt mends."""
        kinds = {"too_long": ContextTooLongError, "filtered": ContentFilterError}
        # Where one of its kind was answered, it is this request that is rejected, and not all of them.
        if failure.kind == "rejected" and bool(request.tools) in self._answered:
            kinds["rejected"] = RejectedError
        return kinds.get(failure.kind, RefusedError)(self._named(failure.text))

    def _attempt(self, request: Request) -> Reply:
        import openai
        from httpx2 import Response

        sampling = self._sampling(request)
        messages = fold_system(request.messages) if "system" in self.learned else request.messages
        body: dict[str, Any] = {"model": self.name, "messages": messages, **sampling}
        if request.tools:
            body["tools"] = request.tools
        # Half a surrogate pair becomes "?": it has no UTF-8 form.
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        client = self._client
        try:
            # chat.completions.create would check every message's fields, at twice the CPU time.
            answer = client.post("/chat/completions", cast_to=Response, content=content)
        except openai.APIStatusError as error:
            written = error.response.content
            raise sort_failure(
                error.status_code, _json(written), error.response.headers, sampling
            ) from None  # the client's error holds the server's words unabridged
        except openai.APITimeoutError:
            raise Failure("congested", "no answer in time") from None
        except openai.APIConnectionError as error:
            reason = error.__cause__ or error
            told = one_line(str(reason) or type(reason).__name__, client.api_key)
            raise Failure("later", f"no connection{self._through()} ({told})") from None
        return self._read(answer.content, len(content), sampling)

    def _sampling(self, request: Request) -> dict[str, Any]:
        """The sampling parameters as the endpoint takes them."""
        sampling = {}
        for name, value in request.sampling.items():
            if name == "seed" and value is not None:
                value += request.sample  # else an endpoint that heeds the seed repeats itself
            how = self.learned.get(name, "")
            if not how.startswith("no "):
                sampling[_OTHER_NAME[name] if how else name] = value
        return sampling

    def _read(self, written: bytes, asked: int, sampling: Mapping[str, Any]) -> Reply:
        """The reply in a chat completion; ``asked``: bytes of the request."""
        answer, key = _json(written), self._client.api_key
        choice: Any = None
        try:
            if not (error := answer.get("error")):
                choice = answer["choices"][0]
                error = choice.get("error")
            if error or str(choice.get("finish_reason")).lower() == "error":
                # Some gateways say 200 and put what went wrong into the body, or beside the reply.
                code = error.get("code") if isinstance(error, dict) else None
                status = int(code) if str(code).isdigit() and 400 <= int(code) < 600 else 502
                raise sort_failure(status, error or choice, {}, sampling)
            message = choice["message"]
            reason = choice.get("finish_reason")
            reason = FINISH_REASONS[reason.lower() if isinstance(reason, str) else reason]
            text = without_key(_text(message.get("content")), key)
            thought = without_key(_text(message.get("reasoning_content") or message.get("reasoning")), key)
            calls = tuple(self._tool_call(call, i) for i, call in enumerate(message.get("tool_calls") or ()))
            if reason == "tool_calls" and not calls and not text:
                raise ValueError("a call is told, and none is there")
            if reason in ("stop", "tool_calls"):  # servers differ in the word for a plain end
                reason = "tool_calls" if calls else "stop"
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError):
            told = one_line(written.decode("utf-8", "replace"), key)
            raise Failure("later", f"the answer is no chat completion: {told}") from None
        usage = self._usage(answer.get("usage"), asked, message if text or calls else {})
        reply = Reply(text=text, thought=thought, tool_calls=calls, finish_reason=reason, usage=usage)
        parted = usage.model_copy(update={"parted": int(bool(reply.written))})
        return reply.model_copy(update={"usage": parted})

    def _usage(self, told: Any, asked: int, message: dict) -> Usage:
        told = told if isinstance(told, dict) else {}
        said = len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")) if message else 0
        prompt = _tokens(told.get("prompt_tokens"), asked)
        completion = _tokens(told.get("completion_tokens"), said)
        if asked > max(LONG_PROMPT, BYTES_A_TOKEN * prompt) and asked > (self._cut or (0, 0))[0]:
            self._cut = asked, prompt
        usd = cost_usd(self.name, prompt, completion)
        return Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion, usd=usd)

    def _tool_call(self, call: dict, number: int) -> ToolCall:
        name = call["function"].get("name") or ""
        arguments = call["function"].get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        told = call.get("id") if isinstance(call.get("id"), str) else ""
        parts = {"id": told or call_id(name + arguments, number), "name": name, "arguments": arguments}
        key = self._client.api_key
        return ToolCall(**{field: without_key(text, key) for field, text in parts.items()})

    def _named(self, text: str) -> str:
        """``text`` with model and host before it, on one line."""
        return f"{self.name} at {urlsplit(self.base_url).hostname}: {one_line(text, self._client.api_key)}"

    def _through(self) -> str:
        from pwagents.llm.transfer import proxy_of

        return " through the proxy of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY" if proxy_of(self.base_url) else ""

    @cached_property
    def _client(self):
        from openai import OpenAI

        from pwagents.llm.transfer import http_client

        host = f"{self.name} at {urlsplit(self.base_url).hostname}"
        key = os.environ.get(self.key_variable, "").strip()
        if not key and self.base_url == OPENAI_URL:
            raise RefusedError(f"{host}: no key; set the environment variable {self.key_variable}")
        if not all("!" <= letter <= "~" for letter in key):
            raise RefusedError(f"{host}: {self.key_variable} holds what cannot be a key; set it anew")
        # Retries are ours: the client's know nothing of the other threads' failures.
        client = http_client(self.base_url, self.timeout_s, self.total_s)
        return OpenAI(api_key=key or "none", base_url=self.base_url, http_client=client, max_retries=0)


def endpoint_url(base_url: str) -> str:
    """The endpoint meant by ``base_url``: where it is empty that in OPENAI_BASE_URL, else OpenAI's own.

    Raises:
        ValueError: as of :func:`check_url`.
    """
    return check_url(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)


def check_url(url: str) -> str:
    """``url`` as it is.

    Raises:
        ValueError: it is no http or https URL, or holds a password or a query, in which keys stand; the
            message does not repeat those.
    """
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
        raise ValueError(f"base_url {url!r}; expected http://HOST:PORT/v1 or https://...")
    return url


def endpoint_name(url: str) -> str:
    """What records call an endpoint: its URL without the scheme, and without the port of this machine.

    A server of this machine may come back at another port. What may be a token in the path is told by a hash.
    """
    from pwagents.llm.transfer import is_loopback

    parts = urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port and not is_loopback(host) else ""
    path = re.sub(
        r"[\w.~%-]{16,}", lambda token: sha256(token[0].encode()).hexdigest()[:8], parts.path.rstrip("/")
    )
    return f"{host}{port}{path}"


def _json(written: bytes) -> Any:
    """An answer's JSON, or its text. Half a letter, as of a reply that was cut, becomes U+FFFD."""
    text = written.decode(json.detect_encoding(written), "replace")
    try:
        # A raw line end within a text is no JSON, yet some servers let it through.
        return json.loads(text, parse_int=_integer, strict=False)
    except (ValueError, RecursionError):
        return text


def _integer(digits: str) -> int | float:
    """Python refuses to read integers of thousands of digits, which may stand where they matter to nobody."""
    return int(digits) if len(digits) < 300 else math.inf


def _tokens(told: Any, length: int) -> int:
    """As told, if that can be; else a third of the ``length``, in bytes."""
    if type(told) is int and (length > 0) <= told <= MOST_TOKENS:
        return told
    return -(-length // 3)


def _text(content: Any) -> str:
    """The text of a message; some endpoints send it in parts, of which those of other types are no text."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type", "text") == "text")
    return content or ""
