"""Scores of episodes; and judges: what they are shown, how they agree with the truth and with a person."""

import json
import math
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError
from pwagents.llm.chat import Reply
from pwagents.persona2web.agents.offline import VALID
from pwagents.persona2web.judge import judges, meta
from pwagents.persona2web.judge.judges import ask_judge, judge_by_rules, transcribe
from pwagents.persona2web.judge.meta import agreement, judge_agents, judge_scripts, play_scripts
from pwagents.persona2web.judge.scores import VIEWS, Scores, judge, scores_frame
from pwagents.persona2web.world.types import Goal, MemoryStep, Request, Truth, WebStep, WebTask, WebTrajectory

from .worlds import Says, make_world

HOST, OTHER, PORTAL = "skylark.test", "wayfarely.test", "start.test"
MASKED = {"seat": "window", "price": 200.0}
GOAL = Goal(domain="flights", host=HOST, operation="booking", stated={"city": "Oslo"}, masked=MASKED)
TEXTS = dict.fromkeys((0, 1, 2), "Book a flight to Oslo")
TASK = WebTask(task_id="t", user_id="u", now=1, texts=TEXTS, goal=GOAL)
SUPPORT = {"website": "abcd", "seat": "efg", "price": "hi"}
TRUTH = Truth({("u", "flights", facet): frozenset(ids) for facet, ids in SUPPORT.items()})
ALL = {"city": "Oslo", "seat": "window", "price": 200.0}


def ask(host=HOST, applied=None, operation="", status=200, domain="flights", path="/search", **params):
    fields = {"applied": applied or {}, "operation": operation, "params": params, "domain": domain}
    return Request(host=host, path=path, status=status, **fields)


def judged(requests=(), found="abcdefghi", **fields):
    looks = (MemoryStep(query="?", retrieved=tuple(found), answer="!"),) if found else ()
    fields = {"scheme": "on_demand", "architecture": "occam", "level": 2} | fields
    return judge(TASK, WebTrajectory(task_id="t", steps=looks, requests=tuple(requests), **fields), TRUTH)


SCORE = st.sampled_from([0.0, 0.5, 1.0])
ANY = st.builds(
    Scores,
    website_retrieval=st.none() | SCORE,
    website_utilization=SCORE,
    preference_retrieval=st.none() | SCORE,
    preference_utilization=SCORE,
    intent=SCORE,
    reached=st.booleans(),
)


@given(ANY)
def test_success_is_never_above_personalization_or_intent(each):
    assert each.success <= min(each.p_web, each.p_pref, each.p_avg, each.intent, each.reached)
    assert 0 <= each.p_avg <= 1


def test_found_used_and_done_is_a_success_and_what_a_level_states_need_not_be_found():
    requests = [ask(PORTAL), ask(applied=ALL), ask(operation="booking")]
    done = judged(requests, reached=True, intended=True)
    assert done.success == done.p_avg == done.intent == 1
    for level in (0, 1, 2):
        each = judged(requests, "", level=level, reached=True, intended=True)
        assert (each.website_retrieval is None) == (level == 0)
        assert (each.preference_retrieval is None) == (level < 2)
        assert each.success == (level == 0)


def test_retrieval_counts_supporting_records_whatever_is_done_with_them():
    cases = {"": (0, 0), "ab": (0.5, 0), "abc": (1, 0), "efg": (0, 0.5), "efghi": (0, 1), "ei": (0, 0.5)}
    for (found, scores), requests in product(cases.items(), ([], [ask(applied=ALL)])):
        each = judged(requests, found)
        assert (each.website_retrieval, each.preference_retrieval) == scores


WINDOW, WORDS = {"seat": "window"}, "Window seats under 200"


