"""Scripted episodes, what judges are shown of them, and how they agree with the truth."""

import json
import math
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web.agents.offline import SCRIPTS
from pwagents.persona2web.judge.judges import LlmJudge, read_scores, request_for, tell, transcribe
from pwagents.persona2web.judge.meta import agreement, judge_scripts, meta_evaluation, play_scripts
from pwagents.persona2web.judge.scores import VIEWS, Scores, scores_frame
from pwagents.persona2web.world.types import AskStep, WebStep

from .worlds import make_world


def make(found, used, intent):
    return Scores(
        website_utilization=used, preference_retrieval=found, preference_utilization=used, intent=intent
    )


some = st.builds(make, *[st.sampled_from([0.0, 0.5, 1.0])] * 3)


@given(st.lists(some, min_size=2, max_size=20))
def test_a_judge_that_says_the_truth_agrees_wholly(truth):
    rows = agreement(truth, truth)
    assert (rows["accuracy"] == 1).all() and (rows["judged"] == len(truth)).all()
    known = rows[["spearman", "pearson", "kappa"]].stack().dropna()
    assert known.to_numpy() == pytest.approx(1)


def test_each_measure_is_compared_by_itself():
    truth = [make(1, 1, 0), make(0, 0, 1), make(1, 0, 0), make(0, 1, 1)]
    swapped = [make(1, 1, 1), make(0, 0, 0), make(1, 0, 1), make(0, 1, 0)]
    rows = agreement(truth, swapped).set_index("measure")
    assert rows.loc["preference", "kappa"] == 1 and rows.loc["intent", "pearson"] == pytest.approx(-1)
    assert rows.loc["intent", "accuracy"] == 0


def test_replies_that_cannot_be_read_are_counted_apart():
    rows = agreement([make(1, 1, 1), make(0, 0, 0)], [None, make(0, 0, 0)])
    assert (rows["judged"] == 1).all() and (rows["unreadable"] == 1).all()
    assert rows["accuracy"].eq(1).all() and all(map(math.isnan, rows["spearman"]))


@pytest.fixture(scope="module")
def world():
    return make_world(n_users=2, tasks_per_user=1, records=300)


@pytest.fixture(scope="module")
def played(world, tmp_path_factory):
    store = tmp_path_factory.mktemp("scripts") / "runs"
    return play_scripts(world, store, "indexed")


def test_each_script_fails_where_it_should(world, played):
    means = {name: scores_frame(played[name], world).mean(numeric_only=True) for name in SCRIPTS}
    for name in SCRIPTS[:2]:
        assert means[name]["success"] == 1
    for name in SCRIPTS[2:-1]:
        assert means[name]["success"] == 0, name
    assert means["no retrieval"]["website_retrieval"] == means["wrong records"]["preference_retrieval"] == 0
    assert means["found and unused"]["preference_retrieval"] == 1
    assert means["found and unused"]["preference_utilization"] == 0
    assert means["lucky item"]["preference_utilization"] == 0
    assert means["wrong site"]["website_utilization"] == 0
    assert means["navigation error"]["intent"] == 0
    assert means["site fault"]["fault"] == 1


