"""Judges: scripted episodes, what judges are shown of them, how they agree with truth and person."""

import json
import math
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError
from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web.agents.offline import VALID
from pwagents.persona2web.judge import meta
from pwagents.persona2web.judge.judges import (
    ask_judge,
    common_sequence,
    judge_by_rules,
    read_scores,
    request_for,
    tell,
    transcribe,
)
from pwagents.persona2web.judge.meta import agreement, judge_agents, judge_scripts, play_scripts
from pwagents.persona2web.judge.scores import VIEWS, Scores, scores_frame
from pwagents.persona2web.world.types import WebStep

from .worlds import make_world


def make(found, used, intent):
    return Scores(
        website_utilization=used, preference_retrieval=found, preference_utilization=used, intent=intent
    )


ROUTES = [VALID, "valid route, another order"]
some = st.builds(make, *[st.sampled_from([0.0, 0.5, 1.0])] * 3)


@given(st.lists(some, min_size=2, max_size=20))
def test_a_judge_that_says_the_truth_agrees_wholly(truth):
    rows = agreement(truth, truth)
    assert (rows["accuracy"] == 1).all() and (rows["judged"] == len(truth)).all()
    known = rows[["spearman", "pearson", "kappa"]].stack().dropna()
    assert known.to_numpy() == pytest.approx(1)


def test_each_measure_is_compared_by_itself_and_what_cannot_be_read_is_counted_apart():
    truth = [make(1, 1, 0), make(0, 0, 1), make(1, 0, 0), make(0, 1, 1)]
    swapped = [make(1, 1, 1), make(0, 0, 0), make(1, 0, 1), make(0, 1, 0)]
    rows = agreement(truth, swapped).set_index("measure")
    assert rows.loc["preference", "kappa"] == 1 and rows.loc["intent", "pearson"] == pytest.approx(-1)
    assert rows.loc["intent", "accuracy"] == 0
    rows = agreement([make(1, 1, 1), make(0, 0, 0)], [None, make(0, 0, 0)])
    assert (rows["judged"] == 1).all() and (rows["unreadable"] == 1).all()
    assert rows["accuracy"].eq(1).all() and all(map(math.isnan, rows["spearman"]))


@pytest.fixture(scope="module")
def world():
    return make_world(n_users=2, tasks_per_user=1, records=300)


@pytest.fixture(scope="module")
def played(world, tmp_path_factory):
    return play_scripts(world, tmp_path_factory.mktemp("scripts") / "runs", 9)


def test_each_script_fails_where_it_should_and_both_routes_are_valid(world, played):
    means = {name: scores_frame(each, world).mean(numeric_only=True) for name, each in played.items()}
    success = {name: mean["success"] for name, mean in means.items() if name != "site fault"}
    assert len(success) == 9 and success == {name: name.startswith(VALID) for name in success}
    assert means["no retrieval"]["website_retrieval"] == means["wrong records"]["preference_retrieval"] == 0
    assert means["found and unused"]["preference_retrieval"] == 1
    assert means["found and unused"]["preference_utilization"] == 0
    assert means["lucky item"]["preference_utilization"] == 0
    assert means["wrong site"]["website_utilization"] == 0
    assert means["navigation error"]["intent"] == 0
    assert means["site fault"]["fault"] == 1


def transcripts(world, played, view, names=None):
    tasks = {task.task_id: task for task in world.tasks}
    events = {e.event_id: e for history in world.histories.values() for e in history.events}
    routes = {record.task_id: record.trajectory for record in played[VALID]}
    return [
        transcribe(tasks[r.task_id], r.trajectory, view, events, routes[r.task_id])
        for name in names or played
        for r in played[name]
    ]


