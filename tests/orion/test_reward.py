"""What steps earn: success at the end, alignment on the way, and no points for doing things again."""

import pytest

from pwagents.orion.reward import Rewards, RewardSettings, has_succeeded
from pwagents.schema import Trajectory
from pwagents.web.environment import BeliefState

from .small_study import call, step


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
    steps = [step(call("ask", content="?"))] * asks + [step(call(kind), "", ids) for ids in shown]
    steps = (*steps, step(call("stop")))
    states = [BeliefState("U1", "", "", None, (), steps[:i]) for i in range(len(steps))]
    told = {"task_id": "t", "user_id": "U1", "type": kind, "target": "the target", "steps": steps}
    return states, Trajectory(**told, similarities=tuple(results))


ALIGNED = {"use": "alignment"}
CASES = [  # results, the judge's score, settings -> R_t of each step
    ({"results": (1.0,)}, 0.5, {"alignment_weight": 0.4}, [0.2, 1.2]),
    ({"results": (0.0,)}, 0.5, {"alignment_weight": 0.4}, [0.2, 0.2]),
    ({"results": (1.0,)}, 0.5, {}, [0.5, 1.5]),  # the paper's weight is 1
    ({"results": (1.0,)}, 0.5, {"use": "task"}, [0.0, 1.0]),
    ({"results": (1.0,)}, 0.5, ALIGNED, [0.5, 0.5]),
    # To search again earns no alignment, but can lose some.
    ({"results": (1.0, 1.0, 1.0)}, 1.0, ALIGNED, [1.0, 0.0, 0.0, 1.0]),
    ({"results": (1.0, 1.0)}, -1.0, ALIGNED, [-1.0, -1.0, -1.0]),
    # What a question costs: nothing, as the paper has it, unless patience is asked for.
    ({"results": (1.0,), "asks": 2}, 0.0, {}, [0.0, 0.0, 0.0, 1.0]),
    ({"results": (1.0,), "asks": 2}, 0.0, {"patience": 0.2}, [-0.2, -0.2, 0.0, 1.0]),
    ({"results": (1.0,), "asks": 1}, 1.0, {"patience": 0.2, "use": "task"}, [-0.2, 0.0, 1.0]),
    ({"results": (0.6,), "kind": "review"}, 0.0, {"review_success": 0.6}, [0.0, 1.0]),
    ({"results": (0.59,), "kind": "review"}, 0.0, {"review_success": 0.6}, [0.0, 0.0]),
]


@pytest.mark.parametrize(("given", "score", "config", "expected"), CASES)
def test_each_step_earns_success_alignment_and_patience(given, score, config, expected):
    made = dict(given)
    parts = Rewards(FixedJudge(score), RewardSettings(**config))([episode(*made.pop("results"), **made)])
    assert [sum(step) for step in zip(*(own for (own,) in parts.values()), strict=True)] == pytest.approx(
        expected
    )


def test_success_goes_by_the_rank_of_the_last_attempt():
    for rank in range(1, 11):
        success = {"success_rank": rank, "recommendation_rank": 11 - rank}
        for shown_at in range(1, 11):
            for kind, needed in (("search", rank), ("recommend", 11 - rank)):
                _, trajectory = episode(1.0, 1 - (shown_at - 1) / 10, kind=kind)
                assert has_succeeded(trajectory, RewardSettings(**success)) == (shown_at <= needed)
        assert not has_succeeded(episode(1.0, 0.0)[1], RewardSettings(**success))
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
