"""Models behind an endpoint that speaks OpenAI's chat protocol: OpenAI, DeepSeek, vLLM, Ollama and others."""

import json
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
from pwagents.llm.limiter import Limiter
from pwagents.schema import Usage

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
FIRST_WAIT_S = 0.5  # before the second attempt, at most; doubled from one to the next


class OpenAIModel(ChatModel):
    """A model at an endpoint, through the official client.

    Failures that may pass (rate limit, server error, time-out, dropped connection, an answer that is no chat
    completion) are tried again, with exponential back-off and jitter, not before the server's Retry-After.
    Unusable replies (malformed tool JSON, cut off, empty) are returned: what to do is for who asked.

    :meth:`reply` raises EndpointError when every attempt failed; RefusedError, at once, for a missing or
    wrong key, an unknown model, a bad request; ContextTooLongError or ContentFilterError, at once, when the
    episode cannot be scored with this model.

    Args:
        name: the model's name at the endpoint.
        base_url: the endpoint; "" for the one in OPENAI_BASE_URL, else OpenAI's own.
        key_variable: the environment variable that holds the key; a local endpoint needs none.
        workers: calls under way at once, at most; fewer while the endpoint is congested.
        timeout_s: seconds without a byte from the server after which an attempt has failed.
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
        attempts: int = 8,
        longest_wait_s: float = 60.0,
    ):
        self.name, self.workers = name, workers
        self.base_url = endpoint_url(base_url)
        self.key_variable, self.timeout_s = key_variable, timeout_s
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

        body: dict[str, Any] = {"model": self.name, "messages": request.messages, **request.sampling}
        if request.tools:
            body["tools"] = request.tools
        if request.sample and "seed" in body:
            body["seed"] += request.sample  # else an endpoint that heeds the seed repeats itself
        # Half a surrogate pair becomes "?": it has no UTF-8 form.
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        try:
            # chat.completions.create would check every message's fields, at twice the CPU time.
            answer = self._client.post("/chat/completions", cast_to=object, content=content)
        except (openai.OpenAIError, json.JSONDecodeError, UnicodeDecodeError) as error:
            failure = sort_failure(error, self._client.api_key)
            if not isinstance(failure, TransientError):
                failure = type(failure)(self._told(str(failure)))
            raise failure from None  # the client's error holds the server's words unabridged
        return self._read(answer)

    def _read(self, answer: Any) -> Reply:
        """The reply in a chat completion."""
        try:
            self._check_refusal(answer)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            message = choice["message"]
            calls = tuple(self._tool_call(call) for call in message.get("tool_calls") or ())
            reason = choice.get("finish_reason")
            if reason not in ("length", "content_filter"):
                reason = "tool_calls" if calls else "stop"  # servers differ in the word for a plain end
            prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
            return Reply(
                text=without_key(_text(message.get("content") or ""), self._client.api_key),
                tool_calls=calls,
                finish_reason=reason,
                usage=Usage(
                    calls=1,
                    prompt_tokens=prompt,
                    completion_tokens=completion,
                    usd=cost_usd(self.name, prompt, completion),
                ),
            )
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            text = one_line(json.dumps(answer), self._client.api_key)
            raise TransientError(f"the answer is no chat completion: {text}") from None

    def _check_refusal(self, answer: Any) -> None:
        """Some gateways say 200 and put the refusal into the body."""
        error = answer.get("error") or {}
        if isinstance(error, dict) and error.get("code") in (400, 401, 402, 403, 404):
            raise RefusedError(self._told(one_line(json.dumps(error), self._client.api_key)))

    def _tool_call(self, call: dict) -> ToolCall:
        arguments = call["function"].get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        name = call["function"].get("name") or ""
        return ToolCall(
            id=call.get("id") or "", name=name, arguments=without_key(arguments, self._client.api_key)
        )

    def _told(self, text: str) -> str:
        """``text`` with model and host before it."""
        return f"{self.name} at {urlsplit(self.base_url).hostname}: {text}"

    @cached_property
    def _client(self):
        from openai import OpenAI

        key = os.environ.get(self.key_variable, "").strip()
        if not key and self.base_url == OPENAI_URL:
            raise RefusedError(self._told(f"no key; set the environment variable {self.key_variable}"))
        if not all("!" <= letter <= "~" for letter in key):
            raise RefusedError(self._told(f"{self.key_variable} holds what cannot be a key; set it anew"))
        # Retries are ours: the client's know nothing of the other threads' failures.
        return OpenAI(api_key=key or "none", base_url=self.base_url, timeout=self.timeout_s, max_retries=0)


def endpoint_url(base_url: str) -> str:
    """The endpoint meant by ``base_url``: where it is empty that in OPENAI_BASE_URL, else OpenAI's own.

    Raises:
        ValueError: as of :func:`check_url`.
    """
    return check_url(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)


def check_url(url: str) -> str:
    """``url`` as it is.

    Raises:
        ValueError: it is no http or https URL, or holds a password; the message does not repeat that one.
    """
    if "@" in url:  # wherever it stands: a password may hold any letter
        raise ValueError(
            "base_url holds user:password@, which would stand in every result; expected http://HOST:PORT/v1 "
            "or https://..., and the key in an environment variable"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url {url!r}; expected http://HOST:PORT/v1 or https://...")
    return url


def _text(content: str | list) -> str:
    """The text of a message; some endpoints send it in parts."""
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
