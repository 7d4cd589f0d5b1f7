"""The Inspect adapter: an evaluation with a mock model ends with the rewards of the runner."""

import pytest

pytest.importorskip("inspect_ai", reason="an extra: pip install -e .[inspect]")

from inspect_ai import eval as evaluate
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from pwagents.adapters.inspect_task import shop_task

from .conftest import greedy


def mock(act):
    """A mock model: ``act(messages)`` is a call, or what it says."""

    def answer(messages, tools, tool_choice, config):
        said = act(messages)
        if isinstance(said, str):
            output = ModelOutput.from_content("mockllm/model", said)
        else:
            output = ModelOutput.for_tool_call("mockllm/model", *said)
        output.usage = ModelUsage()  # else tokens are counted by a file from the network
        return output

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def run(task_set, act, folder):
    (log,) = evaluate(shop_task(task_set), mock(act), log_dir=str(folder), display="none")
    assert log.status == "success", log.error
    return log


def test_the_same_agent_earns_what_it_earns_with_the_runner(task_set, rewards, tmp_path):
    def act(messages):
        return greedy(messages[0].text, [m.text for m in messages if m.role == "tool"])

    log = run(task_set, act, tmp_path)
    assert {str(s.id): s.scores["result_accuracy"].value for s in log.samples} == rewards
    metrics = log.results.scores[0].metrics
    assert metrics["mean"].value == pytest.approx(sum(rewards.values()) / len(rewards))
    assert "stderr" in metrics


def test_what_is_said_without_a_call_is_said_to_the_user(task_set, tmp_path):
    def act(messages):
        return "Which color would you like?" if len(messages) == 1 else ("stop", {})

    log = run(task_set, act, tmp_path)
    roles = {tuple(message.role for message in sample.messages) for sample in log.samples}
    assert roles == {("user", "assistant", "user", "assistant", "tool")}
