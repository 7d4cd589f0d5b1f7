"""Models behind an endpoint that speaks OpenAI's chat protocol: OpenAI, DeepSeek, vLLM, Ollama and others."""

import json
import math
import os
import random
import time
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from pwagents.llm.budget import cost_usd
from pwagents.llm.chat import ChatModel, Reply, Request, ToolCall
from pwagents.llm.failures import (
    EndpointError,
    RefusedError,
    TransientError,
    one_line,
    sort_failure,
    without_key,
)
from pwagents.llm.limiter import Limiter, within
from pwagents.schema import Usage

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
FIRST_WAIT_S = 0.5  # before the second attempt, at most; doubled from one to the next
MOST_TOKENS = 10**8  # of a call; an endpoint that tells of more is not believed


class OpenAIModel(ChatModel):
    """A model at an endpoint, through the official client.

    Failures that may pass (rate limit, server error, time-out, dropped connection, an answer that is no chat
    completion, or of more than 32 MB) are tried again, with exponential back-off and jitter, not before the
    server's Retry-After.
    Unusable replies (malformed tool JSON, cut off, empty) are returned: what to do is for who asked. Tokens
    that the endpoint does not tell, or tells as no sane number, are counted as a third of the bytes, which
    is more than tokenizers make of them: a budget holds whatever an endpoint says. Redirects are refused.

    :meth:`reply` raises EndpointError when every attempt failed; RefusedError, at once, for a missing or
    wrong key, an unknown model, a bad request; ContextTooLongError or ContentFilterError, at once, when the
    episode cannot be scored with this model.

    Args:
        name: the model's name at the endpoint.
        base_url: the endpoint; "" for the one in OPENAI_BASE_URL, else OpenAI's own.
        key_variable: the environment variable that holds the key; a local endpoint needs none.
        workers: calls under way at once, at most; fewer while the endpoint is congested.
        timeout_s: seconds without a byte from the server after which an attempt has failed.
        total_s: seconds after which it has failed in any case.
        attempts: how often a call is tried in all.
        longest_wait_s: the longest back-off; a server that asks for a longer wait is given up.
    """

    def __init__(
        self,
        name: str,
        base_url: str = "",
        *,
        key_variable: str = KEY_VARIABLE,
        workers: int = 64,
        timeout_s: float = 120.0,
        total_s: float = 600.0,
        attempts: int = 8,
        longest_wait_s: float = 60.0,
    ):
        self.name, self.workers = name, workers
        self.base_url = endpoint_url(base_url)
        self.key_variable, self.timeout_s, self.total_s = key_variable, timeout_s, total_s
        self.attempts, self.longest_wait_s = attempts, longest_wait_s
        self.limiter = Limiter(workers)

    def reply(self, request: Request) -> Reply:
        for attempt in range(1, self.attempts + 1):
            try:
                with self.limiter.slot():
                    return self._attempt(request)
            except TransientError as failure:
                if attempt == self.attempts or failure.retry_after > self.longest_wait_s:
                    text = f"attempt {attempt} of {self.attempts}: {failure}"
                    raise EndpointError(self._told(text)) from None
                # Full jitter: threads that failed together must not come back together. On top of what the
                # server asks for, never before. Not seeded: it decides when a reply is made, not which.
                back_off = min(self.longest_wait_s, FIRST_WAIT_S * 2 ** (attempt - 1))
                wait = failure.retry_after + random.random() * back_off
            time.sleep(wait)  # without a slot: others may call meanwhile

    def _attempt(self, request: Request) -> Reply:
        import openai
        from httpx2 import Response

        body: dict[str, Any] = {"model": self.name, "messages": request.messages, **request.sampling}
        if request.tools:
            body["tools"] = request.tools
        if request.sample and "seed" in body:
            body["seed"] += request.sample  # else an endpoint that heeds the seed repeats itself
        # Half a surrogate pair becomes "?": it has no UTF-8 form.
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        client = self._client
        try:
            # chat.completions.create would check every message's fields, at twice the CPU time.
            answer = within(
                self.total_s, lambda: client.post("/chat/completions", cast_to=Response, content=content)
            )
        except TimeoutError as error:
            raise TransientError(str(error), congested=True) from None
        except openai.OpenAIError as error:
            failure = sort_failure(error, client.api_key)
            if not isinstance(failure, TransientError):
                failure = type(failure)(self._told(str(failure)))
            raise failure from None  # the client's error holds the server's words unabridged
        return self._read(answer.content, len(content))

    def _read(self, written: bytes, asked: int) -> Reply:
        """The reply in a chat completion; ``asked``: bytes of the request."""
        try:
            answer = json.loads(written, parse_int=_integer)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"the answer is no JSON ({one_line(str(error), self._key)})") from None
        try:
            self._check_refusal(answer)
            choice = answer["choices"][0]
            message = choice["message"]
            text = without_key(_text(message.get("content") or ""), self._key)
            calls = tuple(self._tool_call(call) for call in message.get("tool_calls") or ())
            reason = choice.get("finish_reason")
            if reason not in ("length", "content_filter"):
                reason = "tool_calls" if calls else "stop"  # servers differ in the word for a plain end
            usage = self._usage(answer.get("usage"), asked, message if text or calls else {})
            return Reply(text=text, tool_calls=calls, finish_reason=reason, usage=usage)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError):
            text = one_line(written.decode("utf-8", "replace"), self._key)
            raise TransientError(f"the answer is no chat completion: {text}") from None

    def _usage(self, told: Any, asked: int, message: dict) -> Usage:
        told = told if isinstance(told, dict) else {}
        said = len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")) if message else 0
        prompt = _tokens(told.get("prompt_tokens"), asked)
        completion = _tokens(told.get("completion_tokens"), said)
        usd = cost_usd(self.name, prompt, completion)
        return Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion, usd=usd)

    def _check_refusal(self, answer: Any) -> None:
        """Some gateways say 200 and put the refusal into the body."""
        error = answer.get("error") or {}
        if isinstance(error, dict) and error.get("code") in (400, 401, 402, 403, 404):
            raise RefusedError(self._told(one_line(json.dumps(error), self._key)))

    def _tool_call(self, call: dict) -> ToolCall:
        call_id, name = call.get("id"), call["function"].get("name") or ""
        arguments = call["function"].get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        call_id = call_id if isinstance(call_id, str) else ""
        call_id, name, arguments = (without_key(text, self._key) for text in (call_id, name, arguments))
        return ToolCall(id=call_id, name=name, arguments=arguments)

    @property
    def _key(self) -> str:
        return self._client.api_key

    def _told(self, text: str) -> str:
        """``text`` with model and host before it."""
        return f"{self.name} at {urlsplit(self.base_url).hostname}: {text}"

    @cached_property
    def _client(self):
        from openai import OpenAI

        from pwagents.llm.transfer import http_client

        key = os.environ.get(self.key_variable, "").strip()
        if not key and self.base_url == OPENAI_URL:
            raise RefusedError(self._told(f"no key; set the environment variable {self.key_variable}"))
        if not all("!" <= letter <= "~" for letter in key):
            raise RefusedError(self._told(f"{self.key_variable} holds what cannot be a key; set it anew"))
        # Retries are ours: the client's know nothing of the other threads' failures.
        client = http_client(self.timeout_s, self.total_s)
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


def _integer(digits: str) -> int | float:
    """Python refuses to read integers of thousands of digits; an answer may hold one where it matters to
    nobody."""
    return int(digits) if len(digits) < 300 else math.inf


def _tokens(told: Any, length: int) -> int:
    """As told, if that can be; else a third of the ``length``, in bytes."""
    if type(told) is int and (length > 0) <= told <= MOST_TOKENS:
        return told
    return -(-length // 3)


def _text(content: str | list) -> str:
    """The text of a message; some endpoints send it in parts."""
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
