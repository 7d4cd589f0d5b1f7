"""PUMA's agent: what its memory keeps, what each step is told, and what is made of the replies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.llm.chat import Reply, parse_tool_calls
from pwagents.profiles.catalogue import section
from pwagents.puma.agent import (
    IDENTIFY_RULES,
    MOST_RECOMMENDED,
    RECOMMEND,
    REVIEW,
    SEARCH,
    PumaAgent,
    TaskMemory,
    call_message,
    entry_line,
    identify_messages,
    ids_for_numbers,
    numbers_for_ids,
    parameter_messages,
    parameter_tools,
    read_function,
)

# ruff: noqa: F811 (a fixture is imported by name, and given by name)
from ..agents.conftest import (  # noqa: F401
    ScriptedModel,
    benchmark,
    embedder,
    environment_of,
    play,
    shop,
    state_of,
    task_of,
)

FUNCTIONS = (SEARCH, RECOMMEND, REVIEW)


def count_words(text):
    return len(text.split())


@pytest.fixture
def memory_of(benchmark, embedder):
    return lambda tokens, count=count_words: TaskMemory(benchmark.products, embedder, tokens, count)


def answers(request):
    """Names the function that the rules of step 2 would name, then calls it."""
    if request.messages[0]["content"] == IDENTIFY_RULES:
        said = request.messages[1]["content"].lower()
        return REVIEW if "review" in said or "words about" in said else SEARCH
    (tool,) = request.tools
    name = tool["function"]["name"]
    key = "query" if name == SEARCH else "review"
    return f'<tool_call>{{"name": "{name}", "arguments": {{"{key}": "a mug"}}}}</tool_call>'


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("tokens", [0, 20, 60, 200])
def test_the_memory_keeps_to_its_budget_and_fills_it(memory_of, state_of, task_of, function, tokens):
    state = state_of(task_of["search"])
    lines = [entry_line(function, e) for e in memory_of(tokens).recall(state, function)]
    everything = [entry_line(function, e) for e in memory_of(10**6).recall(state, function)]
    used = sum(map(count_words, lines))
    assert used <= tokens
    left_out = everything.copy()
    for line in lines:
        left_out.remove(line)
    assert all(count_words(line) > tokens - used for line in left_out)


def test_the_closest_behaviours_stay_when_room_is_short(memory_of, state_of, task_of):
    state = state_of(task_of["search"])
    order = [e["timestamp"] for e in memory_of(10**6).recall(state, REVIEW)]
    few = [e["timestamp"] for e in memory_of(10**6, lambda text: 10**6 // 3).recall(state, REVIEW)]
    assert few == order[:3]


def test_a_search_and_a_recommendation_are_told_the_interest_of_the_closest_product(
    memory_of, benchmark, state_of
):
    kept = 0
    for task in benchmark.tasks["test"]:
        state = state_of(task)
        memory = memory_of(10**6)
        entries = {function: memory.recall(state, function) for function in FUNCTIONS}
        (interest,) = {section(benchmark.products[e["parent_asin"]]) for e in entries[SEARCH]}
        assert section(benchmark.products[entries[REVIEW][0]["parent_asin"]]) == interest
        bought = [b for b in state.history if section(benchmark.products[b.parent_asin]) == interest]
        assert [e["timestamp"] for e in entries[SEARCH]] == [b.timestamp for b in bought[::-1]]
        ids = [e["parent_asin"] for e in entries[RECOMMEND]]
        latest_first = list(dict.fromkeys(b.parent_asin for b in reversed(bought)))
        assert ids == latest_first[:MOST_RECOMMENDED][::-1]
        kept = max(kept, len(ids))
    assert kept > 2


@given(st.lists(st.sampled_from(["1", "2", "3", "04", "B0", 5]), max_size=5))
def test_numbers_of_lines_are_put_back_into_ids_and_nothing_else_is_changed(told):
    entries = [{"parent_asin": "A"}, {"parent_asin": "B"}]
    arguments = ids_for_numbers({"product_sequence": told, "more": 1}, entries)
    assert arguments == {"product_sequence": [{"1": "A", "2": "B"}.get(t, t) for t in told], "more": 1}
    assert numbers_for_ids(arguments, entries) == {"product_sequence": told, "more": 1}
    assert ids_for_numbers({"product_sequence": "1"}, entries) == {"product_sequence": "1"}
    assert ids_for_numbers({"product_sequence": [2, 9]}, entries) == {"product_sequence": ["B", 9]}


def test_each_function_is_told_its_own_fields(memory_of, state_of, task_of):
    state = state_of(task_of["search"])
    (entry,) = memory_of(1, lambda text: 1).recall(state, SEARCH)
    entry |= {"price": 12.5, "store": "Kestrel", "rating": 4.0, "text": "Fine."}
    title, category = entry["title"], entry["category"]
    assert entry_line(SEARCH, entry) == f"{title} ({category}, $12.50, Kestrel)"
    assert entry_line(RECOMMEND, entry) == f"{title} ({category})"
    assert entry_line(REVIEW, entry) == "4 stars: Fine."


def test_step_one_reads_the_instruction_alone(state_of, task_of):
    state = state_of(task_of["review"])
    rules, asked = identify_messages(state.instruction)
    assert rules["content"] == IDENTIFY_RULES and asked["content"] == state.instruction


def test_only_a_review_is_told_its_product_and_foreign_text_is_fenced(memory_of, state_of, task_of):
    review, search = state_of(task_of["review"]), state_of(task_of["search"])
    product = review.product.title
    told = parameter_messages(review, REVIEW, memory_of(60).recall(review, REVIEW))[1]["content"]
    assert f"<data>\n{product}" in told and told.count("<data>") == 2
    assert "Product:" not in parameter_messages(search, SEARCH, ())[1]["content"]
    assert "<data>" not in parameter_messages(search, SEARCH, ())[1]["content"]


def test_a_search_is_told_what_recurs_in_what_was_bought(state_of, task_of):
    search = state_of(task_of["search"])
    mugs = [
        {"title": f"{color} oak mug", "category": "Mugs", "price": 1.0, "store": "Otter"} for color in "ab"
    ]
    told = parameter_messages(search, SEARCH, mugs)[1]["content"]
    assert "Often: oak\n</data>" in told and told.endswith(search.instruction)
    assert "Often:" not in parameter_messages(search, SEARCH, mugs[:1])[1]["content"]
    assert "Often:" not in parameter_messages(search, RECOMMEND, mugs)[1]["content"]


@given(st.text(max_size=40))
def test_a_function_is_read_only_where_one_is_named(text):
    assert read_function(Reply(text=text)) in ("", *FUNCTIONS)
    assert read_function(Reply(text=f"{SEARCH} or {REVIEW}{text}")) == ""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_read_also_with_spaces_around_underscores(function):
    assert read_function(Reply(text=f" {function.replace('_', ' _ ')}.")) == function


@pytest.mark.parametrize("arguments", [{"query": 'a "red" mug'}, {"product_sequence": ["A", "B"]}, {}])
def test_a_call_is_told_in_the_form_that_is_read(arguments):
    text, (call,) = parse_tool_calls(call_message(SEARCH, arguments)["content"], "call")
    assert text == "" and call.name == SEARCH and json.loads(call.arguments) == arguments


def test_the_agent_names_the_function_then_calls_it(memory_of, play, task_of):
    model = ScriptedModel(answers)
    trajectory = play(PumaAgent(model, model, memory_of(60)), task_of["search"], "single_turn")
    (step,) = trajectory.steps
    assert not step.error and step.action.arguments == {"query": "a mug"}
    assert step.action.usage.calls == 2
    assert [len(request.tools) for request in model.requests] == [0, 1]


def test_many_at_once_are_answered_as_one_by_one(memory_of, state_of, benchmark):
    states = [state_of(task) for task in benchmark.tasks["test"][:12]]
    agent = PumaAgent(ScriptedModel(answers), ScriptedModel(answers), memory_of(60))
    assert agent.act(states) == [agent(state) for state in states]


@pytest.mark.parametrize("said", ["", "buy", f"{SEARCH} {REVIEW}"])
def test_no_function_named_is_a_step_lost_and_costs_one_call(memory_of, state_of, task_of, said):
    model = ScriptedModel(lambda request: said)
    action = PumaAgent(model, model, memory_of(60))(state_of(task_of["search"]))
    assert action.problem_kind == "unknown_function" and len(model.requests) == 1


def test_talk_in_place_of_a_call_is_a_step_lost(memory_of, state_of, task_of):
    model = ScriptedModel(lambda request: "I cannot" if request.tools else SEARCH)
    action = PumaAgent(model, model, memory_of(60))(state_of(task_of["search"]))
    assert action.problem_kind == "malformed_json" and action.usage.calls == 2


def test_step_two_may_call_the_identified_function_alone():
    assert [tool["function"]["name"] for tool in parameter_tools(REVIEW)] == [REVIEW]
