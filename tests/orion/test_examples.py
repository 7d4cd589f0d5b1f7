"""Examples are chosen by a rule, and show what they say."""

import pandas as pd
import pytest

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.orion.analyses import (
    gains,
    judged_actions,
    longest_dialogue,
    most_questions,
    show_task,
    who_does_the_work,
)
from pwagents.orion.references import ORACLE, TEACHER, play_references
from pwagents.orion.runs import OrionRuns
from pwagents.orion.train import OrionModels
from pwagents.schema import Action, Observation, Step, Trajectory

from .small_study import small_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return small_study(tmp_path_factory.mktemp("examples"))


def test_the_judge_scores_actions_alike_whatever_the_target_is(study):
    state, scores = judged_actions(study)
    assert state.instruction and scores["score"].tolist() == scores["with another target"].tolist()
    by_action = scores.set_index("action")["score"]
    assert by_action["stops at once"] == -1 < by_action["asks nothing in particular"] < 0


def test_the_conversation_with_the_most_questions_comes_with_its_task(study):
    role_play = OrionModels(study).role_play(4)
    task, longest = most_questions(study, role_play, 4)
    assert task.task_id == longest.task_id
    assert len(longest.trajectory.steps) == max(len(each.trajectory.steps) for each in role_play.kept)
    assert "respond" in longest_dialogue(OrionModels(study).base_text)


def test_a_task_is_shown_as_several_methods_played_it(study):
    played = play_references(OrionRuns(study))
    task = study.test_tasks[0]
    page = show_task(study, {name: played[name] for name in (TEACHER, ORACLE)}, task.task_id).data
    assert page.index(TEACHER) < page.index(ORACLE) and task.instruction.split(".")[0] in page


def test_gains_leave_out_what_was_not_scored():
    rows = [("a", "t1", 0.2), ("b", "t1", 0.9), ("a", "t2", 0.5), ("b", "t2", None)]
    frame = pd.DataFrame(rows, columns=["method", "task_id", "result_final"])
    assert gains(frame, "a", "b").to_dict() == {"t1": pytest.approx(0.7)}


def test_a_first_call_that_repeats_its_prompt_is_seen(study):
    avoided = {
        t.task_id: [x.value for x in study.context(t).profile.lines if not x.positive]
        for t in study.test_tasks
    }
    task = next(t for t in study.test_tasks if len(avoided[t.task_id]) > 1)
    wanted, (one, other, *_) = study.context(task).profile.query, avoided[task.task_id]
    asked = Action(name="respond", arguments={"content": "Which?"})
    answered = Step(action=asked, observation=Observation(text="Lime zest."))
    episodes = {  # method -> its steps; one line, two or three lines, within the profile
        "a line": ([call(wanted)], 1, 1, 1),
        "a first call alone counts": ([call("zebra"), call(wanted)], 0, 0, 0),
        "an answer is a line": ([answered, call("lime zest")], 1, 1, 0),
        "two lines": ([call(f"{one} {other}")], 0, 1, 1),
        "a word of its own": ([call(f"zebra crossing {one} {other}")], 0, 0, 0),
        "no call": ([answered], None, None, None),
    }
    given = {"task_id": task.task_id, "user_id": task.user_id, "type": "search"}
    records = [
        EpisodeRecord(
            **given, key="k", method=name, model="none", params={}, outcome="scored", seconds=0.0,
            trajectory=Trajectory(**given, target=task.target, steps=tuple(steps)),
        )
        for name, (steps, *_) in episodes.items()
    ]  # fmt: skip
    table = who_does_the_work(study, records)
    shares = table.drop(columns=["type", "calls"]).set_index("method")
    assert {name: tuple(row) for name, row in shares.iterrows()} == {
        name: tuple(expected) for name, (_, *expected) in episodes.items() if None not in expected
    }
    assert (table["calls"] == 1).all()


def call(query):
    action = Action(name="search_product_by_query", arguments={"query": query})
    return Step(action=action, observation=Observation(text=""))
