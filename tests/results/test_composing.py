"""Who does the work: calls that repeat their prompt, and queries that follow what was told."""

import re

import pytest

from pwagents.orion.teacher import make_teacher
from pwagents.results.composing import ANSWER, BOTH, HISTORY, STATED, follow_swaps, who_does_the_work

from ..orion.small_study import call, play, record, step


def search(query):
    return step(call("search", query))


@pytest.fixture(scope="module")
def searches(study):
    return [task for task in study.test_tasks if task.type == "search"]


def test_a_first_call_that_repeats_its_prompt_is_seen(study, searches):
    task = next(t for t in searches if len(study.context(t).profile.lines) > 2)
    one, other, *_ = (line.value for line in study.context(task).profile.lines)
    asked = step(call("ask", "Which?"), "Lime zest.")
    episodes = {  # method -> its steps; one line, two or three lines, within the profile
        "the instruction": ([search(task.instruction)], 1, 1, 0),
        "a line": ([search(one)], 1, 1, 1),
        "a first call alone counts": ([search("zebra"), search(one)], 0, 0, 0),
        "an answer is a line": ([asked, search("lime zest")], 1, 1, 0),
        "two lines": ([search(f"{one} {other}")], 0, 1, 1),
        "words of its own": ([search(f"zebra crossing {one} {other}")], 0, 0, 0),
        "no call": ([asked], None, None, None),
    }
    records = [record(task, steps, method) for method, (steps, *_) in episodes.items()]
    table = who_does_the_work(study, records)
    shares = table.drop(columns=["type", "calls", "ids told", "the whole profile"]).set_index("method")
    expected = {name: tuple(told) for name, (_, *told) in episodes.items() if None not in told}
    assert {name: tuple(row) for name, row in shares.iterrows()} == expected
    assert (table["calls"] == 1).all() and table["ids told"].isna().all()
    task = next(t for t in study.test_tasks if t.type == "recommend")
    told = study.context(task).purchases[0].asin
    row = who_does_the_work(study, [record(task, [step(call("recommend", [told, "B0NONE"]))])])
    assert row["ids told"].item() == 0.5


def test_a_query_of_all_that_the_profile_wants_is_seen_in_any_order(study, searches):
    task = next(t for t in searches if len(study.context(t).profile.lines) > 2)
    lines = [line for line in study.context(task).profile.lines if line.positive and line.about != "topic"]
    values = [line.value for line in lines if not line.is_amount]
    queries = {f"{task.instruction} {' '.join(values[::-1])}": 1, f"{values[0]} zebra crossing": 0}
    records = [record(task, [search(query)], query) for query in queries]
    records.append(record(task, [step(call("review", "Fine."))], "no query"))
    shares = who_does_the_work(study, records).set_index("method")["the whole profile"]
    assert shares.dropna().to_dict() == queries


def wants(messages):
    """The wishes that the profile told last holds."""
    told = [m["content"].split("Wants:\n")[1] for m in messages[1:] if "Wants:\n" in m["content"]]
    lines = re.findall(r"^- \[\w+\] (?!not )[a-z]+: (.+)$", told[-1], flags=re.MULTILINE)
    return " ".join(lines)


def test_where_an_answer_or_a_line_says_something_else_the_query_of_who_reads_follows(study, searches):
    """One searches for all that the profile wants, one for what was answered, one for what it always has."""
    records = []
    for task in searches:
        states, _ = play(study, make_teacher(study, 0, 4), task)
        before = next(s for s in states if s.session and not s.session[-1].is_talk)
        told = [x.value for x in before.profile.lines if x.positive]
        records.append(record(task, [*before.session[:-1], search(" ".join(told))]))

    def read(conversations):
        return [call("search", wants(messages)) for messages in conversations]

    def listen(conversations):
        said = ([m["content"].split("Profile:")[0] for m in each[3::2]] for each in conversations)
        return [call("search", " ".join(texts)) for texts in said]

    def deaf(conversations):
        return [call("search", "navy towel") for _ in conversations]

    for act, shares in ((read, [1, 0, 1, 1]), (listen, [1, 1, 0, 0]), (deaf, [0, 0, 0, 0])):
        table = follow_swaps(study, records, act).set_index("swapped")
        assert (table["tasks"] > 2).all() and list(table.index) == [BOTH, ANSWER, STATED, HISTORY]
        assert table["follows"].tolist() == shares and table["tasks"][:3].nunique() == 1
