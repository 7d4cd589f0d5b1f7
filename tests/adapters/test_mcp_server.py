"""The server: an MCP client plays tasks; sessions are isolated and end; bad requests get one line."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time

import pytest
import requests
from mcp.client.client import Client

from pwagents import local_server
from pwagents.adapters import mcp_server
from pwagents.adapters.mcp_server import Sessions, make_app

from ..notebook.notebooks import ROOT
from .conftest import greedy


@pytest.fixture
def sessions(task_set):
    return Sessions(task_set)


@pytest.fixture
def url(sessions):
    with local_server.serving(make_app(sessions)) as port:
        yield f"http://127.0.0.1:{port}"


async def ask(client, tool, /, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def use(url, act):
    """What ``act(client)`` returns with a client of the server."""

    async def run():
        async with Client(f"{url}/mcp") as client:
            return await act(client)

    return asyncio.run(run())


def test_an_agent_earns_what_it_earns_with_the_runner_and_reads_no_reward(url, task_set, rewards):
    async def play(client):
        tools, keys = {tool.name: tool for tool in (await client.list_tools()).tools}, []
        assert set(tools) == {"reset", *task_set.functions}
        search = tools["search_product_by_query"]
        assert search.input_schema["required"] == ["session", "query"]
        assert "Search all products" in search.description
        for task in requests.get(f"{url}/tasks", timeout=20).json():
            begun, answers = await ask(client, "reset", task=task), []
            answer = {"done": False}
            while not answer["done"]:
                name, arguments = greedy(begun["observation"], answers)
                answer = await ask(client, name, session=begun["session"], **arguments)
                assert answer.keys() == {"observation", "done"}
                answers.append(answer["observation"])
            keys.append(begun["session"])
        return keys

    ends = [requests.post(f"{url}/reward/{key}", timeout=20).json() for key in use(url, play)]
    assert {end["trajectory"]["task_id"]: end["reward"] for end in ends} == rewards
    assert all(len(end["trajectory"]["steps"]) == 2 for end in ends)


def test_sessions_know_nothing_of_each_other_and_a_silent_one_ends(sessions, task_set, rewards, monkeypatch):
    begun = [sessions.reset(task) for task in ("task-0", "task-1", "task-1")]
    for each in begun[:2]:  # in turns
        sessions.step(each["session"], *greedy(each["observation"], []))
    first, second, silent = (each["session"] for each in begun)
    ends = [sessions.reward(key) for key in (first, second)]
    earned = {end["trajectory"]["task_id"]: end["reward"] for end in ends}
    assert earned == {task_id: rewards[task_id] for task_id in list(task_set)[:2]}
    begin = time.monotonic()
    for seconds in (599, 601):
        monkeypatch.setattr(time, "monotonic", lambda now=begin + seconds: now)
        assert sessions.reward(first) == ends[0]  # asked again, the same
    with pytest.raises(ValueError, match="session: not open"):
        sessions.reward(silent)
    monkeypatch.setattr(mcp_server, "MAX_SESSIONS", 3)
    many = [sessions.reset("task-0")["session"] for _ in range(4)]
    with pytest.raises(ValueError, match="session: not open"):
        sessions.reward(first)
    assert sessions.reward(many[-1])["reward"] == 0


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js, for an agent in JavaScript")
def test_the_guides_agent_in_javascript_plays_all_tasks(url, task_set):
    (code,) = re.findall(r"```js\n(.*?)```", (ROOT / "GUIDE.md").read_text("utf-8"), re.DOTALL)
    code = code.replace("http://127.0.0.1:8010", url)
    command = ["node", "--input-type=module", "-e", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == len(task_set) and max(float(reward) for _, reward in lines) > 0


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("reset", {}, r"task: found None; expected one of the 18 names that GET /tasks lists"),
        ("reset", {"task": ["x"]}, r"task: found \['x'\]; expected"),
        ("stop", {}, r"session: not open; the tool reset opens one"),
    ],
)
def test_a_wrong_request_is_one_line(url, name, arguments, told):
    result = use(url, lambda client: client.call_tool(name, arguments))
    (content,) = result.content
    assert result.is_error and re.match(told, content.text) and "\n" not in content.text
    assert requests.post(f"{url}/reward/guessed", timeout=20).status_code == 404


def test_only_this_machine_is_served_and_a_body_that_is_no_request_harms_nobody(url):
    foreign = {"Host": "evil.test", "Content-Type": "application/json"}
    assert requests.post(f"{url}/mcp", "{}", headers=foreign, timeout=20).status_code == 421
    for body in (b"", b"\xff{", b"[" * 10000, b'{"jsonrpc": "2.0"}'):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        assert 400 <= requests.post(f"{url}/mcp", body, headers=headers, timeout=20).status_code < 500


def test_a_process_serves_a_preset_to_whoever_comes(tmp_path):
    changes = "data: {n_users: 12, n_products: 300}, shop: {rec_dates: 1, recommender: {epochs: 1}}"
    options = f"{{{changes}, tasks: 5, output_dir: {tmp_path}}}"
    command = [sys.executable, "-m", "pwagents.adapters.mcp_server", "--port", "0", "-y", options]

    async def act(client):
        session = (await ask(client, "reset", task="task-4"))["session"]
        return await ask(client, "stop", session=session)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            (url,) = re.findall(r"5 tasks at (\S+)/mcp \(Ctrl\+C", server.stdout.readline())
            answer = use(url, act)
        finally:
            server.terminate()
    assert answer == {"observation": "The task has ended.", "done": True}
