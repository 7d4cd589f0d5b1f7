"""What one played episode is to a trainer: tokens in, tokens out, and what each step earned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pwagents.schema import Action, Task, Trajectory
from pwagents.web.episode import BeliefState, Episode

# task -> its episode, not yet begun
StartEpisode = Callable[[Task], Episode]
# (belief states before each step, the episode's trajectory) -> R_t of each step
StepRewards = Callable[[Sequence[BeliefState], Trajectory], list[float]]


@dataclass(frozen=True)
class Rollout:
    """One episode as the policy's tokens: what was sampled is never decoded and tokenised again.

    All lists but the first have one entry a completion token. The completion is the whole conversation after
    the prompt: the policy's turns (up to and with the token that ends each) and what came back in between.

    Attributes:
        prompt_ids: rules, task and P_ctx,0.
        completion_ids: the rest.
        mask: 1 for tokens that the policy sampled, 0 for what came back (tool, profile and user text).
        logprobs: of the sampled tokens at the sampling temperature; 0.0 elsewhere.
        turns: the number of the step that a token belongs to; an answer belongs to the step it answers.
        states: the belief state before each step.
        trajectory: the steps.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    turns: list[int]
    states: tuple[BeliefState, ...]
    trajectory: Trajectory

    @property
    def actions(self) -> list[Action]:
        return [step.action for step in self.trajectory.steps]


def count_asks(trajectory: Trajectory) -> int:
    """How often the agent asked the user something: valid calls of ``respond``."""
    return sum(step.action.name == "respond" and not step.error for step in trajectory.steps)
