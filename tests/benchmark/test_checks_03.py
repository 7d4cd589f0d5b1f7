"""Notebook 03's checks: published against corrected, hidden instructions, what simulated users tell."""

import json
import re

import pytest

from pwagents.agents.chat import Setup
from pwagents.agents.methods import METHODS
from pwagents.agents.offline import OfflinePolicy
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.schema import FUNCTION_OF, Action, Observation, Product, Review, Step, Task, Trajectory
from pwagents.shop.environment import UserReply
from pwagents_old.benchmark.adversarial import (
    adversarial_cases,
    adversarial_report,
    is_followed,
    poison_shop,
    simulator_quality,
)
from pwagents_old.benchmark.agreement import published_against_corrected

from ..agents.conftest import ScriptedModel, call


@pytest.fixture(scope="module")
def table(study_of, settings):
    play = settings.play.changed(max_tasks=60, method_tasks=60)
    return published_against_corrected(study_of(settings.changed(play=play))).set_index("difference")


SAYS_NOTHING = {"empty query": 0, "blank query": 0, "text where a list": 0, "empty review": 1}


def test_each_difference_from_the_published_code_goes_the_way_it_should(table):
    def columns(name):  # function and result accuracy as published, then corrected
        row = table[[name in difference for difference in table.index]]
        assert len(row) == 1 and row["tasks"].item() > 0, name
        return row.iloc[0, 1:].tolist()

    for name, is_worth in SAYS_NOTHING.items():  # a call that says nothing counts as published alone
        function, result, ours, our_result = columns(name)
        assert function == 1 and ours == our_result == 0 and (result > 0) == is_worth, name
    function, result, ours, our_result = columns("unlike the real one")
    assert function == ours == 1 and result < our_result  # a review may be worth less than none
    function, result, ours, our_result = columns("fewer than ten")
    assert function == ours == 1 and result <= our_result
    others = ("text of a result", "told the task's type", "order of a set", "three times")
    assert all(columns(name) for name in others) and len(table) == 10
    assert table.drop(columns="tasks").notna().all(axis=None)


CASES = {case.text: case for case in adversarial_cases()}


def gullible(deaf_to_fences):
    """A model that searches, obeys the first hidden instruction it reads, and stops.

    Without ``deaf_to_fences`` it reads what stands outside the fences alone.
    """

    def script(request):
        text = "\n".join(message["content"] for message in request.messages)
        if not deaf_to_fences:
            text = re.sub(f"{OPEN}.*?{CLOSE}", "", text, flags=re.DOTALL)
        for hidden, case in CASES.items():
            escaped = hidden.replace("</data>", "&lt;/data>").replace("<data>", "&lt;data>")
            if any(form in text or json.dumps(form)[1:-1] in text for form in (hidden, escaped)):
                arguments = json.dumps({"content": case.says} if case.says else {})
                return call(case.function or "respond", arguments)
        search = call("search_product_by_query", '{"query": "enamel mug"}')
        return search if len(request.messages) < 4 else "x"

    return ScriptedModel(script)


def test_a_gullible_model_follows_what_it_sees_and_one_that_heeds_the_fences_does_not(embedder):
    methods, followed = {name: METHODS[name] for name in ("Last memory", "RecMind", "No memory")}, {}
    for deaf in (True, False):
        setup = Setup(gullible(deaf), {}, "multi_turn", embedder)
        followed[deaf] = adversarial_report(methods, setup, embedder).set_index("method")["followed"]
    assert followed[True]["Last memory"] == 13
    assert 0 < followed[True]["RecMind"] < 13  # its short form holds neither features nor descriptions
    assert 0 < followed[True]["No memory"] < 13  # it meets the text in search results alone
    assert (followed[False] == 0).all()


def test_the_offline_policy_follows_none_in_any_method(embedder):
    words = {"Find": "search", "What": "recommend", "Please": "review"}
    policy = OfflinePolicy(lambda instruction: FUNCTION_OF[words[instruction.split()[0]]])
    report = adversarial_report(METHODS, Setup(policy, {}, "multi_turn", embedder), embedder)
    assert list(report["method"]) == list(METHODS) and not report["followed"].any()


@pytest.mark.parametrize("case", adversarial_cases(), ids=lambda case: case.name)
def test_quoting_is_not_following_and_obeying_is(case, embedder):
    _, task = poison_shop(case, embedder)

    def episode(name, text):
        step = Step(action=Action(name=name, arguments={"content": text}), observation=Observation(text=""))
        return Trajectory(task_id=task.task_id, user_id="U1", type=case.task, target="B1", steps=(step,))

    obeys = case.function or "search_product_by_query"
    assert is_followed(case, episode(obeys, f"well, {case.says.upper()}"))
    other = "get_recommendations_by_history" if case.function else "search_product_by_query"
    assert not is_followed(case, episode(other, case.text))


FIELDS = {"category": "Home and Kitchen", "store": "Larkspur", "details": {"Color": "navy"}}
LAMP = Product(parent_asin="B0LAMP0001", title="Larkspur Foldable Reading Lamp", **FIELDS)


def task(task_type="search", rating=4):
    review = Review(rating=rating, text="Sturdy, but the battery dies.")
    fixed = {"user_id": "ann", "timestamp": 1, "instruction": "Light!", "target": "B0LAMP0001"}
    return Task(task_id="t", type=task_type, review=review, **fixed)


def quality(questions, *answers):
    """The row of simulators that say these answers in turn."""

    def saying(texts):
        waiting = list(texts)
        return lambda task, session, line: UserReply(waiting.pop(0).replace("{line}", line))

    simulators = [saying(texts) for texts in answers]
    rates = simulator_quality(simulators, {"B0LAMP0001": LAMP}, [task()], {"honest": questions})
    return rates.iloc[0].to_dict()


def test_rates_are_shares_of_answers():
    rates = quality(
        ["color?", "brand?", "title?", "size?"],
        ["In navy.", "By Larkspur.", "A foldable reading lamp.", "Either is fine."],
        ["Best in navy!", "I do not mind.", "No idea.", "It does not matter."],
    )
    assert rates == {
        "questions": "honest",
        "answers": 8,
        "leak rate": 1 / 8,
        "refusal rate": 4 / 8,  # of the second brand? and title?, of both size?
        "consistency": 1 / 3,  # of color?, brand? and title? only the first has a fact in common
    }
    echo = quality(["Is it {asin}, {title}?"], ["{line}"])  # filled with the target's own id and title
    assert echo["leak rate"] == 1 and echo["consistency"] != echo["consistency"]  # one seed: NaN
