"""A local server of OpenAI's chat protocol that fails on purpose, for tests and benchmarks.

In a thread (tests): ``with ChatServer(faults=0.2) as server: ... server.url ... server.calls``.
As a process of its own (benchmarks): ``python tests/llm/server.py --latency 0.2``; the first line it prints
is its URL, and ``GET /calls`` tells what was asked how often.

A reply depends on the request alone: with tools, a call of one of them; without, an echo. Faults depend on
``seed``, the request and how often it was asked, so they are the same in every run, whatever the threads do.
"""

import argparse
import hashlib
import json
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


class ChatServer(ThreadingHTTPServer):
    """The server; starts when entered, with a thread for each connection.

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

    daemon_threads, request_queue_size = True, 1024

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
        super().__init__(("127.0.0.1", 0), _Connection)
        self.latency, self.faults, self.seed, self.hang = latency, faults, seed, hang
        self.reply, self.keep_bodies = reply or default_reply, keep_bodies
        self.calls, self.paid, self.fault_counts = Counter(), Counter(), Counter()
        self.bodies: list[dict] = []
        self.headers: dict[str, str] = {}
        self.script: deque[Answer] = deque()
        self.refuse: Callable[[dict], dict | None] = lambda body: None
        self.arrivals: list[float] = []
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> "ChatServer":
        threading.Thread(target=self.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_) -> None:
        """A client that hangs up is none."""

    def then(self, body: dict | str | bytes, status: int = 200, delay: float = 0.0, **headers: str) -> None:
        """Answer the next call with this; header names are written with underscores."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script.append(Answer(body, status, headers, delay))

    def fault(self, key: str) -> str:
        """The fault of this call, "" for none."""
        digest = hashlib.sha256(f"{self.seed} {key} {self.calls[key]}".encode()).digest()
        if int.from_bytes(digest[:4], "big") / 2**32 >= self.faults:
            return ""
        return FAULTS[digest[4] % len(FAULTS)]


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def log_message(self, *_) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._send(Answer({"calls": self.server.calls, "paid": self.server.paid}))

    def do_POST(self) -> None:
        body, server = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.server
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        with server.lock:
            server.calls[key] += 1
            server.headers = {name.lower(): value for name, value in self.headers.items()}
            server.arrivals.append(time.monotonic())
            if server.keep_bodies:
                server.bodies.append(body)
            scripted = server.script.popleft() if server.script else None
            fault = server.fault(key)
        time.sleep(server.latency)
        if scripted:
            return self._send(scripted)
        if refusal := server.refuse(body):
            return self._send(Answer(refusal, 400))
        whole = json.dumps(completion(key, body, server.reply(body)))
        half = whole[: len(whole) // 2]
        with server.lock:
            server.fault_counts[fault] += bool(fault)
            server.paid[key] += fault in ("", "hang")
        if fault.isdigit():
            return self._send(Answer({"error": {"message": "later"}}, int(fault), {"Retry-After": "0.05"}))
        if fault == "dropped":
            self._send(Answer(half, headers={"Content-Length": str(len(whole))}))
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        time.sleep(server.hang if fault == "hang" else 0)
        self._send(Answer(half if fault == "malformed" else whole))

    def _send(self, answer: Answer) -> None:
        time.sleep(answer.delay)
        body = json.dumps(answer.body) if isinstance(answer.body, dict) else answer.body
        content = body if isinstance(body, bytes) else body.encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | answer.headers).items())
        head = f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode("latin-1")
        whole = head + content
        at_once = len(whole) if not answer.drip else 0 if answer.drip_head else len(head)
        self.wfile.write(whole[:at_once])
        for byte in whole[at_once:]:
            self.wfile.write(bytes([byte]))
            time.sleep(answer.drip)


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
    calls = [{"id": f"call_{digest[:12]}", "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def completion(key: str, body: dict, message: dict) -> dict:
    """A whole answer in OpenAI's form; a token is four characters here."""
    prompt = len(json.dumps(body["messages"])) // 4
    written = len(json.dumps(message)) // 4
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{key[:12]}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written
        },
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--latency", type=float, default=0.0, help="seconds")
    with ChatServer(**vars(parser.parse_args()), keep_bodies=False) as running:
        print(running.url, flush=True)
        threading.Event().wait()
