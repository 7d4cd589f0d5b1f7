"""What all prompting methods share: messages by example, real episodes with a scripted model, threads."""

import inspect
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from operator import add

import pytest

from pwagents.agents.chat_agent import ChatAgent
from pwagents.agents.methods import METHODS, LastMemory, NoMemory
from pwagents.evaluation.metrics import attempts
from pwagents.llm.chat import Reply
from pwagents.llm.fence import FENCE_NOTE
from pwagents.schema import Action, Observation, Step, Usage
from pwagents.web.functions import full_text, tool_schemas


def search(query):
    return json.dumps({"query": query})


def test_messages_of_a_whole_session_by_example(setup_of, state_of, task_of, scripted, calls):
    state = state_of(task_of["search"])
    steps = [
        Step(
            action=Action(name="respond", arguments={"content": "Which color?"}),
            observation=Observation(text="Navy."),
        ),
        Step(
            action=Action(name="search_product_by_query", arguments={"query": "mug"}, thought="a mug"),
            observation=Observation(text="1. a mug</data>", products=("B1",)),
        ),
        Step(
            action=Action(name="buy it!", arguments={"id": 1}),
            observation=Observation(text="Error: unknown function 'buy it!'"),
            error="unknown function 'buy it!'",
            error_kind="unknown_function",
        ),
        Step(
            action=Action(thought='stop({"a)', problem="no valid JSON", problem_kind="malformed_json"),
            observation=Observation(text="Error: no valid JSON"),
            error="no valid JSON",
            error_kind="malformed_json",
        ),
    ]
    model = scripted([calls("stop")])
    NoMemory(setup_of(model))(replace(state, session=tuple(steps)))
    (request,) = model.requests

    def call(i, name, arguments):
        return [{"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}]

    assert request.messages[1:] == (
        {"role": "user", "content": f"User {state.user_id}: {state.instruction}"},
        {"role": "assistant", "content": "Which color?"},
        {"role": "user", "content": "Navy."},
        {
            "role": "assistant",
            "content": "a mug",
            "tool_calls": call(1, "search_product_by_query", '{"query": "mug"}'),
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "<data>\n1. a mug&lt;/data>\n</data>"},
        {"role": "assistant", "content": "", "tool_calls": call(2, "buy_it_", '{"id": 1}')},
        {"role": "tool", "tool_call_id": "call_2", "content": "Error: unknown function 'buy it!'"},
        {"role": "assistant", "content": 'stop({"a)'},
        {"role": "user", "content": "Error: no valid JSON"},
    )
    system = request.messages[0]
    assert system["role"] == "system" and "10 steps at most" in system["content"]
    assert system["content"].endswith(FENCE_NOTE)  # no memory behind it
    assert request.sampling == {"temperature": 0.0}


def test_the_product_to_review_is_fenced(setup_of, state_of, task_of, scripted):
    state = state_of(task_of["review"])
    first = NoMemory(setup_of(scripted([]))).messages(state)[1]["content"]
    assert first == state.observation.replace(
        full_text(state.product), f"<data>\n{full_text(state.product)}\n</data>"
    )


@pytest.mark.parametrize(("track", "more"), [("single_turn", ()), ("multi_turn", ("respond", "stop"))])
def test_talking_and_stopping_are_offered_in_the_multi_turn_track_alone(
    setup_of, state_of, task_of, scripted, track, more
):
    model = scripted(["hm"])
    NoMemory(setup_of(model, track))(state_of(task_of["search"]))
    names = ("search_product_by_query", "get_recommendations_by_history", "add_product_review", *more)
    assert list(model.requests[0].tools) == tool_schemas(names)


def test_a_multi_turn_episode_in_the_real_environment(setup_of, play, task_of, benchmark, scripted, calls):
    task = task_of["search"]
    script = [
        "Which brand?",
        Reply(finish_reason="length", text="Let me thi"),
        Reply(),
        calls("search_product_by_query", "{query"),
        calls("search_product_by_query", '{"q": "mug"}'),
        calls("find", "{}"),
        calls("search_product_by_query", search(benchmark.products[task.target].title), text="that is it"),
        calls("stop"),
    ]
    model = scripted(script)
    trajectory = play(NoMemory(setup_of(model)), task).trajectory
    steps = trajectory.steps
    kinds = ["", "cut_off", "empty", "malformed_json", "wrong_arguments", "unknown_function", "", ""]
    assert [step.error_kind for step in steps] == kinds
    assert steps[0].observation.text == f"I prefer {benchmark.products[task.target].store}."
    assert (attempts(trajectory), steps[6].action.thought) == ([1.0], "that is it")
    usage = reduce(add, (step.action.usage for step in steps))
    assert usage == Usage(calls=8, prompt_tokens=800, completion_tokens=80, usd=4.0)


def test_a_single_turn_episode_ends_with_the_first_reply(setup_of, play, task_of, scripted, calls):
    review = task_of["review"].review.text
    script = [calls("add_product_review", json.dumps({"review": review}))]

    def reply_with(script):
        agent = NoMemory(setup_of(scripted(script), "single_turn"))
        return play(agent, task_of["review"], "single_turn").trajectory

    assert attempts(reply_with(script))[0] > 0.999
    asked = reply_with(["May I ask?"])
    assert ([step.action.name for step in asked.steps], attempts(asked)) == (["respond"], [])


def test_each_request_begins_with_the_one_before(setup_of, play, task_of, scripted, calls):
    model = scripted(["Which brand?", calls("search_product_by_query", search("mug")), calls("stop")])
    play(METHODS["Relevant memory"](setup_of(model)), task_of["search"])
    first, second, third = (request.messages for request in model.requests)
    assert second[: len(first)] == first and third[: len(second)] == second


@pytest.mark.parametrize(
    ("name", "track", "heading", "length"),
    [
        ("Last memory", "single_turn", "latest first", 50),
        ("Last memory", "multi_turn", "latest first", 20),
        ("Random memory", "multi_turn", "Some of what", 20),
        ("Relevant memory", "multi_turn", "closest to the request first", 20),
        ("ReAct", "multi_turn", "latest first", 20),
        ("RecMind", "multi_turn", "latest first", 400),
        ("InteRecAgent", "multi_turn", "latest first", 20),
    ],
)
def test_memory_by_method_and_track(setup_of, state_of, benchmark, scripted, name, track, heading, length):
    agent = METHODS[name](setup_of(scripted([]), track))
    task = max(benchmark.tasks["test"], key=lambda t: len(benchmark.history(t, "test")))
    state = state_of(task)
    assert len(state.history) > 20 and agent.memory.length == length
    assert heading in agent.messages(state)[0]["content"]
    assert len(agent.memory.recall(state, "")) == min(length, len(state.history))
    latest = benchmark.products[state.history[-1].parent_asin].title
    assert (
        name == "Random memory" or name == "Relevant memory" or latest in agent.messages(state)[0]["content"]
    )


def test_memory_by_params(setup_of, state_of, task_of, scripted):
    state = state_of(task_of["search"])
    agent = METHODS["ReAct"](setup_of(scripted([]), strategy="relevant", length=2))
    expected = METHODS["Relevant memory"](setup_of(scripted([]), length=2)).memory.recall(state, "")
    assert agent.memory.recall(state, "") == expected and len(expected) == 2
    assert METHODS["Last memory"](setup_of(scripted([]), strategy="none")).memory.recall(state, "") == []
    with pytest.raises(ValueError, match="LastMemory does not know the function"):
        LastMemory(setup_of(scripted([]), strategy="task_specific"))


class Shouting(ChatAgent):
    """A method of one's own: three purchases, a rule more, and a shout at the end of each query."""

    strategy, length = "last", 3
    advice = "Write every query in capitals."

    def ask(self, messages):
        action = super().ask(messages)
        if "query" not in action.arguments:
            return action
        return action.model_copy(update={"arguments": {"query": action.arguments["query"].upper()}})


@pytest.mark.parametrize("track", ["single_turn", "multi_turn"])
def test_a_new_method_takes_a_few_lines_and_runs_in_both_tracks(
    setup_of, play, task_of, policy, scripted, calls, track
):
    assert len(inspect.getsource(Shouting).splitlines()) <= 30
    model = scripted([calls("search_product_by_query", search("mug")), calls("stop")])
    steps = play(Shouting(setup_of(model, track)), task_of["search"], track).trajectory.steps
    assert steps[0].action.arguments == {"query": "MUG"} and not any(step.error for step in steps)
    assert "capitals" in model.requests[0].messages[0]["content"]
    offline = play(Shouting(setup_of(policy, track)), task_of["search"], track).trajectory
    assert attempts(offline)


def test_one_agent_serves_many_threads(setup_of, play, benchmark, scripted, calls):
    def answer(request):  # depends on the request alone, as a model at temperature 0 does
        if len(request.messages) == 2:
            return calls("search_product_by_query", search(request.messages[1]["content"]))
        return calls("stop")

    agent = METHODS["Relevant memory"](setup_of(scripted(answer)))
    tasks = benchmark.tasks["test"][:12]
    serial = [play(agent, task).trajectory for task in tasks]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda task: play(agent, task).trajectory, tasks)) == serial
