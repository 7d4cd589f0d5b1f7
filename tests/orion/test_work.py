"""What policies do: whether calls repeat their prompt or follow what was told, what they ask for."""

import re

import pandas as pd
import pytest
from pwagents_old.orion.analyses import NOTHING, frequent_patterns, gains, queries, questions, sameness
from pwagents_old.orion.control import identify_parts
from pwagents_old.orion.work import ANSWER, LINE, first_prompts, follow_swaps, wasted_calls, who_does_the_work

from pwagents.schema import Action, Review, Task
from pwagents.shop.score import grade

from .small_study import call, play, record, step


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
    assert {name: tuple(row) for name, row in shares.iterrows()} == {
        name: tuple(expected) for name, (_, *expected) in episodes.items() if None not in expected
    }
    assert (table["calls"] == 1).all() and table["ids told"].isna().all()
    task = next(t for t in study.test_tasks if t.type == "recommend")
    told = study.context(task).purchases[0].asin
    row = who_does_the_work(study, [record(task, [step(call("recommend", [told, "B0NONE"]))])])
    assert row["ids told"].item() == 0.5


def test_the_prompt_of_a_first_call_is_written_down(study, searches):
    task = next(t for t in searches if study.context(t).profile.lines)
    steps = [step(call("ask", "Which?"), "Lime zest."), search("lime"), search("zebra")]
    written = first_prompts(study, [record(task, steps, "SFT"), record(task, steps[:1], "no call")])
    (row,) = written.to_dict("records")
    assert (row["task_id"], row["method"]) == (task.task_id, "SFT")
    parts = [task.instruction, study.context(task).profile.lines[0].value, "Which?", "Lime zest."]
    places = [row["prompt"].index(part) for part in parts]
    assert places == sorted(places) and "search_product_by_query" not in row["prompt"]


def test_a_query_of_all_that_the_profile_wants_is_seen_in_any_order(study, searches):
    task = next(t for t in searches if len(study.context(t).profile.lines) > 2)
    lines = [line for line in study.context(task).profile.lines if line.positive and line.about != "topic"]
    values = [line.value for line in lines if not line.is_amount]
    queries = {f"{task.instruction} {' '.join(values[::-1])}": 1, f"{values[0]} zebra crossing": 0}
    records = [record(task, [search(query)], query) for query in queries]
    records.append(record(task, [step(call("review", "Fine."))], "no query"))
    shares = who_does_the_work(study, records).set_index("method")["the whole profile"]
    assert shares.dropna().to_dict() == queries


def test_wasted_calls_are_counted_by_kind(searches):
    cut = step(Action(problem="cut off", problem_kind="cut_off"), error="cut off", error_kind="cut_off")
    odd = step(call("search"), error="no query", error_kind="wrong_arguments")
    records = [
        record(searches[0], [search("a"), search("b"), search("a"), cut, odd]),
        record(searches[0], []),
    ]
    (row,) = wasted_calls(records).to_dict("records")
    assert row == {"method": "m", "repeated": 0.5, "cut off": 0.5, "malformed": 0.5}


def wants(messages):
    """The wishes that the profile told last holds."""
    told = [m["content"].split("Wants:\n")[1] for m in messages[1:] if "Wants:\n" in m["content"]]
    lines = re.findall(r"^- \[\w+\] (?!not )[a-z]+: (.+)$", told[-1], flags=re.MULTILINE)
    return " ".join(lines)


def test_where_an_answer_or_a_line_says_something_else_the_query_of_who_reads_follows(study, searches):
    """The reader searches for all that is wanted; the deaf one searches for what it always has."""
    records = []
    for task in searches:
        states, _ = play(study, study.teacher(0, 4), task)
        before = next(s for s in states if s.session and not s.session[-1].is_talk)
        told = [x.value for x in before.profile.lines if x.positive]
        records.append(record(task, [*before.session[:-1], search(" ".join(told))]))

    def read(conversations):
        return [call("search", wants(messages)) for messages in conversations]

    def deaf(conversations):
        return [call("search", "navy towel") for _ in conversations]

    for act, share in ((read, 1.0), (deaf, 0.0)):
        table = follow_swaps(study, records, act).set_index("swapped")
        assert (table["tasks"] > 2).all() and list(table.index) == [ANSWER, LINE]
        assert table["follows"].tolist() == [share, share]


