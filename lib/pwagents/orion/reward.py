"""What each step of an episode earns (Orion, 4.3): R_t = task reward + alignment reward.

- Task: 1 at the last step of an episode that succeeded, 0 otherwise (the paper's reward scaling is 1.0).
  What success is the paper leaves open. Here the last attempt counts, which is what the user is left with: a
  search must show the target at ``success_rank`` or better, a recommendation among its ten (most requests for
  one say little), and a review be as near to the real one as ``review_success`` says.
- Alignment: the judge's score in [-1, 1] of each action against its belief state.
- Patience, ours: what each question costs; 0 as the paper has it, for whom a neutral action scores 0.

Departures: the alignment reward has a weight, since an episode has one success and many steps. And a search,
recommendation or review after the first earns at most 0 of it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pwagents.orion.agent import belief_states
from pwagents.orion.judge import Judge, judge_of
from pwagents.orion.teacher import is_result
from pwagents.progress import progress
from pwagents.rl.rollout import Episode
from pwagents.schema import FUNCTION_OF, Trajectory
from pwagents.settings import RewardSettings, Success
from pwagents.shop.score import attempts

if TYPE_CHECKING:
    from pwagents.orion.experiment import OrionRuns
    from pwagents.store import Episode as StoredEpisode

RECOMMENDATION_RANK = 10  # a recommendation succeeds with the target at this rank or better


class Rewards:
    """Pays the steps of episodes: a list of R_t an episode, part by part."""

    def __init__(self, judge: Judge, config: RewardSettings):
        self.judge, self.config = judge, config

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, list[list[float]]]:
        """Return ``task``, for success, ``alignment``, weighted, and ``patience``.

        The judge gets all steps at once, so a slow one can batch them.

        Raises:
            ValueError: an episode has not one state a step.
        """
        trajectories = [trajectory for _, trajectory in episodes]
        task = [[0.0] * len(trajectory.steps) for trajectory in trajectories]
        alignment = [[0.0] * len(trajectory.steps) for trajectory in trajectories]
        patience = [[-self.config.patience * step.is_talk for step in each.steps] for each in trajectories]
        for steps, trajectory in zip(task, trajectories, strict=True):
            if has_succeeded(trajectory, self.config):
                steps[-1] = 1.0

        # All steps in a row, each with the state before it.
        if any(len(states) != len(trajectory.steps) for states, trajectory in episodes):
            raise ValueError("an episode needs one belief state for each of its steps")
        states = [state for before, _ in episodes for state in before]
        actions = [step.action for trajectory in trajectories for step in trajectory.steps]
        scores = iter(self.judge.scores(states, actions))
        for steps, (before, trajectory) in zip(alignment, episodes, strict=True):
            for i, (state, step) in enumerate(zip(before, trajectory.steps, strict=True)):
                # A good search earns points each time, an episode succeeds only once: without this, searching
                # again and again would pay better than stopping.
                again = step.action.name in FUNCTION_OF.values() and any(map(is_result, state.session))
                score = next(scores)
                steps[i] = self.config.alignment_weight * (min(score, 0.0) if again else score)
        return {"task": task, "alignment": alignment, "patience": patience}


def has_succeeded(trajectory: Trajectory, success: Success) -> bool:
    """Return whether the last attempt of an episode is a success."""
    results = attempts(trajectory)
    if not results:
        return False
    if trajectory.type == "review":
        return results[-1] >= success.review_success
    rank = success.success_rank if trajectory.type == "search" else RECOMMENDATION_RANK
    # Result accuracy is 1 - (r - 1) / 10. Compared half way to the next rank, rounding cannot decide.
    return results[-1] > 1 - (rank - 0.5) / 10


def episode_returns(runs: "OrionRuns", records: "Iterable[StoredEpisode]") -> list[float]:
    """Return what each episode earns: success, and the judge's scores with the weight of ``reward``.

    A training is paid this, unless its settings in ``rl`` say otherwise.

    NaN where an episode was not scored.
    """
    records, tasks = list(records), {task.task_id: task for task in runs.tasks}
    scored = [record for record in records if record.trajectory]
    pairs = [
        (belief_states(runs.start(tasks[r.task_id]).state, r.trajectory)[:-1], r.trajectory)
        for r in progress(scored, "belief states")
    ]
    parts = Rewards(judge_of(runs.study), runs.study.settings.earned)(pairs).values()
    earned = zip(scored, zip(*parts, strict=True), strict=True)
    of_scored = {id(record): sum(map(sum, own)) for record, own in earned}
    return [of_scored.get(id(record), float("nan")) for record in records]
