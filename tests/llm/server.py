"""A local server of OpenAI's chat protocol that answers as a test says, for tests and benchmarks.

As a process of its own (``python tests/llm/server.py 0.2``: seconds of latency) it prints its URL first, and
answers GET with how often each request was asked.
"""

import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Answer:
    """One HTTP answer, for tests that say themselves what comes next."""

    body: dict | str | bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drip: float = 0.0  # seconds before each byte of the body


def default_reply(body: dict) -> dict:
    """The assistant's message: an echo, or a call of the first tool."""
    last = body["messages"][-1].get("content") or ""
    if not (tools := body.get("tools")):
        return {"role": "assistant", "content": f"reply to: {last[:40]}"}
    function = {"name": tools[0]["function"]["name"], "arguments": json.dumps({"query": last[:8]})}
    calls = [{"id": "call00001", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def completion(message: dict, prompt: str = "", reason: str | None = "stop") -> dict:
    """A whole answer in OpenAI's form; a token is four characters here."""
    usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(json.dumps(message)) // 4}
    choices = [{"index": 0, "message": message, "finish_reason": reason}]
    return {"id": "c", "object": "chat.completion", "created": 1, "choices": choices, "usage": usage}


class ChatServer(ThreadingHTTPServer):
    """The server; starts when entered, with a thread for each connection.

    Args:
        latency: seconds that every answer takes.
        reply: request body -> the assistant's message, or an answer that is none.

    Attributes:
        calls: request (a hash) -> how often it was asked.
        bodies: every request body, in order of arrival. headers: of the last, names in lower case.
        script: answers to give before anything else, first in first out.
        lists: what GET is answered, in the place of ``calls``.
    """

    daemon_threads, request_queue_size = True, 1024

    def __init__(self, *, latency: float = 0.0, reply: Callable[[dict], dict | Answer] = default_reply):
        super().__init__(("127.0.0.1", 0), _Connection)
        self.latency, self.reply, self.calls = latency, reply, Counter()
        self.bodies, self.headers, self.script, self.lists = [], {}, deque[Answer](), None
        self.lock, self.url = threading.Lock(), f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> "ChatServer":
        threading.Thread(target=self.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_) -> None:
        """A client that hangs up is none."""

    def then(self, body: dict | str | bytes, status: int = 200, drip: float = 0.0, **headers: str) -> None:
        """Answer the next call with this; header names are written with underscores."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script.append(Answer(body, status, fields, drip))


class _Connection(BaseHTTPRequestHandler):
    protocol_version, log_message = "HTTP/1.1", lambda *_: None
    server: ChatServer

    def do_GET(self) -> None:
        self._send(Answer(self.server.calls if self.server.lists is None else self.server.lists))

    def do_POST(self) -> None:
        server, written = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(written)
        with server.lock:
            server.calls[hashlib.sha256(written).hexdigest()] += 1
            server.headers = {name.lower(): value for name, value in self.headers.items()}
            server.bodies.append(body)
            answer = server.script.popleft() if server.script else None
        time.sleep(server.latency)
        answer = answer or server.reply(body)
        if not isinstance(answer, Answer):
            answer = Answer(completion(answer, json.dumps(body["messages"])))
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        self.close_connection = "Content-Length" in answer.headers  # which is not its length
        body = json.dumps(answer.body) if isinstance(answer.body, dict) else answer.body
        content = body if isinstance(body, bytes) else body.encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | answer.headers).items())
        head = f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode("latin-1")
        self.wfile.write(head)
        for part in [bytes([byte]) for byte in content] if answer.drip else [content]:
            time.sleep(answer.drip)
            self.wfile.write(part)


@contextmanager
def transformers_serve() -> Iterator[str]:
    """A real peer, ``transformers serve``, that loads the folder which a request names; its URL."""
    with ChatServer() as gone:
        url, address = gone.url, gone.server_address
    command = [Path(sys.executable).with_name("transformers"), "serve", "--device", "cpu", "--port"]
    server = subprocess.Popen([*command, str(address[1]), "--host", address[0]])
    try:
        with socket.socket() as probe:
            while server.poll() is None and probe.connect_ex(address):
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    with ChatServer(latency=float(sys.argv[1])) as running:
        print(running.url, flush=True)
        threading.Event().wait()