@pytest.mark.parametrize(
    ("requests", "score"),
    [
        ([ask(applied=ALL)], 1),
        ([ask(applied=WINDOW), ask(applied={"price": 200.0})], 1),
        ([ask(applied=WINDOW)], 0.5),
        ([ask(applied=WINDOW), ask(applied={"seat": "aisle", "price": 100.0})], 0),
        ([ask(q=WORDS)], 1),
        ([ask(q="windowless, 2000")], 0),
        ([ask(PORTAL, q=WORDS, domain="", path="/")], 0),
        ([ask(q=WORDS, status=503)], 0),
        ([ask(q=WORDS, domain="")], 0),
        ([ask(q=WORDS, path="/item/f1")], 0),
        ([ask(OTHER, q=WORDS, domain="hotels")], 0),
        ([ask(OTHER, {"price": 200.0}, domain="hotels"), ask(applied=WINDOW)], 0.5),
        ([ask(OTHER, ALL)], 1),  # the site is scored apart
        ([ask(operation="booking")], 0),
    ],
)
def test_preferences_are_used_where_they_are_applied_not_where_an_item_merely_fits(requests, score):
    assert judged(requests, reached=True).preference_utilization == score


def test_the_right_site_is_used_from_first_to_last_by_filters_words_and_operations():
    for use in (ask(q="Oslo"), ask(applied=ALL), ask(operation="booking")):
        elsewhere = use.model_copy(update={"host": OTHER})
        apart = elsewhere.model_copy(update={"domain": "hotels"})
        cases = [([use, use], 1), ([use, elsewhere], 0.5), ([elsewhere, use], 0.5), ([apart, use], 1)]
        for requests, score in [*cases, ([elsewhere], 0), ([], 0), ([ask(HOST), elsewhere], 0.5)]:
            assert judged(requests).website_utilization == score
        assert judged([ask(HOST, status=503), elsewhere]).website_utilization == 0


def test_a_fault_of_the_site_halves_the_intent_where_it_stopped_a_right_plan():
    oslo, down = ask(applied={"city": "Oslo"}), ask(status=503)
    halved = [[oslo, down], [oslo, down, ask(PORTAL, domain="")]]
    came_back = [[down, oslo], [oslo, down, ask(OTHER)]]
    for requests in (*halved, *came_back, [down], [oslo], [ask(applied={"city": "Rome"}), down]):
        assert judged(requests, site_fault=True).intent == (0.5 if requests in halved else 0)
        assert judged(requests, site_fault=True, intended=True).intent == 1


# --- agreement ---


@given(st.lists(ANY, min_size=2, max_size=20))
def test_a_judge_that_says_the_truth_agrees_wholly(truth):
    rows = agreement(truth, truth)
    assert (rows["accuracy"] == 1).all() and (rows["judged"] == len(truth)).all()
    known = rows[["spearman", "pearson", "kappa"]].stack().dropna()
    assert known.to_numpy() == pytest.approx(1)


def test_each_measure_is_compared_by_itself_and_what_cannot_be_read_is_counted_apart():
    def scores(used, intent):
        return Scores(website_utilization=used, preference_utilization=used, intent=intent)

    truth = [scores(1, 0), scores(0, 1), scores(0.5, 0), scores(0, 1)]
    swapped = [each.model_copy(update={"intent": 1 - each.intent}) for each in truth]
    rows = agreement(truth, swapped).set_index("measure")
    assert rows.loc["preference", "kappa"] == 1 and rows.loc["intent", "pearson"] == pytest.approx(-1)
    assert rows.loc["intent", "accuracy"] == 0
    rows = agreement(truth[:2], [None, truth[1]])
    assert (rows["judged"] == 1).all() and (rows["unreadable"] == 1).all()
    assert rows["accuracy"].eq(1).all() and all(map(math.isnan, rows["spearman"]))


# --- judges of episodes ---

ROUTES = [VALID, "valid route, another order"]


@pytest.fixture(scope="module")
def world():
    return make_world(n_users=2, tasks_per_user=1, records=300)


@pytest.fixture(scope="module")
def played(world, tmp_path_factory):
    return play_scripts(world, tmp_path_factory.mktemp("scripts") / "runs", 9)


