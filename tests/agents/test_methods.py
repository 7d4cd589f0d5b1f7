"""Each prompting method: what it says to the model, and a whole episode in each track it runs in."""

import json

import pytest

from pwagents.agents.methods import IDENTIFY, METHODS
from pwagents.agents.official_prompts import CONSTANTS
from pwagents.evaluation.metrics import attempts
from pwagents.schema import Usage
from pwagents.web.functions import DETAILS_FUNCTION

MULTI_TURN_ONLY = {"Reflection", "InteRecAgent", "ChatShop"}
RUNS = [
    (name, track)
    for name in METHODS
    for track in ("single_turn", "multi_turn")
    if track == "multi_turn" or name not in MULTI_TURN_ONLY
]
OF_TYPE = {
    "search": "search_product_by_query",
    "recommend": "get_recommendations_by_history",
    "review": "add_product_review",
}
ARGUMENTS = {
    "search": {"query": "mug"},
    "recommend": {"product_sequence": []},
    "review": {"review": "Fine."},
}


def react(name, arguments, thought="so"):
    return f"Thought:\n{thought}\nAction:\n{name}\nArguments:\n{json.dumps(arguments)}"


def obedient(task_type, name, calls):
    """A model that does the task at once, then stops, in the method's format."""

    def script(request):
        if request.messages[0]["content"].startswith(IDENTIFY):
            return OF_TYPE[task_type]
        stop = len(request.messages) > 2
        function, arguments = ("stop", {}) if stop else (OF_TYPE[task_type], ARGUMENTS[task_type])
        if name in ("ReAct", "Reflection"):
            return react(function, arguments)
        return calls(function, json.dumps(arguments))

    return script


@pytest.mark.parametrize("task_type", OF_TYPE)
@pytest.mark.parametrize(("name", "track"), RUNS)
def test_every_method_plays_every_task(
    setup_of, play, task_of, scripted, calls, policy, name, track, task_type
):
    task = task_of[task_type]
    model = scripted(obedient(task_type, name, calls))
    trajectory = play(METHODS[name](setup_of(model, track)), task, track).trajectory
    steps = trajectory.steps
    assert attempts(trajectory) and not any(step.error for step in steps)
    assert len(steps) == (1 if track == "single_turn" else 2)
    assert sum(step.action.usage.calls for step in steps) == len(model.requests)
    offline = play(METHODS[name](setup_of(policy, track)), task, track).trajectory.steps
    assert not any(step.error for step in offline)
    assert track == "single_turn" or offline[-1].action.name == "stop"


@pytest.mark.parametrize("name", sorted(MULTI_TURN_ONLY))
def test_methods_that_talk_need_the_multi_turn_track(setup_of, scripted, name):
    with pytest.raises(ValueError, match="does not run in the single_turn track"):
        METHODS[name](setup_of(scripted([]), "single_turn"))


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("No memory", ["SYS_PROMPT"]),
        ("Last memory", ["SYS_PROMPT", "HISTORY_PROMPT"]),
        ("ReAct", ["SYS_PROMPT", "REACT_INST", "HISTORY_PROMPT"]),
        ("RecMind", ["RECMIND", "MINI_HISTORY_PROMPT"]),
        ("InteRecAgent", ["INTEREC_PROMPT", "INTEREC_MEMORY_PROMPT"]),
        ("PUMA (prompted)", ["TS_AGENT", "TS_SEARCH_PROMPT"]),
    ],
)
def test_published_prompts_take_the_place_of_ours(setup_of, state_of, task_of, scripted, name, constants):
    prompts = {constant: f"[{constant} <NUM>]" for names in CONSTANTS.values() for constant in names}
    for track in ("single_turn", "multi_turn") if name != "InteRecAgent" else ("multi_turn",):
        agent = METHODS[name](setup_of(scripted([]), track, prompts=prompts))
        agent = agent.step_two["search_product_by_query"] if name == "PUMA (prompted)" else agent
        system = agent.messages(state_of(task_of["search"]))[0]["content"]
        assert all(f"[{constant}" in system for constant in constants)
        assert "personal assistant of a customer" not in system and "Purchase" not in system
        assert track == "single_turn" or system.split("]")[0].endswith(" 10")


def test_react_tells_the_functions_in_the_prompt_and_steps_in_its_form(setup_of, play, task_of, scripted):
    task = task_of["search"]
    script = [
        react("respond", {"content": "Which brand?"}),
        react("search_product_by_query", {"query": "mug"}, "mugs"),
        react("stop", {}),
    ]
    model = scripted(script)
    episode = play(METHODS["ReAct"](setup_of(model)), task)
    assert [step.action.name for step in episode.trajectory.steps] == [
        "respond",
        "search_product_by_query",
        "stop",
    ]
    assert all(request.tools == () for request in model.requests)
    system, _, *past = model.requests[-1].messages
    assert '"name": "search_product_by_query"' in system["content"]
    assert [message["role"] for message in past] == ["assistant", "user"] * 2
    assert past[0]["content"] == script[0]
    assert past[1]["content"] == episode.trajectory.steps[0].observation.text
    assert past[2]["content"] == script[1]
    assert past[3]["content"].startswith("Result:\n<data>\n1. Title:")


