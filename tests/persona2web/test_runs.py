"""Oracle, chance and the offline agent on the local web, kept and scored by the project's runner."""

from dataclasses import replace

import pytest

from pwagents.errors import NotEvaluableError
from pwagents.persona2web.agents.episode import CODE, Condition, run_condition
from pwagents.persona2web.agents.offline import Guesser, OfflineAgent, Oracle
from pwagents.persona2web.agents.recall import train_readers
from pwagents.persona2web.browser.driver import HtmlDriver
from pwagents.persona2web.judge.scores import scores_frame
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.queries import answers_of

from .worlds import make_world


@pytest.fixture(scope="module")
def world():
    return make_world()


@pytest.fixture(scope="module")
def trained(world):
    return train_readers(world.histories, world.embedder)


def play(world, condition, agent_of, store, method="m", **options):
    records = run_condition(
        world, condition, agent_of, [HtmlDriver(world.web)], store, method=method, **options
    )
    return scores_frame(records, world)


def never(task):
    raise AssertionError(f"{task.task_id} was played again")


@pytest.mark.parametrize("architecture", ["occam", "indexed"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_oracle_solves_every_task(world, architecture, level, tmp_path):
    condition = Condition(architecture, "pre_execution", level)
    oracle = Oracle(world.truth("implicit"), architecture, "pre_execution")
    frame = play(world, condition, lambda task: oracle.for_task(task, level), tmp_path / "runs.jsonl")
    assert (frame["success"] == 1).all() and (frame["outcome"] == "scored").all()


def test_the_offline_agent_lies_between_no_history_and_the_oracle(world, trained, tmp_path):
    means = {}
    for scheme in ("none", "on_demand", "pre_execution"):
        condition = Condition("indexed", scheme)
        agents = {user: OfflineAgent(reader, "indexed", scheme) for user, reader in trained.items()}
        frame = play(
            world, condition, lambda task, agents=agents: agents[task.user_id], tmp_path / "runs", scheme
        )
        means[scheme] = frame[["p_avg", "intent", "success"]].mean()
        assert (frame["steps"] <= 25).all() and (frame["looks"] > 0).all() == (scheme != "none")
    assert means["none"]["success"] == 0
    for scheme in ("on_demand", "pre_execution"):
        assert means["none"]["p_avg"] < means[scheme]["p_avg"] < 1


def test_guesses_find_nothing_in_the_history(world, tmp_path):
    frame = play(world, Condition("occam", "none"), lambda task: Guesser("occam", 0), tmp_path / "runs")
    assert (frame["website_retrieval"] == 0).all() and (frame["success"] == 0).all()


def test_a_second_run_repeats_nothing_and_conditions_do_not_mix(world, tmp_path):
    condition, store = Condition("occam", "none"), tmp_path / "runs"
    first = play(world, condition, lambda task: Guesser("occam", 0), store)
    again = play(world, condition, never, store, stored_runs_only=True)
    assert first.equals(again) and play(world, condition, never, store).equals(first)
    for changed in (
        replace(condition, level=1),
        replace(condition, faults=0.5),
        replace(condition, sample=1),
    ):
        with pytest.raises(RuntimeError, match="played again"):
            play(world, changed, never, store)
    with pytest.raises(RuntimeError, match="played again"):
        play(world, condition, never, store, params={"temperature": 1.0})


def test_what_other_code_or_another_web_made_is_played_again(world, tmp_path, monkeypatch):
    condition, store = Condition("occam", "none"), tmp_path / "runs"
    play(world, condition, lambda task: Guesser("occam", 0), store)
    later = LocalWeb(make_sites(3, edition=1).values())
    for changed in (replace(world, web=later), replace(world, ask=answers_of)):
        with pytest.raises(RuntimeError, match="played again"):
            play(changed, condition, never, store)
    monkeypatch.setattr("pwagents.persona2web.agents.episode.CODE", CODE[:-1])
    with pytest.raises(RuntimeError, match="played again"):
        play(replace(world), condition, never, store)


def test_drivers_are_those_of_the_condition(world, tmp_path):
    with pytest.raises(ValueError, match="driver is chromium, but html is to play"):
        play(world, Condition("occam", "none", driver="chromium"), never, tmp_path / "runs")


def test_a_frame_has_the_same_columns_whatever_was_played(world, tmp_path):
    def refuse(brief, driver):
        raise NotEvaluableError("too long")

    condition = Condition("occam", "none")
    frame = play(world, condition, lambda task: Guesser("occam", 0), tmp_path / "runs")
    refused = play(world, condition, lambda task: refuse, tmp_path / "runs", method="refused")
    assert (refused["outcome"] == "not_evaluable").all() and refused["success"].isna().all()
    assert not frame["asked"].any()
    for other in (refused, scores_frame([], world)):
        assert list(other.columns) == list(frame.columns)


def test_failing_pages_are_counted_apart_and_the_agent_tries_again(world, tmp_path):
    condition = Condition("indexed", "pre_execution", faults=0.2)
    oracle = Oracle(world.truth("implicit"), "indexed", "pre_execution")
    frame = play(world, condition, lambda task: oracle.for_task(task, 2), tmp_path / "runs")
    calm = play(
        world, replace(condition, faults=0.0), lambda task: oracle.for_task(task, 2), tmp_path / "runs"
    )
    assert frame["fault"].mean() > 0.5 and (calm["fault"] == 0).all()
    assert 0 < frame["success"].mean() <= 1
    lost = frame[frame["intent"] < 1]
    assert (lost["fault"] == 1).all()


def test_two_runs_give_the_same_trajectories(world, trained, tmp_path):
    condition = Condition("occam", "on_demand", faults=0.1)
    agents = {user: OfflineAgent(reader, "occam", "on_demand") for user, reader in trained.items()}
    stores = [tmp_path / "a", tmp_path / "b"]
    a, b = (
        run_condition(world, condition, lambda t: agents[t.user_id], [HtmlDriver(world.web)], s, method="m")
        for s in stores
    )
    assert [record.trajectory for record in a] == [record.trajectory for record in b]


@pytest.fixture(scope="module")
def offline(world, trained, tmp_path_factory):
    """Plays the offline agent under a condition: the mean of each score."""
    store = tmp_path_factory.mktemp("offline") / "runs"

    def means(scheme, level=2, memory="implicit"):
        agents = {user: OfflineAgent(reader, "indexed", scheme) for user, reader in trained.items()}
        condition = Condition("indexed", scheme, level, memory)
        frame = play(world, condition, lambda task: agents[task.user_id], store, scheme)
        return frame[["p_web", "p_pref", "p_avg", "success"]].mean()

    return means


@pytest.mark.parametrize("scheme", ["on_demand", "pre_execution"])
def test_stated_preferences_are_read_better_than_a_history_and_that_better_than_its_end(offline, scheme):
    explicit, implicit, recency = (
        offline(scheme, memory=memory) for memory in ("explicit", "implicit", "recency")
    )
    for measure in ("p_web", "p_pref", "p_avg"):
        assert explicit[measure] > implicit[measure] > recency[measure]
    assert explicit["success"] > implicit["success"]


@pytest.mark.parametrize("scheme", ["on_demand", "pre_execution"])
def test_the_less_a_text_says_the_fewer_tasks_are_solved(offline, scheme):
    success = [offline(scheme, level)["success"] for level in (0, 1, 2)]
    assert 1 == success[0] > success[1] > success[2]


def test_a_user_who_may_be_asked_makes_up_for_a_history(world, trained, tmp_path):
    asking = replace(world, ask=answers_of)
    agents = {user: OfflineAgent(reader, "indexed", "none") for user, reader in trained.items()}
    silent, answered = (
        play(each, Condition("indexed", "none"), lambda t: agents[t.user_id], tmp_path / "runs")
        for each in (world, asking)
    )
    assert answered["reached"].mean() == 1 > silent["reached"].mean()
    assert answered["asked"].all() and (answered["looks"] == 0).all() and (answered["steps"] > 2).all()
    assert (answered["success"] == 0).all()  # nothing was found in the history