@pytest.fixture
def transcripts(world, played):
    def transcripts(view, *names):
        tasks = {task.task_id: task for task in world.tasks}
        events = {e.event_id: e for history in world.histories.values() for e in history.events}
        routes = {record.task_id: record.trajectory for record in played[VALID]}
        return [
            transcribe(tasks[r.task_id], r.trajectory, view, events, routes[r.task_id])
            for name in names or played
            for r in played[name]
        ]

    return transcripts


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


def test_the_other_valid_route_differs_and_is_punished_by_its_actions_alone(transcripts):
    for first, other in zip(*(transcripts("action_wise", name) for name in ROUTES), strict=True):
        assert [each.action for each in first.did] != [each.action for each in other.did]
        assert judge_by_rules(first).intent == 1 > judge_by_rules(other).intent
    assert judges.common_sequence("abcde", "xbyd") == ("b", "d")
    assert judges.common_sequence("ab", "ba") in (("a",), ("b",))
    assert all(judge_by_rules(seen).intent == 1 for seen in transcripts("reasoning_aware", ROUTES[1]))


@pytest.mark.parametrize("view", VIEWS)
def test_judges_see_no_ids_and_no_state_and_no_more_than_the_view(world, transcripts, view):
    ids = {event.event_id for history in world.histories.values() for event in history.events}
    ids |= {item.item_id for site in world.web.sites.values() for item in site.items}
    for said in map(judges.tell, transcripts(view)):
        assert not {*re.findall(r"[\w-]+", said)} & ids
        assert ("Asked the history" in said) <= (view == "reasoning_aware")
        assert ("because:" in said) <= (view == "reasoning_aware")
        assert ("Last page" in said) == (view != "action_wise")


def test_of_several_actions_a_step_the_last_one_failed(world, played):
    step = WebStep(observation="", action="go_back\nclick [99]", error="no such element")
    failed = played[VALID][0].trajectory.model_copy(update={"steps": (step,)})
    did = transcribe(world.tasks[0], failed, "reasoning_aware", {}).did
    assert [(each.action, each.error) for each in did] == [("go_back", ""), ("click [99]", "no such element")]


def test_reading_reasons_agrees_more_than_actions_or_outcomes(world, played):
    rows = judge_scripts(world, played, Says(lambda *_: "no scores"))
    assert len(rows) == len(rows[["judge", "view", "measure"]].drop_duplicates()) == 2 * 3 * 4
    assert (rows["judged"] + rows["unreadable"] == len(played) * len(world.tasks)).all()
    assert (rows.loc[rows["judge"] == "language model", "judged"] == 0).all()
    table = rows.set_index(["judge", "measure", "view"]).sort_index()
    for column, other in product(["spearman", "accuracy"], VIEWS[1:]):
        found = table.loc["rules", "preference"][column]
        assert found["reasoning_aware"] > found[other]


def test_a_language_model_judges_what_its_view_shows(transcripts):
    seen, blind = transcripts("reasoning_aware")[0], transcripts("outcome")[0]
    rubric, less = (judges.request_for(each).messages[0]["content"] for each in (seen, blind))
    names = {*re.findall(r"^- (\w+):", rubric, re.MULTILINE)}
    assert {"website_retrieval", "preference_retrieval", "intent"} <= names and "retrieval" not in less
    reply = json.dumps(dict.fromkeys(names, 0.5))
    assert [each.p_avg for each in ask_judge(Says(lambda *_: f"Sure: {reply}"), [seen, seen])] == [0.5, 0.5]
    scores = {"website_utilization": 1, "preference_utilization": 1}
    assert judges.read_scores(Reply(text=json.dumps(scores | {"intent": 1})), blind).intent == 1
    off_the_scale = json.dumps(scores | {"intent": 0.7})
    for reply in ("", "all good", "{}", '{"intent": 1}', "{" * 300, off_the_scale):
        assert ask_judge(Says(lambda *_, reply=reply: reply), [blind]) == [None]


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