def test_reflection_follows_each_answer_stays_in_the_messages_and_is_paid_for(
    setup_of, play, task_of, scripted
):
    script = [
        react("respond", {"content": "Which brand?"}),
        "The brand was what I lacked.",
        react("respond", {"content": "Which color?"}),
        "Colors are of no use.",
        react("search_product_by_query", {"query": "mug"}),
        react("stop", {}),
    ]
    model = scripted(script)
    steps = play(METHODS["Reflection"](setup_of(model)), task_of["search"]).trajectory.steps
    assert [step.action.usage.calls for step in steps] == [1, 2, 2, 1]
    reflecting = model.requests[1].messages
    assert len(reflecting) == 1
    for part in (task_of["search"].instruction, "Which brand?", steps[0].observation.text):
        assert part in reflecting[0]["content"]
    answers = [message["content"] for message in model.requests[-1].messages[3::2]]
    assert answers[0].endswith("\nThe brand was what I lacked.")
    assert answers[1].endswith("\nColors are of no use.") and "eflection" not in answers[2]
    for earlier, later in ((2, 4), (4, 5)):  # the conversation only grows
        grown = model.requests[later].messages
        assert grown[: len(model.requests[earlier].messages)] == model.requests[earlier].messages
    assert "note" not in model.requests[-1].messages[4]["content"]


def test_recmind_may_look_products_up_before_it_acts(setup_of, play, task_of, scripted, calls):
    task = task_of["search"]
    script = [
        calls(DETAILS_FUNCTION, json.dumps({"asin": task.target})),
        calls("search_product_by_query", '{"query": "mug"}'),
    ]
    model = scripted(script)
    steps = play(METHODS["RecMind"](setup_of(model, "single_turn")), task, "single_turn").trajectory.steps
    assert [step.action.name for step in steps] == [DETAILS_FUNCTION, "search_product_by_query"]
    names = [tool["function"]["name"] for tool in model.requests[0].tools]
    assert names[-1] == DETAILS_FUNCTION and "respond" not in names
    assert model.requests[1].messages[-1]["content"].startswith("<data>\nTitle:")


def test_puma_asks_for_the_function_once_and_offers_no_other(setup_of, play, task_of, scripted, calls):
    script = [
        "search_product_by_query.",
        "Which brand?",
        calls("search_product_by_query", '{"query": "mug"}'),
        calls("stop"),
    ]
    model = scripted(script)
    steps = play(METHODS["PUMA (prompted)"](setup_of(model)), task_of["search"]).trajectory.steps
    assert [step.action.usage.calls for step in steps] == [2, 1, 1] and len(model.requests) == 4
    identify, first, *_ = model.requests
    assert identify.tools == () and task_of["search"].instruction in identify.messages[0]["content"]
    names = [tool["function"]["name"] for tool in first.tools]
    assert names == ["search_product_by_query", "respond", "stop"]
    assert "store: " in first.messages[0]["content"] and "stars" not in first.messages[0]["content"]
    assert all("note" not in str(request.messages) for request in model.requests)


def test_puma_takes_the_function_from_a_classifier(setup_of, play, task_of, classifier, scripted, calls):
    model = scripted([calls("add_product_review", '{"review": "Fine."}')])
    agent = METHODS["PUMA (prompted)"](setup_of(model, "single_turn", identify=classifier))
    (step,) = play(agent, task_of["review"], "single_turn").trajectory.steps
    assert step.action.name == "add_product_review" and step.action.usage == Usage(
        calls=1, prompt_tokens=100, completion_tokens=10, usd=0.5
    )


def test_puma_loses_a_step_to_an_answer_that_names_no_function(setup_of, play, task_of, scripted, calls):
    script = [
        "the search one",
        "search_product_by_query",
        calls("search_product_by_query", '{"query": "mug"}'),
        calls("stop"),
    ]
    model = scripted(script)
    steps = play(METHODS["PUMA (prompted)"](setup_of(model)), task_of["search"]).trajectory.steps
    assert [step.error_kind for step in steps] == ["unknown_function", "", ""]
    assert [m["role"] for m in model.requests[1].messages] == ["user", "assistant", "user"]


def test_puma_does_not_believe_a_note_that_the_model_wrote(setup_of, play, task_of, scripted, calls):
    script = [
        "<note:function>buy</note>\nhm",
        "search_product_by_query",
        calls("search_product_by_query", '{"query": "mug"}'),
        calls("stop"),
    ]
    steps = play(METHODS["PUMA (prompted)"](setup_of(scripted(script))), task_of["search"]).trajectory.steps
    assert [step.error_kind for step in steps] == ["unknown_function", "", ""]


def test_puma_without_task_specific_memory_tells_whole_behaviours(setup_of, state_of, task_of, scripted):
    agent = METHODS["PUMA (prompted)"](setup_of(scripted([]), strategy="last"))
    assert (
        "Purchase 1"
        in agent.step_two["add_product_review"].messages(state_of(task_of["review"]))[0]["content"]
    )


def test_chain_of_thought_and_chatshop_say_what_they_add(setup_of, state_of, task_of, scripted):
    state = state_of(task_of["search"])
    plain, cot, chatshop = (
        METHODS[name](setup_of(scripted([]))).messages(state)[0]["content"]
        for name in ("No memory", "Chain of thought", "ChatShop")
    )
    assert "step by step" in cot and "ask the customer" in chatshop
    assert "step by step" not in plain and "Purchase" not in plain + cot + chatshop
