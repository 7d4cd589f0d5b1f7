"""Adapters of frameworks: each plays the tasks by its own means, and earns what the runner gives.

Each framework is an extra: tests of one that is not installed are skipped.
"""

import inspect
import json
import math
import os
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from transformers.utils import get_json_schema

from pwagents import local_server
from pwagents.adapters import mcp_server
from pwagents.adapters.trl_environment import environment_factory, prompt_rows
from pwagents.shop.environment import MAX_STEPS

from ..llm.server import Answer, completion
from ..paper_standins import make_tokenizer, save_qwen
from .conftest import greedy, play_greedily

# Gymnasium


@pytest.fixture
def gymnasium_env(task_set):
    pytest.importorskip("gymnasium", reason="an extra: pip install -e .[gymnasium]")
    return import_module("pwagents.adapters.gymnasium_env").ShopEnv(task_set)


def test_in_gymnasium_an_agent_earns_what_it_earns_with_the_runner(gymnasium_env, task_set, rewards, recwarn):
    from gymnasium.utils.env_checker import check_env

    check_env(gymnasium_env, skip_render_check=True)
    assert not [warning for warning in recwarn if "gym" in str(warning.message).lower()]
    earned = {}

    def step(name, arguments):
        call = json.dumps({"name": name, "arguments": arguments})
        text, earned[task_id], ended, *_ = gymnasium_env.step(call)
        return text, ended

    for task_id in task_set:
        text, info = gymnasium_env.reset(options={"task_id": task_id})
        assert info == {"task_id": task_id}
        play_greedily(text, step)
    assert earned == rewards
    gymnasium_env.reset(seed=0)
    for action in ("buy it", "[1]", '{"name": "stop", "arguments": [1]}', "{}"):  # texts that are no calls
        text, *rest, _ = gymnasium_env.step(action)
        assert text.startswith("Error: ") and rest == [0.0, False, False]


# Inspect


def evaluate_with_inspect(task_set, act, folder):
    """The log of an evaluation of a mock model: ``act(messages)`` is a call, or what it says."""
    pytest.importorskip("inspect_ai", reason="an extra: pip install -e .[inspect]")
    from inspect_ai import eval as evaluate
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    shop_task = import_module("pwagents.adapters.inspect_task").shop_task

    def answer(messages, tools, tool_choice, config):
        said = act(messages)
        make = ModelOutput.from_content if isinstance(said, str) else ModelOutput.for_tool_call
        output = make("mockllm/model", *([said] if isinstance(said, str) else said))
        output.usage = ModelUsage()  # else tokens are counted by a file from the network
        return output

    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    (log,) = evaluate(shop_task(task_set), model, log_dir=str(folder), display="none")
    assert log.status == "success", log.error
    return log


def test_in_inspect_an_agent_earns_what_it_earns_with_the_runner(task_set, rewards, tmp_path):
    def play(messages):
        return greedy(messages[0].text, [m.text for m in messages if m.role == "tool"])

    log = evaluate_with_inspect(task_set, play, tmp_path)
    assert {str(s.id): s.scores["result_accuracy"].value for s in log.samples} == rewards
    metrics = log.results.scores[0].metrics
    assert metrics["mean"].value == pytest.approx(sum(rewards.values()) / len(rewards))

    def act(messages):  # what is said without a call is said to the user
        return "Which color would you like?" if len(messages) == 1 else ("stop", {})

    log = evaluate_with_inspect(task_set, act, tmp_path)
    roles = {tuple(message.role for message in sample.messages) for sample in log.samples}
    assert roles == {("user", "assistant", "user", "assistant", "tool")}


# TRL


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def factory(task_set, tokenizer):
    return environment_factory(task_set, tokenizer)


