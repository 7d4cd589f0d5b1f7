"""The verifiers taskset against the server, from verifiers' own environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pwagents import local_server
from pwagents.adapters import mcp_server

from .conftest import greedy

PYTHON = os.environ.get("VERIFIERS_PYTHON", "")  # of an environment with verifiers==0.4.0

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="needs verifiers, whose pins exclude ours: VERIFIERS_PYTHON"
)


def answer(begin_twice):
    """A chat model's message that plays as the greedy agent does, by the tools of the server."""

    def call(name, arguments):
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": "c", "type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def text(content):
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)

    def reply(body):
        task = next(m["content"] for m in body["messages"] if m["role"] == "user").split("'")[1]
        heard = [json.loads(text(m["content"])) for m in body["messages"] if m["role"] == "tool"]
        if len(heard) < 1 + begin_twice:
            return call("reset", {"task": task})
        if heard[-1].get("done"):
            return {"role": "assistant", "content": "Done."}
        answers = [each["observation"] for each in heard[1 + begin_twice :]]
        name, arguments = greedy(heard[0]["observation"], answers)
        return call(name, {"session": heard[0]["session"], **arguments})

    return reply


@pytest.mark.parametrize("begin_twice", [False, True])
def test_an_evaluation_ends_with_the_rewards_of_the_runner_for_one_session_a_task(
    task_set, rewards, chat_server, tmp_path, begin_twice
):
    with local_server.serving(mcp_server.make_app(mcp_server.Sessions(task_set))) as port:
        command = [
            str(Path(PYTHON).with_name("vf-eval")),
            "verifiers_taskset",
            *("--env.taskset.task.tools.url", f"http://127.0.0.1:{port}/mcp"),
            *("--env.agent.harness.id", "null"),
            *("--client.base-url", chat_server(reply=answer(begin_twice)).url),
            *("--client.api-key-var", "NO_KEY"),
            *("--env.agent.runtime.type", "subprocess"),
            *("--model", "mock"),
            "--no-push",
            "--no-rich",
            *("--output-dir", str(tmp_path)),
        ]
        adapters = str(Path(mcp_server.__file__).parent)
        env = {**os.environ, "PYTHONPATH": adapters, "NO_KEY": "none", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (traces,) = tmp_path.rglob("traces.jsonl")
    played = [json.loads(line)["traces"] for line in traces.read_text().splitlines()]
    earned = [trace["rewards"]["result_accuracy"]["score"] for (trace,) in played]
    assert sorted(earned) == ([0.0] * len(rewards) if begin_twice else sorted(rewards.values()))
