"""An agent behind an endpoint: the same episodes as in Python, and failures that end in one clear error."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests

from pwagents.agents import http_agent
from pwagents.agents.http_agent import HttpAgent, serve_agent, state_json
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.errors import InfrastructureError
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


@pytest.fixture(scope="module")
def benchmark():
    return make_world(WorldConfig(n_users=10, n_products=120), seed=0).benchmark


@pytest.fixture(scope="module")
def shop(benchmark):
    return Shop(benchmark, build_search_engine(benchmark.products), None, None, "compact")


@pytest.fixture
def task(benchmark):
    return next(task for task in benchmark.tasks["test"] if task.type == "search")


def agent(state):
    if len(state.session) == 2:
        return Action(name="stop")
    last = state.history[-1].parent_asin if state.history else ""
    return Action(name="search_product_by_query", arguments={"query": f"{state.instruction} {last}"})


def test_the_same_episode_as_in_python(shop, benchmark, task):
    history = benchmark.history(task, "test")
    with serve_agent(agent) as url:
        remote = run_episode(WebEnvironment(shop, "multi_turn"), task, history, HttpAgent(url))
    assert remote == run_episode(WebEnvironment(shop, "multi_turn"), task, history, agent)
    assert len(remote.steps) == 3


def test_what_is_sent_holds_no_reward_and_no_target(shop, benchmark, task):
    title = benchmark.products[task.target].title
    environment = WebEnvironment(shop, "multi_turn")
    environment.reset(task)
    environment.step(Action(name="search_product_by_query", arguments={"query": title}))
    sent = json.loads(state_json(environment.state))
    assert set(sent) == {"user_id", "instruction", "observation", "product", "history", "session"}
    assert set(sent["session"][0]) == {"action", "observation", "error"}


class Scripted:
    """A server that gives the given answers, (status, body) each, then repeats the last."""

    def __init__(self, *answers, drip=0.0):
        self.answers, self.asked, self.drip = list(answers), 0, drip
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                status, body = script.answers[min(script.asked, len(script.answers) - 1)]
                script.asked += 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if 300 <= status < 400:
                    self.send_header("Location", script.url)
                self.end_headers()
                for part in (body[i : i + 1] for i in range(len(body))) if script.drip else [body]:
                    self.wfile.write(part)
                    time.sleep(script.drip)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def state(shop, benchmark, task):
    return WebEnvironment(shop).reset(task)


def test_a_busy_server_is_asked_again(state):
    server = Scripted((503, b""), (429, b""), (200, b'{"name": "stop"}'))
    assert HttpAgent(server.url)(state) == Action(name="stop") and server.asked == 3


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(state, status):
    server = Scripted((status, b""), (200, b'{"name": "stop"}'))
    with pytest.raises(InfrastructureError, match=rf"HTTP {status} \(redirects are not followed\)"):
        HttpAgent(server.url)(state)
    assert server.asked == 1


def test_an_answer_a_byte_at_a_time_ends(state):
    server = Scripted((200, b'{"name": "stop"}' + b" " * 1000), drip=0.05)
    with pytest.raises(InfrastructureError, match="TimeoutError"):
        HttpAgent(server.url, timeout_s=0.2)(state)
    assert server.asked == 1


def test_an_answer_of_gigabytes_is_broken_off(state, monkeypatch):
    monkeypatch.setattr(http_agent, "LARGEST", 2**20)
    with pytest.raises(InfrastructureError, match="ContentDecodingError"):
        HttpAgent(Scripted((200, b" " * 3_000_000)).url)(state)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_final(state, status):
    server = Scripted((status, b""))
    with pytest.raises(InfrastructureError, match=f"agent at http.*{status}"):
        HttpAgent(server.url)(state)
    assert server.asked == 1


def test_nobody_there(state):
    with pytest.raises(InfrastructureError, match=r"agent at http://127\.0\.0\.1:9"):
        HttpAgent("http://127.0.0.1:9", tries=2)(state)


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_neither_password_nor_query_of_the_url_is_told(state, scheme):
    with pytest.raises(InfrastructureError, match=r"agent at .*http://") as caught:
        HttpAgent(f"{scheme}me:SECRET@127.0.0.1:9/act?key=SECRET", tries=1)(state)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "127.0.0.1:8000/act"])
def test_a_url_without_its_scheme_is_tried_once(state, url, monkeypatch):
    tried, post = [], requests.post
    monkeypatch.setattr(requests, "post", lambda *args, **fields: [tried.append(args), post(*args, **fields)])
    with pytest.raises(InfrastructureError, match="no http://HOST:PORT"):
        HttpAgent(url)(state)
    assert len(tried) == 1


def test_a_slow_agent_is_not_asked_twice(state):
    asked = []

    def slow(state):
        asked.append(state)
        time.sleep(0.4)
        return Action(name="stop")

    with serve_agent(slow) as url, pytest.raises(InfrastructureError, match="ReadTimeout"):
        HttpAgent(url, timeout_s=0.1)(state)
    assert len(asked) == 1


def test_what_a_served_agent_raises_reaches_the_client_at_once(state):
    asked = []

    def broken(state):
        asked.append(state)
        raise RuntimeError("no key; set OPENAI_API_KEY")

    with (
        serve_agent(broken) as url,
        pytest.raises(InfrastructureError, match="400 RuntimeError: no key; set"),
    ):
        HttpAgent(url)(state)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"hello", b"[1]", b'{"name": 7}', b'{"tool": "stop"}', b"\xff", b"[" * 100_000),
        b'{"name": "stop", "arguments": {"a": ' + b"1" * 5000 + b"}}x",
    ],
)
def test_an_answer_that_is_no_action_is_a_malformed_call(shop, task, state, body):
    action = HttpAgent(Scripted((200, body)).url)(state)
    assert action.problem_kind == "malformed_json" and "the answer is no action" in action.problem
    environment = WebEnvironment(shop)
    environment.reset(task)
    step = environment.step(action)
    assert "the answer is no action" in step.observation.text and step.error_kind == "malformed_json"