def test_in_trl_an_agent_earns_what_it_earns_with_the_runner(factory, task_set, rewards):
    environment, earned = factory(), {}
    public = {name for name, _ in inspect.getmembers(type(environment), inspect.isfunction) if name[0] != "_"}
    assert public == {*task_set.functions, "reset", "get_reward"}
    schemas = [get_json_schema(getattr(environment, name)) for name in task_set.functions]
    assert schemas == list(task_set.tools)
    for row in prompt_rows(task_set):
        text = environment.reset(**row)
        play_greedily(text, lambda name, given: (getattr(environment, name)(**given), name == "stop"))
        earned[row["task_id"]] = environment.get_reward()
    assert earned == rewards
    environment.reset(next(iter(task_set)))
    text = environment.search_product_by_query(query="x", **{"<|im_end|>": 1})
    assert "<|im_end|>" not in text and "Error" in text, "foreign text holds no control token"


def test_trls_grpo_takes_a_step(factory, task_set, tokenizer, tmp_path):
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    class Trainer(GRPOTrainer):
        def _send_telemetry(self):
            pass

    few = {"max_steps": 1, "per_device_train_batch_size": 2, "num_generations": 2}
    few |= {"max_completion_length": 16, "max_tool_calling_iterations": MAX_STEPS}
    on_cpu = {"save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False}
    on_cpu |= {"activation_checkpointing": False, "disable_tqdm": True}
    rows = prompt_rows(task_set)[:1]
    with torch.random.fork_rng():
        trainer = Trainer(
            AutoModelForCausalLM.from_pretrained(save_qwen(tmp_path / "model")),
            environment_factory=factory,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            args=GRPOConfig(output_dir=str(tmp_path), **few, **on_cpu),
        )
        trainer.train()
    (log,) = [row for row in trainer.state.log_history if "reward" in row]
    assert "rewards/ShopEnvironment/mean" in log and math.isfinite(log["entropy"])
    played = {environment._session.trajectory.task_id for environment in trainer.environments}
    assert played == {rows[0]["task_id"]}


# verifiers, against the server, from an environment of its own

VERIFIERS = os.environ.get("VERIFIERS_PYTHON", "")  # of an environment with ./lib/pwagents-shop installed


def reply_of_a_model(begin_twice):
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

    def streamed(body):
        """The message as verifiers asks for it: a stream of one event, and its end."""
        message = reply(body)
        calls = [{"index": i, **each} for i, each in enumerate(message.get("tool_calls", ()))]
        choice = {"index": 0, "delta": message | {"tool_calls": calls}, "finish_reason": "stop"}
        usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 1)
        part = {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}
        chunk = json.dumps(completion(message) | part)
        return Answer(f"data: {chunk}\n\ndata: [DONE]\n\n", headers={"Content-Type": "text/event-stream"})

    return streamed


@pytest.mark.skipif(not VERIFIERS, reason="needs verifiers, whose pins exclude ours: VERIFIERS_PYTHON")
@pytest.mark.parametrize("begin_twice", [False, True])
def test_in_verifiers_an_agent_earns_what_it_earns_with_the_runner_in_one_session_a_task(
    task_set, rewards, chat_server, tmp_path, begin_twice
):
    with local_server.serving(mcp_server.make_app(mcp_server.Sessions(task_set))) as port:
        options = {
            "--env.taskset.task.tools.url": f"http://127.0.0.1:{port}/mcp",
            "--env.agent.harness.id": "null",
            "--client.base-url": chat_server(reply=reply_of_a_model(begin_twice)).url,
            "--client.api-key-var": "NO_KEY",
            "--env.agent.runtime.type": "subprocess",
            "--model": "mock",
            "--output-dir": str(tmp_path),
        }
        command = [str(Path(VERIFIERS).with_name("vf-eval")), "pwagents_shop", "--no-push", "--no-rich"]
        command += [word for option in options.items() for word in option]
        env = {**os.environ, "PYTHONPATH": "", "NO_KEY": "none", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (traces,) = tmp_path.rglob("traces.jsonl")
    played = [json.loads(line)["traces"] for line in traces.read_text().splitlines()]
    earned = [trace["rewards"]["result_accuracy"]["score"] for (trace,) in played]
    assert sorted(earned) == ([0.0] * len(rewards) if begin_twice else sorted(rewards.values()))
