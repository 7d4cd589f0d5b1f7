"""What steps earn: success at the end, alignment on the way, and no points for doing things again."""

import pytest

from pwagents.orion.reward import Rewards, RewardSettings, has_succeeded
from pwagents.schema import Trajectory

from .small_study import call, cases, state_of, step


class FixedJudge:
    """Gives every action the same score; counts how often it is asked."""

    def __init__(self, score):
        self.score, self.calls = score, 0

    def scores(self, states, actions):
        self.calls += 1
        return [self.score for _ in zip(states, actions, strict=True)]


def episode(*results, kind="search", asks=0):
    """Belief states and trajectory: questions, an attempt with each result accuracy, then a stop."""
    shown = [[f"B{i}" for i in range(round(10 * (1 - r)))] + ["the target"] for r in results]
    steps = [step(call("ask", "?"))] * asks + [step(call(kind), "", ids) for ids in shown]
    steps = (*steps, step(call("stop")))
    states = [state_of("", session=steps[:i]) for i in range(len(steps))]
    told = {"task_id": "t", "user_id": "U1", "type": kind, "target": "the target", "steps": steps}
    return states, Trajectory(**told, similarities=tuple(results))


@cases("rewards")
def test_each_step_earns_success_alignment_and_patience(case):
    made, score, config, expected = case
    parts = Rewards(FixedJudge(score), RewardSettings(**config))(
        [episode(*made["results"], kind=made.get("kind", "search"), asks=made.get("asks", 0))]
    )
    earned = [sum(step) for step in zip(*(own for (own,) in parts.values()), strict=True)]
    assert earned == pytest.approx(expected)


def test_success_goes_by_the_rank_of_the_last_attempt():
    for rank in range(1, 11):
        success = RewardSettings(success_rank=rank, recommendation_rank=11 - rank)
        for shown_at in range(1, 11):
            for kind, needed in (("search", rank), ("recommend", 11 - rank)):
                _, trajectory = episode(1.0, 1 - (shown_at - 1) / 10, kind=kind)
                assert has_succeeded(trajectory, success) == (shown_at <= needed)
        assert not has_succeeded(episode(1.0, 0.0)[1], success)
    assert not has_succeeded(episode()[1], RewardSettings())


def test_many_episodes_are_one_question_to_the_judge_and_parts_stand_apart():
    judge = FixedJudge(0.5)
    parts = Rewards(judge, RewardSettings(alignment_weight=0.4))([episode(1.0), episode(), episode(0.1)])
    assert judge.calls == 1 and list(parts) == ["task", "alignment", "patience"]
    assert parts["task"] == [[0.0, 1.0], [0.0], [0.0, 0.0]]
    assert parts["alignment"] == [[0.2, 0.2], [0.2], [0.2, 0.2]]
    states, trajectory = episode(1.0)
    with pytest.raises(ValueError, match="one belief state for each"):
        Rewards(judge, RewardSettings())([(states[:1], trajectory)])