def transcripts(world, played, view):
    tasks = {task.task_id: task for task in world.tasks}
    events = {e.event_id: e for history in world.histories.values() for e in history.events}
    routes = {record.task_id: record.trajectory for record in played[SCRIPTS[0]]}
    return [
        transcribe(tasks[r.task_id], r.trajectory, view, events, routes[r.task_id])
        for records in played.values()
        for r in records
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_judges_see_no_ids_and_no_state_and_no_more_than_the_view(world, played, view):
    ids = {event.event_id for history in world.histories.values() for event in history.events}
    ids |= {item.item_id for site in world.web.sites.values() for item in site.items}
    for each in transcripts(world, played, view):
        said = tell(each)
        words = set(re.findall(r"[\w-]+", said))
        assert not words & ids
        assert ("Asked the history" in said) <= (view == "reasoning_aware")
        assert ("because:" in said) <= (view == "reasoning_aware")
        assert ("Last page" in said) == (view != "action_wise")


@pytest.mark.parametrize("view", VIEWS)
def test_only_who_sees_reasons_is_told_what_the_user_said(world, played, view):
    task = world.tasks[0]
    trajectory = next(r.trajectory for r in played[SCRIPTS[0]] if r.task_id == task.task_id)
    answered = AskStep(question="Which seat?", answer="By the window.")
    asked = trajectory.model_copy(update={"steps": (answered, *trajectory.steps)})
    events = {e.event_id: e for history in world.histories.values() for e in history.events}
    said = tell(transcribe(task, asked, view, events, trajectory))
    assert ("Asked the user: Which seat?\nTold: By the window." in said) == (view == "reasoning_aware")


def test_of_several_actions_a_step_the_last_one_failed(world, played):
    task = world.tasks[0]
    trajectory = next(r.trajectory for r in played[SCRIPTS[0]] if r.task_id == task.task_id)
    step = WebStep(observation="", action="go_back\nclick [99]", error="no such element")
    failed = trajectory.model_copy(update={"steps": (step,)})
    did = transcribe(task, failed, "reasoning_aware", {}).did
    assert [(each.action, each.error) for each in did] == [("go_back", ""), ("click [99]", "no such element")]


@pytest.fixture(scope="module")
def table(world, played):
    return judge_scripts(world, played).set_index(["judge", "measure", "view"]).sort_index()


def test_the_programmatic_judge_is_the_truth_where_it_sees_all(table):
    whole = table.loc["programmatic"].xs("reasoning_aware", level="view")
    assert whole[["spearman", "pearson", "accuracy", "kappa"]].to_numpy() == pytest.approx(1)


@pytest.mark.parametrize("judge", ["programmatic", "rules"])
def test_reading_reasons_agrees_more_than_actions_or_outcomes(table, judge):
    for column, other in product(["spearman", "accuracy"], ["action_wise", "outcome"]):
        found = table.loc[judge, "preference"][column]
        assert found["reasoning_aware"] > found[other]


class Says(ChatModel):
    """Gives what it is told to give."""

    name = "says"

    def __init__(self, text):
        self.text = text

    def reply(self, request):
        return Reply(text=self.text)


def test_a_language_model_judges_what_its_view_shows(world, played):
    shown = transcripts(world, played, "reasoning_aware")[:2]
    names = set(re.findall(r"^- (\w+):", request_for(shown[0]).messages[0]["content"], re.MULTILINE))
    assert {"website_retrieval", "preference_retrieval", "intent"} <= names
    blind = transcripts(world, played, "outcome")[0]
    assert "retrieval" not in request_for(blind).messages[0]["content"]
    reply = json.dumps(dict.fromkeys(names, 0.5))
    assert [each.p_avg for each in LlmJudge(Says(f"Sure: {reply}"))(shown)] == [0.5, 0.5]


@pytest.mark.parametrize("reply", ["", "all good", "{}", '{"intent": 1}', '{"intent": 0.7}', "{" * 300])
def test_a_reply_that_holds_no_scores_is_none(world, played, reply):
    assert LlmJudge(Says(reply))(transcripts(world, played, "outcome")[:1]) == [None]


def test_scores_off_the_scale_are_refused(world, played):
    shown = transcripts(world, played, "outcome")[0]
    scores = {"website_utilization": 1, "preference_utilization": 1, "intent": 0.7}
    assert read_scores(Reply(text=json.dumps(scores)), shown) is None
    assert read_scores(Reply(text=json.dumps(scores | {"intent": 1})), shown).intent == 1


def test_the_notebooks_table_has_a_row_for_each_judge_view_and_measure(world, tmp_path):
    rows = meta_evaluation(world, tmp_path / "runs", Says("no scores"), n_tasks=1)
    assert len(rows) == len(rows[["judge", "view", "measure"]].drop_duplicates()) == 3 * 3 * 4
    assert (rows["judged"] + rows["unreadable"] == len(SCRIPTS)).all()
    assert (rows.loc[rows["judge"] == "language model", "judged"] == 0).all()
