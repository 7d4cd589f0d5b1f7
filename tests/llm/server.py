"""A local server of OpenAI's chat protocol that fails on purpose, for tests and benchmarks.

In a thread (tests): ``with ChatServer(faults=0.2) as server: ... server.url ... server.calls``.
As a process of its own (benchmarks): ``python tests/llm/server.py --latency 0.2``; the first line it prints
is its URL, and ``GET /calls`` tells what was asked how often.

A reply depends on the request alone: with tools, a call of one of them; without, an echo. Faults depend on
``seed``, the request and how often it was asked, so they are the same in every run, whatever the threads do.
"""

import argparse
import asyncio
import hashlib
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

FAULTS = ("429", "500", "503", "dropped", "malformed", "hang")


@dataclass
class Answer:
    """One HTTP answer, for tests that say themselves what comes next."""

    body: dict | str | bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0  # seconds
    drip: float = 0.0  # seconds before each byte
    drip_head: bool = False  # of the head, too


class ChatServer:
    """The server; starts when entered, in a thread of its own.

    Args:
        latency: seconds that every answer takes.
        faults: share of calls that fail, 0 to 1, one of FAULTS each.
        hang: seconds that a hanging call takes; make the client's time-out shorter.
        reply: request body -> the assistant's message; the default is :func:`default_reply`.

    Attributes:
        calls: request key (hex) -> how often it was asked. paid: the same for calls answered in full.
        bodies: every request body, in order of arrival.
        headers: header fields of the last call, names in lower case.
        script: answers to give before anything else, first in first out.
        refuse: request body -> the body of a refusal (400), or None.
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        faults: float = 0.0,
        seed: int = 0,
        hang: float = 3.0,
        reply: Callable[[dict], dict] | None = None,
        keep_bodies: bool = True,
    ):
        self.latency, self.faults, self.seed, self.hang = latency, faults, seed, hang
        self.reply, self.keep_bodies = reply or default_reply, keep_bodies
        self.calls, self.paid, self.fault_counts = Counter(), Counter(), Counter()
        self.bodies: list[dict] = []
        self.headers: dict[str, str] = {}
        self.script: deque[Answer] = deque()
        self.refuse: Callable[[dict], dict | None] = lambda body: None
        self.arrivals: list[float] = []
        self.url = ""

    def __enter__(self) -> "ChatServer":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.serve(on_ready=self._ready.set))
        self._loop.close()

    def then(self, body: dict | str | bytes, status: int = 200, delay: float = 0.0, **headers: str) -> None:
        """Answer the next call with this; header names are written with underscores."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script.append(Answer(body, status, headers, delay))

    async def serve(self, on_ready: Callable[[], None]) -> None:
        """Answer until ``_stop`` is set."""
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        on_ready()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until the client closes it."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                start, *lines = head.decode("latin-1").split("\r\n")
                headers = {
                    k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if start.startswith("GET"):
                    counts = {"calls": self.calls, "paid": self.paid, "faults": self.fault_counts}
                    await _send(writer, Answer(counts))
                else:
                    await self._chat(writer, headers, json.loads(body))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _chat(self, writer: asyncio.StreamWriter, headers: dict[str, str], body: dict) -> None:
        key = request_key(body)
        self.calls[key] += 1
        self.headers = headers
        self.arrivals.append(time.monotonic())
        if self.keep_bodies:
            self.bodies.append(body)
        if self.latency:
            await asyncio.sleep(self.latency)
        if self.script:
            return await _send(writer, self.script.popleft())
        if refusal := self.refuse(body):
            return await _send(writer, Answer(refusal, 400))
        fault = self._fault(key)
        if fault:
            self.fault_counts[fault] += 1
        answer = completion(key, body, self.reply(body))
        whole = json.dumps(answer)
        if fault == "429":
            return await _send(writer, Answer(error("rate limit reached"), 429, {"Retry-After": "0.05"}))
        if fault in ("500", "503"):
            return await _send(writer, Answer(error("the server failed"), int(fault)))
        if fault == "malformed":
            return await _send(writer, Answer(whole[: len(whole) // 2]))
        if fault == "dropped":
            writer.write(_head(200, len(whole), {}) + whole[: len(whole) // 2].encode())
            await writer.drain()
            return writer.transport.abort()
        if fault == "hang":
            await asyncio.sleep(self.hang)
        self.paid[key] += 1
        await _send(writer, Answer(whole))

    def _fault(self, key: str) -> str:
        """The fault of this call, "" for none."""
        digest = hashlib.sha256(f"{self.seed} {key} {self.calls[key]}".encode()).digest()
        if int.from_bytes(digest[:4], "big") / 2**32 >= self.faults:
            return ""
        return FAULTS[digest[4] % len(FAULTS)]


def request_key(body: dict) -> str:
    """SHA-256 (hex) of a request body."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def default_reply(body: dict) -> dict:
    """The assistant's message: a call of one of the tools if there are any, else an echo."""
    last = body["messages"][-1].get("content") or ""
    digest = hashlib.sha256(last.encode("utf-8", "replace")).hexdigest()
    tools = body.get("tools") or []
    if not tools:
        return {"role": "assistant", "content": f"reply {digest[:8]} to: {last[:40]}"}
    function = tools[int(digest[:8], 16) % len(tools)]["function"]
    fields = function.get("parameters", {}).get("properties", {})
    arguments = {name: ["B1"] if f.get("type") == "array" else digest[:8] for name, f in fields.items()}
    call = {"name": function["name"], "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{digest[:12]}", "type": "function", "function": call}],
    }


def completion(key: str, body: dict, message: dict) -> dict:
    """A whole answer in OpenAI's form; a token is four characters here."""
    prompt = len(json.dumps(body["messages"])) // 4
    written = len(json.dumps(message)) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
    }
    return {
        "id": f"chatcmpl-{key[:12]}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [choice],
        "usage": usage,
    }


def error(message: str) -> dict:
    return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}


def _head(status: int, length: int, headers: dict[str, str]) -> bytes:
    headers = {"Content-Type": "application/json", "Content-Length": str(length)} | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode("latin-1")


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if answer.delay:
        await asyncio.sleep(answer.delay)
    body = json.dumps(answer.body) if isinstance(answer.body, dict) else answer.body
    content = body if isinstance(body, bytes) else body.encode()
    head = _head(answer.status, len(content), answer.headers)
    if not answer.drip:
        writer.write(head + content)
    else:
        at_once, dripped = (b"", head + content) if answer.drip_head else (head, content)
        writer.write(at_once)
        for i in range(len(dripped)):
            writer.write(dripped[i : i + 1])
            await writer.drain()
            await asyncio.sleep(answer.drip)
    await writer.drain()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--latency", type=float, default=0.0, help="seconds")
    parser.add_argument("--faults", type=float, default=0.0, help="share of calls that fail")
    parser.add_argument("--seed", type=int, default=0)
    server = ChatServer(**vars(parser.parse_args()), keep_bodies=False)
    asyncio.run(server.serve(on_ready=lambda: print(server.url, flush=True)))


if __name__ == "__main__":
    main()
