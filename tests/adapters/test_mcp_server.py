"""The server: an MCP client plays tasks; sessions are isolated and end; bad requests get one line."""

import asyncio
import json
import re
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
import requests
from mcp.client.client import Client

from pwagents.adapters import serve
from pwagents.adapters.mcp_server import make_server
from pwagents.adapters.sessions import VERBS, BadRequestError, Sessions


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(task_set, clock):
    return Sessions(task_set, idle_s=60, most=3, clock=clock)


async def ask(client, tool, /, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def play(client, task, greedy):
    """One task as a harness plays it, by ``step``: what it ends with, and what ``reward`` says."""
    begun, answers = await ask(client, "reset", task=task), []
    answer = {"done": False}
    while not answer["done"]:
        name, arguments = greedy(begun["observation"], answers)
        answer = await ask(client, "step", session=begun["session"], name=name, arguments=arguments)
        answers.append(answer["observation"])
    return answer["reward"], await ask(client, "reward", session=begun["session"])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_over_http_earns_what_the_agent_earns_with_the_runner(task_set, greedy, rewards, mode):
    async def run(url):
        async with Client(url, mode=mode) as client:
            listed = (await ask(client, "tasks"))["tasks"]
            return [await play(client, task, greedy) for task in listed]

    with serve.serving(Sessions(task_set)) as url:
        played = asyncio.run(run(url))
    assert {end["trajectory"]["task_id"]: reward for reward, end in played} == rewards
    assert all(end["reward"] == reward and len(end["trajectory"]["steps"]) == 2 for reward, end in played)


@asynccontextmanager
async def connected(sessions):
    async with Client(make_server(sessions)) as client:
        yield client


def test_the_functions_of_the_shop_are_tools_that_name_their_session(sessions, task_set):
    async def run():
        async with connected(sessions) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            begun = await ask(client, "reset", task="task-0")
            told = await ask(client, "search_product_by_query", session=begun["session"], query="wool coat")
            wrong = await ask(client, "search_product_by_query", session=begun["session"], words="coat")
            return tools, told, wrong, await ask(client, "tools")

    tools, told, wrong, listed = asyncio.run(run())
    assert set(tools) == {*VERBS, *task_set.functions}
    search = tools["search_product_by_query"]
    assert search.input_schema["required"] == ["session", "query"]
    assert "Search all products" in search.description
    assert told["observation"].startswith("<data>\n1. ") and not told["done"]
    assert wrong["observation"].startswith("Error: search_product_by_query: ")
    assert listed["tools"] == json.loads(json.dumps(list(task_set.tools)))


def test_sessions_know_nothing_of_each_other(sessions, task_set, greedy, rewards):
    begun = [sessions.call("reset", {"task": task}) for task in ("task-0", "task-1")]
    for told in begun:  # in turns
        name, arguments = greedy(told["observation"], [])
        sessions.call("step", {"session": told["session"], "name": name, "arguments": arguments})
    ends = [sessions.call("reward", {"session": told["session"]}) for told in begun]
    earned = {end["trajectory"]["task_id"]: end["reward"] for end in ends}
    assert earned == {task_id: rewards[task_id] for task_id in list(task_set)[:2]}
    assert [len(end["trajectory"]["steps"]) for end in ends] == [1, 1]


def test_a_silent_session_ends_and_makes_room(sessions, clock):
    ids = [sessions.call("reset", {"task": "task-0"})["session"] for _ in range(3)]
    with pytest.raises(BadRequestError, match="3 sessions are open"):
        sessions.call("reset", {"task": "task-0"})
    clock.seconds = 59
    sessions.call("step", {"session": ids[0], "name": "respond", "arguments": {"content": "Hello?"}})
    clock.seconds = 60
    assert len(sessions) == 1
    with pytest.raises(BadRequestError, match="session: unknown, or ended"):
        sessions.call("reward", {"session": ids[1]})
    ended = sessions.call("reward", {"session": ids[0]})
    assert ended["reward"] == 0 and sessions.call("reward", {"session": ids[0]}) == ended
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("buy", {}, r"found no tool 'buy'; expected one of tasks, .*, stop"),
        ("_find", {"session_id": "x"}, r"found no tool '_find'"),
        ("reset", {}, r"reset: task: Missing required argument"),
        ("reset", {"task": "t-none"}, r"reset: task: found 't-none'; expected one of the 18 of tasks"),
        ("reset", {"task": 7}, r"reset: task: Input should be a valid string"),
        ("reset", {"task": "x", "seed": 1}, r"reset: seed: Unexpected keyword argument"),
        ("step", {"session": "x"}, r"step: name: Missing required argument"),
        (
            "step",
            {"session": "x", "name": "stop", "arguments": []},
            r"step: arguments: Input should be a valid",
        ),
        ("stop", {}, r"step: session: Missing required argument"),
        ("reward", {"session": "guessed"}, r"session: unknown, or ended; begin one with reset\(task\)"),
    ],
)
def test_a_wrong_request_is_one_line(sessions, name, arguments, told):
    async def run():
        async with connected(sessions) as client:
            return await client.call_tool(name, arguments)

    result = asyncio.run(run())
    (content,) = result.content
    assert result.is_error and re.match(told, content.text) and "\n" not in content.text


def test_only_this_machine_is_served_and_a_body_that_is_no_request_harms_nobody(task_set):
    with serve.serving(Sessions(task_set)) as url:
        assert url.startswith("http://127.0.0.1:")
        foreign = {"Host": "evil.test", "Content-Type": "application/json"}
        assert requests.post(url, "{}", headers=foreign, timeout=20).status_code == 421
        for body in (b"", b"\xff{", b"[" * 10000, b'{"jsonrpc": "2.0"}'):
            headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            assert 400 <= requests.post(url, body, headers=headers, timeout=20).status_code < 500


def test_a_process_serves_a_preset_to_whoever_comes(tmp_path):
    changes = (
        "{data: {n_users: 12, n_products: 300}, shop: {rec_dates: 1, recommender: {epochs: 1, hidden: 8}}}"
    )
    command = [sys.executable, "-m", "pwagents.adapters.serve", "--port", "0", "--tasks", "5"]
    command += ["--output-dir", str(tmp_path), "-y", changes]

    async def run(url):
        async with Client(url) as client:
            listed = (await ask(client, "tasks"))["tasks"]
            begun = await ask(client, "reset", task=listed[0])
            return listed, await ask(client, "stop", session=begun["session"])

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            said = server.stdout.readline()
            (url,) = re.findall(r"5 tasks at (\S+) \(Ctrl\+C", said)
            listed, answer = asyncio.run(run(url))
        finally:
            server.terminate()
    assert len(listed) == 5
    assert answer == {"observation": "The task has ended.", "reward": 0.0, "done": True}


@pytest.mark.parametrize(
    "options, told",
    [
        (["--preset", "none"], "expected one of laptop, paper, smoke"),
        (["--source", "none"], "source"),
        (["--changes", "players"], "expected names and values"),
        (["--changes", "{players: ["], "expected YAML"),
    ],
)
def test_a_wrong_option_is_one_line(monkeypatch, capsys, options, told):
    monkeypatch.setattr(sys, "argv", ["serve", "--port", "0", *options])
    assert serve.main() == 1
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
