"""Examples are chosen by a rule, and show what they say."""

import pandas as pd
import pytest

from pwagents.orion.analyses import gains, judged_actions, longest_dialogue, most_questions, show_task
from pwagents.orion.references import ORACLE, TEACHER, play_references
from pwagents.orion.runs import OrionRuns
from pwagents.orion.train import OrionModels

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