def test_two_policies_that_do_the_same_on_nine_tasks_of_ten_are_not_identified():
    names = ["w/o update", "w/o asking"]

    def episodes(method, asks=(1,) * 10, query="red mug", found=0.5):
        told = {"method": method, "seed": 0, "type": "search", "query": query, "result_final": found}
        rows = [told | {"task_id": f"t{i}", "asks": n, "return": n / 10} for i, n in enumerate(asks)]
        lost = {"task_id": "lost", "asks": 9.0, "return": 9.0, "result_final": float("nan")}
        review = {"task_id": "review", "type": "review", "query": method, "asks": 1, "return": 0.1}
        return [*rows, told | lost, told | review]

    def compared(**changed):
        both = pd.DataFrame([*episodes(names[0]), *episodes(names[1], **changed)])
        (row,) = identify_parts(both.sample(frac=1, random_state=0), names).to_dict("records")
        return row

    nine, five = compared(asks=[1] * 9 + [0]), compared(asks=[1] * 5 + [0] * 5)
    assert compared()["verdict"] == nine["verdict"] == "not identified" and five["verdict"] == "identified"
    assert five["as often"] == five["w/o asking: questions"] == pytest.approx(6 / 11)
    assert five["w/o update: return"] == pytest.approx(0.1)
    for changed, share in (({"query": "mug"}, "same query"), ({"found": 1.0}, "same result")):
        row = compared(**changed)
        assert row["verdict"] == "identified" and row[share] == 0 and five[share] == 1


# What is asked and searched for, by attributes


def found(result, query, **fields):
    """A search with this result accuracy."""
    shown = [*(f"B{i}" for i in range(round(10 * (1 - result)))), "the target"]
    return step(call("search", query), "", shown, **fields)


COLOR = step(call("ask", "Which color would you like?"), "Navy.")
BRAND = step(call("ask", "And which brand?"), "Any.")


def played(task_id, *steps, **told):
    given = {"task_id": task_id, "user_id": "u", "type": "search", "timestamp": 1, "instruction": "go"}
    task = Task(**given, target="the target", review=Review(rating=5))
    return record(task, steps, **told)


def test_the_most_frequent_patterns_of_two_methods_stand_side_by_side(catalogue):
    records = [
        played("a", COLOR, BRAND, found(0.5, "navy towel"), found(1.0, "white towel")),
        played("b", found(0.0, "towel"), found(1.0, "navy", error="no")),
        played("c", outcome="not_evaluable"),
        played("a", found(0.5, "navy cotton towel Willow premium"), method="n"),
        played("b", found(0.5, "?"), found(0.5, "towel quickly"), method="n"),
    ]
    scored = [(r, grade(r.trajectory).result_final) for r in records if r.trajectory]
    rows = [(r.method, r.task_id, final, len(r.trajectory.steps)) for r, final in scored]
    results = pd.DataFrame(rows, columns=["method", "task_id", "result_final", "return"])
    table = frequent_patterns(records, results, lambda t: queries(t, catalogue))
    assert table["m"].dropna().to_numpy().tolist() == [["color + type", 0.5, 1.0, 4], ["type", 0.5, 0.0, 2]]
    assert table["n"]["pattern"].tolist() == [
        "brand + color + material + price + type",
        NOTHING,
        "other words + type",
    ]
    asked = frequent_patterns(records, results, lambda t: questions(t, catalogue), n=1)
    assert (asked["m", "pattern"].tolist(), asked["n", "pattern"].tolist()) == (["color, brand"], [NOTHING])


def test_who_asks_the_same_on_every_task_is_seen(catalogue):
    records = [played(name, COLOR) for name in "abc"] + [played("d", BRAND, COLOR)]
    records += [played("e", outcome="not_evaluable"), played("a", BRAND, method="n")]
    always, other = sameness(records, catalogue).to_dict("records")
    told = {"most frequent": "color", "share": 0.75, "different": 2, "questions": 1.25}
    assert always == {"method": "m"} | told and (other["most frequent"], other["share"]) == ("brand", 1)


def test_gains_leave_out_what_was_not_scored():
    rows = [("a", "t1", 0.2), ("b", "t1", 0.9), ("a", "t2", 0.5), ("b", "t2", None)]
    frame = pd.DataFrame(rows, columns=["method", "task_id", "result_final"])
    assert gains(frame, "a", "b").to_dict() == {"t1": pytest.approx(0.7)}
