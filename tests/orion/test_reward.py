"""What steps earn: success at the end, alignment on the way, and no points for doing things again."""

import pytest

from pwagents.orion.reward import (
    Rewards,
    RewardSettings,
    has_succeeded,
)
from pwagents.schema import Action, Observation, Step, Trajectory
from pwagents.web.environment import BeliefState


class FixedJudge:
    """Gives every action the same score; counts how often it is asked."""

    def __init__(self, score):
        self.score, self.calls = score, 0

    def scores(self, states, actions):
        self.calls += 1
        return [self.score for _ in zip(states, actions, strict=True)]


def episode(*results, kind="search"):
    """Belief states and trajectory: an attempt with each result accuracy, then a stop."""
    name = {"search": "search_product_by_query", "review": "add_product_review"}[kind]
    done = Observation(text="")
    shown = [[f"B{i}" for i in range(round(10 * (1 - r)))] + ["the target"] for r in results]
    steps = [Step(action=Action(name=name), observation=Observation(text="", products=ids)) for ids in shown]
    steps.append(Step(action=Action(name="stop"), observation=done))
    states = [BeliefState("U1", "", "", None, (), tuple(steps[:i])) for i in range(len(steps))]
    return states, Trajectory(
        task_id="t",
        user_id="U1",
        type=kind,
        target="the target",
        steps=tuple(steps),
        similarities=tuple(results),
    )


def rewards(score, results=(1.0,), kind="search", **config):
    """R_t of each step of one episode: task and alignment together."""
    parts = Rewards(FixedJudge(score), RewardSettings(**config))([episode(*results, kind=kind)])
    return [task + alignment for task, alignment in zip(*parts["task"], *parts["alignment"], strict=True)]


def test_success_is_paid_at_the_last_step_and_alignment_at_each():
    assert rewards(0.5, alignment_weight=0.4) == pytest.approx([0.2, 1.2])
    assert rewards(0.5, (0.0,), alignment_weight=0.4) == pytest.approx([0.2, 0.2])


def test_either_part_alone():
    assert rewards(0.5, use="task") == [0.0, 1.0]
    assert rewards(0.5, use="alignment", alignment_weight=1.0) == [0.5, 0.5]


def test_searching_again_earns_no_alignment_but_can_lose_some():
    assert rewards(1.0, (1.0, 1.0, 1.0), use="alignment", alignment_weight=1.0) == [1.0, 0.0, 0.0, 1.0]
    assert rewards(-1.0, (1.0, 1.0), use="alignment", alignment_weight=1.0) == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("rank", range(1, 11))
def test_success_goes_by_the_rank_of_the_last_attempt(rank):
    config = RewardSettings(success_rank=rank)
    for shown_at in range(1, 11):
        _, trajectory = episode(1.0, 1 - (shown_at - 1) / 10)
        assert has_succeeded(trajectory, config) == (shown_at <= rank)
    assert not has_succeeded(episode(1.0, 0.0)[1], config)
    assert not has_succeeded(episode()[1], config)


def test_a_review_succeeds_by_its_cosine():
    assert rewards(0.0, (0.6,), "review", review_success=0.6)[-1] == 1.0
    assert rewards(0.0, (0.59,), "review", review_success=0.6)[-1] == 0.0


def test_many_episodes_are_one_question_to_the_judge_and_parts_stand_apart():
    judge = FixedJudge(0.5)
    parts = Rewards(judge, RewardSettings(alignment_weight=0.4))([episode(1.0), episode(), episode(0.1)])
    assert judge.calls == 1
    assert parts["task"] == [[0.0, 1.0], [0.0], [0.0, 0.0]]
    assert parts["alignment"] == [[0.2, 0.2], [0.2], [0.2, 0.2]]


def test_an_episode_needs_a_state_a_step():
    states, trajectory = episode(1.0)
    with pytest.raises(ValueError, match="one belief state for each"):
        Rewards(FixedJudge(0.0), RewardSettings())([(states[:1], trajectory)])


@pytest.mark.parametrize(
    "setting",
    [
        {"success_rank": 0},
        {"success_rank": 11},
        {"review_success": 2},
        {"alignment_weight": -1},
        {"use": "x"},
    ],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        RewardSettings(**setting)
