"""What all prompting methods share: messages by example, real episodes with a scripted model, threads."""

import json
from dataclasses import replace

import pytest

from pwagents.agents.chat import ChatAgent
from pwagents.agents.methods import METHODS, LastMemory, NoMemory
from pwagents.llm.chat import Reply
from pwagents.llm.fence import FENCE_NOTE
from pwagents.schema import Action, Observation, Step, Usage
from pwagents.shop.environment import full_text
from pwagents.shop.score import attempts

from .conftest import ScriptedModel, call


def search(query):
    return json.dumps({"query": query})


def test_messages_of_a_whole_session_by_example(setup_of, state_of, task_of):
    state = state_of(task_of["search"])
    searched = {"name": "search_product_by_query", "arguments": {"query": "mug"}, "thought": "a mug"}
    found = {"text": "1. a mug</data>", "products": ("B1",)}
    steps = (  # action, observation, error
        ({"name": "respond", "arguments": {"content": "Which color?"}}, {"text": "Navy."}, ""),
        (searched, found, ""),
        ({"name": "buy it!", "arguments": {"id": 1}}, {"text": "Error: unknown"}, "unknown"),
        ({"thought": 'stop({"a)', "problem": "no valid JSON"}, {"text": "Error: no JSON"}, "no JSON"),
    )
    session = tuple(Step(action=Action(**a), observation=Observation(**o), error=e) for a, o, e in steps)
    model = ScriptedModel([call("stop")])
    NoMemory(setup_of(model))(replace(state, session=session))

    def called(i, name, arguments):
        return [{"id": f"call{i:05}", "type": "function", "function": {"name": name, "arguments": arguments}}]

    (request,) = model.requests
    calls = called(1, "search_product_by_query", '{"query": "mug"}'), called(2, "buy_it_", '{"id": 1}')
    assert request.messages[1:] == (
        {"role": "user", "content": f"User {state.user_id}: {state.instruction}"},
        {"role": "assistant", "content": "Which color?"},
        {"role": "user", "content": "Navy."},
        {"role": "assistant", "content": "a mug", "tool_calls": calls[0]},
        {"role": "tool", "tool_call_id": "call00001", "content": "<data>\n1. a mug&lt;/data>\n</data>"},
        {"role": "assistant", "content": "", "tool_calls": calls[1]},
        {"role": "tool", "tool_call_id": "call00002", "content": "Error: unknown"},
        {"role": "assistant", "content": 'stop({"a)'},
        {"role": "user", "content": "Error: no JSON"},
    )
    state = state_of(task_of["review"])
    page = full_text(state.product)
    told = NoMemory(setup_of()).messages(state)[1]["content"]
    assert told == state.observation.replace(page, f"<data>\n{page}\n</data>")
    system = request.messages[0]
    assert system["role"] == "system" and "10 steps at most" in system["content"]
    assert system["content"].endswith(FENCE_NOTE)  # no memory behind it
    assert request.sampling == {"temperature": 0.0}


def test_a_multi_turn_episode_in_the_real_environment(setup_of, play, task_of, benchmark):
    target = benchmark.products[task_of["search"].target]
    script = [
        "Which brand?",
        Reply(finish_reason="length", text="Let me thi"),
        Reply(),
        call("search_product_by_query", "{query"),
        call("search_product_by_query", '{"q": "mug"}'),
        call("find", "{}"),
        call("search_product_by_query", search(target.title), text="that is it"),
        call("stop"),
    ]
    model = ScriptedModel(script)
    trajectory = play(NoMemory(setup_of(model)), task_of["search"])
    kinds = ["", "cut_off", "empty", "malformed_json", "wrong_arguments", "unknown_function", "", ""]
    assert [step.error_kind for step in trajectory.steps] == kinds
    assert trajectory.steps[0].observation.text == f"I prefer {target.store}."
    assert trajectory.steps[6].action.thought == "that is it" and attempts(trajectory) == [1.0]
    assert trajectory.usage == Usage(calls=8, prompt_tokens=800, completion_tokens=80, usd=4.0)
    first, second, *_ = (request.messages for request in model.requests)
    assert second[: len(first)] == first  # a conversation only grows


@pytest.mark.parametrize(
    ("name", "track", "heading", "length"),
    [
        ("Last memory", "single_turn", "latest first", 50),
        ("Last memory", "multi_turn", "latest first", 20),
        ("Relevant memory", "multi_turn", "closest to the request first", 20),
        ("RecMind", "multi_turn", "latest first", 400),
    ],
)
def test_memory_by_method_track_and_setup(setup_of, state_of, benchmark, name, track, heading, length):
    agent = METHODS[name](setup_of(track=track))
    state = state_of(max(benchmark.tasks["test"], key=lambda t: len(benchmark.history(t, "test"))))
    assert len(state.history) > 20 and agent.memory.length == length
    system = agent.messages(state)[0]["content"]
    latest = benchmark.products[state.history[-1].parent_asin].title
    assert heading in system and (heading != "latest first" or latest in system)
    agent = METHODS["ReAct"](setup_of(length=2))
    assert (agent.memory.strategy, agent.memory.length) == ("last", 2)
    with pytest.raises(ValueError, match="Forgetful has no function to choose"):
        type("Forgetful", (LastMemory,), {"strategy": "task_specific"})(setup_of())
    with pytest.raises(ValueError, match="LastMemory does not run in the mutli_turn track"):
        LastMemory(setup_of(track="mutli_turn"))


class Shouting(ChatAgent):
    """A method of one's own: three purchases, a rule more, and a shout at the end of each query."""

    strategy, length = "last", 3
    advice = "Write every query in capitals."

    def ask(self, messages):
        action = super().ask(messages)
        arguments = {name: value.upper() for name, value in action.arguments.items()}
        return action.model_copy(update={"arguments": arguments})


@pytest.mark.parametrize("track", ["single_turn", "multi_turn"])
def test_a_new_method_takes_a_few_lines_and_runs_in_both_tracks(setup_of, play, task_of, policy, track):
    model = ScriptedModel([call("search_product_by_query", search("mug")), call("stop")])
    steps = play(Shouting(setup_of(model, track)), task_of["search"], track).steps
    assert steps[0].action.arguments == {"query": "MUG"} and not any(step.error for step in steps)
    assert "capitals" in model.requests[0].messages[0]["content"]
    assert attempts(play(Shouting(setup_of(policy, track)), task_of["search"], track))