def test_the_other_valid_route_differs_and_is_punished_by_its_actions_alone(world, played):
    for first, other in zip(
        *(transcripts(world, played, "action_wise", [name]) for name in ROUTES), strict=True
    ):
        assert [each.action for each in first.did] != [each.action for each in other.did]
        assert judge_by_rules(first).intent == 1 > judge_by_rules(other).intent
    assert common_sequence("abcde", "xbyd") == ("b", "d") and common_sequence("ab", "ba") in (("a",), ("b",))
    for seen in transcripts(world, played, "reasoning_aware", ROUTES[1:]):
        assert judge_by_rules(seen).intent == 1


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


def test_of_several_actions_a_step_the_last_one_failed(world, played):
    task = world.tasks[0]
    trajectory = next(r.trajectory for r in played[VALID] if r.task_id == task.task_id)
    step = WebStep(observation="", action="go_back\nclick [99]", error="no such element")
    failed = trajectory.model_copy(update={"steps": (step,)})
    did = transcribe(task, failed, "reasoning_aware", {}).did
    assert [(each.action, each.error) for each in did] == [("go_back", ""), ("click [99]", "no such element")]


class Says(ChatModel):
    """Gives what it is told to give."""

    name = "says"

    def __init__(self, text):
        self.text = text

    def reply(self, request):
        assert not request.sampling  # some judges refuse a temperature
        return Reply(text=self.text)


def test_reading_reasons_agrees_more_than_actions_or_outcomes(world, played):
    rows = judge_scripts(world, played, Says("no scores"))
    assert len(rows) == len(rows[["judge", "view", "measure"]].drop_duplicates()) == 2 * 3 * 4
    assert (rows["judged"] + rows["unreadable"] == len(played) * len(world.tasks)).all()
    assert (rows.loc[rows["judge"] == "language model", "judged"] == 0).all()
    table = rows.set_index(["judge", "measure", "view"]).sort_index()
    for column, other in product(["spearman", "accuracy"], VIEWS[1:]):
        found = table.loc["rules", "preference"][column]
        assert found["reasoning_aware"] > found[other]


def test_a_language_model_judges_what_its_view_shows(world, played):
    shown = transcripts(world, played, "reasoning_aware")[:2]
    names = set(re.findall(r"^- (\w+):", request_for(shown[0]).messages[0]["content"], re.MULTILINE))
    assert {"website_retrieval", "preference_retrieval", "intent"} <= names
    blind = transcripts(world, played, "outcome")[0]
    assert "retrieval" not in request_for(blind).messages[0]["content"]
    reply = json.dumps(dict.fromkeys(names, 0.5))
    assert [each.p_avg for each in ask_judge(Says(f"Sure: {reply}"), shown)] == [0.5, 0.5]
    scores = {"website_utilization": 1, "preference_utilization": 1, "intent": 0.7}  # off the scale
    assert read_scores(Reply(text=json.dumps(scores)), blind) is None
    assert read_scores(Reply(text=json.dumps(scores | {"intent": 1})), blind).intent == 1


@pytest.mark.parametrize("reply", ["", "all good", "{}", '{"intent": 1}', "{" * 300])
def test_a_reply_that_holds_no_scores_is_none(world, played, reply):
    assert ask_judge(Says(reply), transcripts(world, played, "outcome")[:1]) == [None]


def test_a_persons_labels_are_compared_where_the_sheet_was_filled(world, played, tmp_path):
    records, sheet = [*played[VALID], *played["found and unused"]], tmp_path / "labels" / "sheet.csv"
    meta.write_sheet(sheet, world, records)
    lines = sheet.read_text().replace("valid route,,,,,", "valid route,1,1,1,1,1")
    sheet.write_text(lines)
    assert {scores.success for scores in meta.read_sheet(sheet).values()} == {1.0}
    rows = judge_agents(world, records, None, sheet).set_index(["reference", "judge", "measure"])
    assert set(rows.index.get_level_values("reference")) == {"truth", "person"}
    labeled = rows.loc["person", "programmatic", "success"]
    assert labeled["judged"] == len(world.tasks) and labeled["accuracy"] == 1
    sheet.write_text(lines.replace("valid route,1,", "valid route,7,"))
    with pytest.raises(DataError, match="row 1, field 'scores'"):
        meta.read_sheet(sheet)
