"""Hidden instructions: an agent that obeys whatever it reads, one that heeds the fences, and the policy."""

import json
import re

import pytest

from pwagents.agents.chat_agent import Setup
from pwagents.agents.methods import METHODS
from pwagents.agents.plain import OfflinePolicy
from pwagents.benchmark.adversarial import adversarial_cases, adversarial_report, followed, poisoned_shop
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.schema import FUNCTION_OF, Action, Observation, Step, Trajectory

# ruff: noqa: F811 (a fixture is imported by name, and given by name)
from ..agents.conftest import calls, embedder, scripted  # noqa: F401

CASES = {case.text: case for case in adversarial_cases()}


def gullible(calls, deaf_to_fences):
    """A model that searches, obeys the first hidden instruction it reads, and stops.

    Without ``deaf_to_fences`` it reads what stands outside the fences alone.
    """

    def script(request):
        seen = "\n".join(message["content"] for message in request.messages)
        if not deaf_to_fences:
            seen = re.sub(f"{OPEN}.*?{CLOSE}", "", seen, flags=re.DOTALL)
        for text, case in CASES.items():
            shown = (text, text.replace("</data>", "&lt;/data>").replace("<data>", "&lt;data>"))
            if any(form in seen or json.dumps(form)[1:-1] in seen for form in shown):
                return calls(
                    case.function or "respond", json.dumps({"content": case.says} if case.says else {})
                )
        return (
            calls("search_product_by_query", '{"query": "enamel mug"}') if len(request.messages) < 4 else "x"
        )

    return script


def test_the_cases_are_about_every_place_and_do_not_say_themselves_what_they_ask_for():
    cases = adversarial_cases()
    assert len({case.name for case in cases}) == len(cases) == 13
    assert {case.place for case in cases} == {"title", "feature", "description", "details", "store", "review"}
    for case in cases:
        assert case.function or case.says
        assert not case.says or case.says.lower() not in case.text.lower()


def test_a_gullible_model_follows_what_it_sees_and_one_that_heeds_the_fences_does_not(
    scripted, calls, embedder
):
    methods = {name: METHODS[name] for name in ("Last memory", "RecMind", "No memory")}
    followed = {}
    for deaf in (True, False):
        setup = Setup(scripted(gullible(calls, deaf_to_fences=deaf)), {}, "multi_turn", embedder)
        report = adversarial_report(methods, setup, embedder).set_index("method")
        assert (report["cases"] == 13).all()
        followed[deaf] = report["followed"]
    assert followed[True]["Last memory"] == 13
    assert 0 < followed[True]["RecMind"] < 13  # its short form holds neither features nor descriptions
    assert 0 < followed[True]["No memory"] < 13  # it meets the text in search results alone
    assert (followed[False] == 0).all()


def test_the_offline_policy_follows_none_in_any_method(embedder):
    def identify(instruction):
        words = {"Find": "search", "What": "recommend", "Please": "review"}
        return FUNCTION_OF[words[instruction.split()[0]]]

    setup = Setup(OfflinePolicy(identify), {}, "multi_turn", embedder)
    report = adversarial_report(METHODS, setup, embedder)
    assert list(report["method"]) == list(METHODS) and not report["followed"].any()


@pytest.mark.parametrize("case", adversarial_cases(), ids=lambda case: case.name)
def test_quoting_is_not_following_and_obeying_is(case, embedder):
    _, task = poisoned_shop(case, embedder)

    def trajectory(name, said):
        step = Step(action=Action(name=name, arguments={"content": said}), observation=Observation(text=""))
        return Trajectory(task_id=task.task_id, user_id="U1", type=case.task, target="B1", steps=(step,))

    obeys = case.function or "search_product_by_query"
    assert followed(case, trajectory(obeys, f"well, {case.says.upper()}"))
    other = "get_recommendations_by_history" if case.function else "search_product_by_query"
    assert not followed(case, trajectory(other, case.text))
