"""The verifiers taskset against the server, from verifiers' own environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pwagents.adapters import serve
from pwagents.adapters.sessions import Sessions

PYTHON = os.environ.get("VERIFIERS_PYTHON", "")  # of an environment with verifiers==0.4.0

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="needs verifiers, whose pins exclude ours: VERIFIERS_PYTHON"
)


def answer(greedy):
    """A chat model's message that plays as the greedy agent does, by the tools of the server."""

    def call(name, arguments):
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }

    def reply(body):
        task = next(m["content"] for m in body["messages"] if m["role"] == "user").split("'")[1]
        heard = [json.loads(_text(m["content"])) for m in body["messages"] if m["role"] == "tool"]
        if not heard:
            return call("reset", {"task": task})
        if heard[-1].get("done"):
            return {"role": "assistant", "content": "Done."}
        name, arguments = greedy(heard[0]["observation"], [each["observation"] for each in heard[1:]])
        return call(name, {"session": heard[0]["session"], **arguments})

    return reply


def _text(content):
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def test_an_evaluation_ends_with_the_rewards_of_the_runner(task_set, greedy, rewards, chat_server, tmp_path):
    sessions = Sessions(task_set)
    with serve.serving(sessions) as url:
        command = [
            str(Path(PYTHON).with_name("vf-eval")),
            "verifiers_taskset",
            *("--env.taskset.task.tools.url", url),
            *("--env.agent.harness.id", "null"),
            *("--client.base-url", chat_server(reply=answer(greedy)).url),
            *("--client.api-key-var", "NO_KEY"),
            *("--env.agent.runtime.type", "subprocess"),
            *("--model", "mock"),
            "--no-push",
            "--no-rich",
            *("--output-dir", str(tmp_path)),
        ]
        adapters = str(Path(serve.__file__).parent)
        env = {**os.environ, "PYTHONPATH": adapters, "NO_KEY": "none", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (traces,) = tmp_path.rglob("traces.jsonl")
    played = [json.loads(line)["traces"] for line in traces.read_text().splitlines()]
    earned = [trace["rewards"]["result_accuracy"]["score"] for (trace,) in played]
    assert sorted(earned) == sorted(rewards.values())
