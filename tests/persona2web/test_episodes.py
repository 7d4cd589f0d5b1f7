"""Oracle, chance and the offline agent on the local web, kept and scored by the project's runner."""

from dataclasses import replace
from functools import partial

import pytest

from pwagents.errors import NotEvaluableError
from pwagents.persona2web.agents.episode import CODE, Condition, Played, run_condition
from pwagents.persona2web.agents.offline import OfflineAgent, oracle
from pwagents.persona2web.agents.recall import telling_texts, train_readers
from pwagents.persona2web.judge.scores import scores_frame
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.types import WebStep

from .worlds import make_world


@pytest.fixture(scope="module")
def world():
    return make_world()


@pytest.fixture(scope="module")
def trained(world):
    return train_readers(world.histories, world.embedder)


def play(world, condition, agent_of, store, method="m", **options):
    return scores_frame(run_condition(world, condition, agent_of, store, method=method, **options), world)


def knowing(world, condition):
    return partial(oracle, condition=condition, truth=world.truth("implicit"))


def stopping(task):
    return lambda brief, visit: Played([WebStep(observation=visit.observe(), action="stop []")])


def never(task):
    raise AssertionError(f"{task.task_id} was played again")


@pytest.mark.parametrize("architecture", ["occam", "indexed"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_oracle_solves_every_task(world, architecture, level, tmp_path):
    condition = Condition(architecture, "pre_execution", level)
    frame = play(world, condition, knowing(world, condition), tmp_path / "runs.jsonl")
    assert (frame["success"] == 1).all() and (frame["outcome"] == "scored").all()


def test_a_second_run_repeats_nothing_and_conditions_do_not_mix(world, tmp_path, monkeypatch):
    condition, store = Condition("occam", "none"), tmp_path / "runs"
    first = play(world, condition, stopping, store)
    assert (first["website_retrieval"] == 0).all() and (first["success"] == 0).all()
    again = play(world, condition, never, store, stored_runs_only=True)
    assert first.equals(again) and play(world, condition, never, store).equals(first)
    later = replace(world, web=LocalWeb(make_sites(3, edition=1).values()))
    changes = [(world, replace(condition, **{name: 1}), {}) for name in ("level", "sample", "faults")]
    for other, changed, params in [*changes, (world, condition, {"top_p": 1}), (later, condition, {})]:
        with pytest.raises(RuntimeError, match="played again"):
            play(other, changed, never, store, params=params)
    monkeypatch.setattr("pwagents.persona2web.agents.episode.CODE", CODE[:-1])
    with pytest.raises(RuntimeError, match="played again"):
        play(replace(world), condition, never, store)


def test_a_frame_has_the_same_columns_whatever_was_played(world, tmp_path):
    def refuse(brief, visit):
        raise NotEvaluableError("too long")

    condition = Condition("occam", "none")
    frame = play(world, condition, stopping, tmp_path / "runs")
    refused = play(world, condition, lambda task: refuse, tmp_path / "runs", method="refused")
    assert (refused["outcome"] == "not_evaluable").all() and refused["success"].isna().all()
    for other in (refused, scores_frame([], world)):
        assert list(other.columns) == list(frame.columns)


def test_failing_pages_are_counted_apart_and_the_agent_tries_again(world, tmp_path):
    condition = Condition("indexed", "pre_execution", faults=0.2)
    calm = replace(condition, faults=0.0)
    frame, quiet = (play(world, each, knowing(world, each), tmp_path / "runs") for each in (condition, calm))
    assert frame["fault"].mean() > 0.5 and (quiet["fault"] == 0).all()
    assert 0 < frame["success"].mean() <= 1
    assert (frame.loc[frame["intent"] < 1, "fault"] == 1).all()


def test_two_runs_give_the_same_trajectories(world, trained, tmp_path):
    condition = Condition("occam", "on_demand", faults=0.1)
    agents = {user: OfflineAgent(reader, "occam", "on_demand") for user, reader in trained.items()}
    a, b = (
        run_condition(
            world,
            condition,
            lambda t: agents[t.user_id],
            tmp_path / name,
            method="m",
        )
        for name in "ab"
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
        assert (frame["steps"] <= 25).all()
        return frame[["p_web", "p_pref", "p_avg", "success", "looks"]].mean()

    return means


@pytest.mark.parametrize("scheme", ["on_demand", "pre_execution"])
def test_the_more_is_known_and_said_the_more_succeeds(offline, scheme):
    explicit, implicit, recency = (
        offline(scheme, memory=memory) for memory in ("explicit", "implicit", "recency")
    )
    nothing = offline("none")
    assert nothing["looks"] == nothing["success"] == 0 < implicit["looks"]
    assert nothing["p_avg"] < implicit["p_avg"] < 1
    for measure in ("p_web", "p_pref", "p_avg"):
        assert explicit[measure] > implicit[measure] > recency[measure]
    assert explicit["success"] > implicit["success"]
    success = [offline(scheme, level)["success"] for level in (0, 1, 2)]
    assert 1 == success[0] > success[1] > success[2]


def test_a_reader_of_new_phrases_learned_from_no_record_that_it_is_tested_on(world):
    seen = []

    class Notes(type(world.embedder)):
        def encode(self, texts):
            seen.extend(texts)
            return super().encode(texts)

    readers = train_readers(world.histories, Notes(), shared_phrases=False)
    assert set(readers) == set(world.histories) and seen
    groups = {history.person.group: [] for history in world.histories.values()}
    for history in world.histories.values():
        groups[history.person.group].append(history)
    both = set.intersection(*({*telling_texts(histories)} for histories in groups.values()))
    assert both and not both & {*seen}
