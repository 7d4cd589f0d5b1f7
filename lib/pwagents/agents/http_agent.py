"""An agent behind an HTTP endpoint, in whatever language it is written, and a way to serve one.

The protocol is one POST a step. The body is what an agent may know, as JSON:

    {"user_id": ..., "instruction": ..., "observation": ..., "product": {...} or null,
     "history": [{"parent_asin", "timestamp", "review": {"rating", "title", "text"}}, ...],
     "session": [{"action": {...}, "observation": {...}, "error": ...}, ...]}

and the answer is an action: ``{"name": "search_product_by_query", "arguments": {"query": "..."}}``. What the
steps of the session earned is left out: no agent knows that.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from pydantic import ValidationError

from pwagents.errors import InfrastructureError
from pwagents.llm.limiter import within
from pwagents.schema import Action, Behavior, Observation, Product, Record
from pwagents.web.environment import Agent, BeliefState

LARGEST = 8 * 2**20  # bytes of an answer


class SeenStep(Record):
    """A step as an agent sees it."""

    action: Action
    observation: Observation
    error: str = ""


class SeenState(Record):
    """A belief state as it is sent."""

    user_id: str
    instruction: str
    observation: str
    product: Product | None
    history: tuple[Behavior, ...]
    session: tuple[SeenStep, ...]


class HttpAgent:
    """Asks an endpoint for each action.

    An answer that is no action becomes a malformed call, which the endpoint can learn from at the next step.

    Args:
        url: where to POST.
        timeout_s: for the first byte of an answer, and between two; an answer may take twice as long in all.
        tries: requests a step, where no connection comes about or it breaks off, or the server says 429 or
            5xx. A time-out is final: the agent may be at work on the first request, and be paid.

    Raises (from a call):
        InfrastructureError: the endpoint cannot be reached, refuses, redirects, or answers with more than
            8 MB. What may hold a password or key in the URL (user, query) is not told.
    """

    def __init__(self, url: str, timeout_s: float = 60.0, tries: int = 4):
        self.url, self.timeout_s, self.tries = url, timeout_s, tries

    def __call__(self, state: BeliefState) -> Action:
        text = self._post(state_json(state))
        try:
            return Action.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = f"the answer is no action: {'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
            return Action(thought=text[:1000], problem=problem, problem_kind="malformed_json")

    def _post(self, body: str) -> str:
        import requests
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        def may_pass(error: BaseException) -> bool:
            if isinstance(error, requests.HTTPError):
                return error.response.status_code == 429 or error.response.status_code >= 500
            return isinstance(error, requests.ConnectionError)

        def post() -> str:
            headers = {"Content-Type": "application/json"}
            options = {"timeout": self.timeout_s, "stream": True, "allow_redirects": False}
            with requests.post(
                self.url, body.encode("utf-8", "replace"), headers=headers, **options
            ) as answer:
                read = _bounded(answer)
            if not answer.ok or answer.is_redirect:
                raise requests.HTTPError(" ".join(read.split())[:200], response=answer)
            return read

        retry = Retrying(
            retry=retry_if_exception(may_pass),
            stop=stop_after_attempt(self.tries),
            wait=wait_random_exponential(multiplier=0.2, max=10),
            reraise=True,
        )
        try:
            return retry(within, 2 * self.timeout_s, post)
        except (requests.RequestException, TimeoutError) as error:
            raise InfrastructureError(f"agent at {self._place()}: {_reason(error)}") from None

    def _place(self) -> str:
        """The URL without user, password and query."""
        url = urlsplit(self.url)
        if not url.netloc:  # then anything in it may be a password
            return "what is no http://HOST:PORT/PATH"
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def _bounded(answer) -> str:
    """The body of an answer as text.

    Raises:
        requests.RequestException: it is too long, or breaks off.
    """
    import requests

    read = bytearray()
    for part in answer.iter_content(2**16):
        read += part
        if len(read) > LARGEST:
            raise requests.exceptions.ContentDecodingError(f"more than {LARGEST // 2**20} MB")
    return read.decode("utf-8", "replace")


def _reason(error) -> str:
    """What went wrong, in one line; the texts of requests' own errors hold the whole URL."""
    answer = getattr(error, "response", None)
    if answer is None:
        return type(error).__name__
    sent_on = " (redirects are not followed)" if answer.is_redirect else ""
    return f"HTTP {answer.status_code}{sent_on} {error}".strip()


def state_json(state: BeliefState) -> str:
    """What an agent may know, as JSON text."""
    session = [SeenStep(action=s.action, observation=s.observation, error=s.error) for s in state.session]
    fields = {name: getattr(state, name) for name in SeenState.model_fields if name != "session"}
    return SeenState(**fields, session=tuple(session)).model_dump_json()


@contextmanager
def serve_agent(agent: Agent, port: int = 0) -> Iterator[str]:
    """Serve a Python agent on this machine while the block runs; yields its URL. Port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, answer = 200, agent(_read_state(body)).model_dump_json().encode()
            except Exception as error:  # 400: asking again would not help
                status, answer = 400, f"{type(error).__name__}: {error}".encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments):
            """Nothing: a notebook should not show a line a step."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _read_state(body: bytes) -> BeliefState:
    seen = SeenState.model_validate(json.loads(body))
    return BeliefState(**{name: getattr(seen, name) for name in SeenState.model_fields})
