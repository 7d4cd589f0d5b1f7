"""One episode: what turns a belief state and an action into the next belief state, or the end."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from pwagents.profiles.types import ContextualProfile
from pwagents.profiles.update import Updater
from pwagents.schema import Action, Behavior, Product, Step, Task, Trajectory
from pwagents.web.environment import WebEnvironment


@dataclass(frozen=True)
class BeliefState:
    """All that an agent knows at one step: the instruction, the user's past, and the session so far.

    Args:
        user_id: whose task it is.
        instruction: what the user asks for.
        observation: the environment's first words: the instruction and, for a review, the product.
        product: the product to review; None for other tasks.
        history: the past behaviours that the protocol lets an agent see, oldest first.
        session: the steps of this episode so far.
        profile: the contextual profile as it is now (Orion's P_ctx,t); None for agents without one.
        context: what retrieval found before the first step; None for agents without a contextual profile.
    """

    user_id: str
    instruction: str
    observation: str
    product: Product | None
    history: tuple[Behavior, ...]
    session: tuple[Step, ...] = ()
    profile: ContextualProfile | None = None
    context: "Context | None" = None


class Context(NamedTuple):
    """What retrieval finds in a user's profiles for an instruction, before the first step (Orion, 4.1).

    Args:
        profile: P_ctx,0.
        bought: of the interest that the instruction calls for, the ids bought, oldest first: those that an
            agent may be told.
    """

    profile: ContextualProfile
    bought: tuple[str, ...] = ()


Agent = Callable[[BeliefState], Action]


class Episode:
    """Drives one task. The runner and the trainers both use it, so that they cannot differ.

    Args:
        environment: a session with the shop; the episode resets it.
        task: the task; the agent sees of it only what :class:`BeliefState` holds.
        history: what the agent may know of the user's past (:meth:`Benchmark.history`).
        context: what an agent with a contextual profile begins with; None for other agents.
        update: follows the contextual profile from step to step (Orion's DPU); None keeps it as it was.
    """

    def __init__(
        self,
        environment: WebEnvironment,
        task: Task,
        history: tuple[Behavior, ...],
        context: Context | None = None,
        update: Updater | None = None,
    ):
        self.environment, self.task, self.update = environment, task, update
        first = environment.reset(task)
        product = environment.shop.benchmark.products[task.target] if task.type == "review" else None
        profile = context.profile if context else None
        self.state = BeliefState(
            task.user_id, task.instruction, first.text, product, history, (), profile, context
        )
        self.done = False

    def advance(self, action: Action) -> BeliefState:
        """Carry out the agent's action: the next belief state. ``done`` tells whether it is the last."""
        observation, reward, self.done, info = self.environment.step(action)
        step = Step(action=action, observation=observation, result_accuracy=reward, **info)
        self.state = self._follow(step)
        return self.state

    def _follow(self, step: Step) -> BeliefState:
        """The belief state after a step. A profile that changed is told with the step's observation."""
        before, session = self.state, (*self.state.session, step)
        if before.profile is None or self.update is None:
            return replace(before, session=session)
        updated = self.update(before.profile, before.instruction, session)
        told = updated.profile.describe() if updated.profile != before.profile else ""
        step = step.model_copy(update={"profile": told, "update_usage": updated.usage})
        return replace(before, session=(*before.session, step), profile=updated.profile)

    @property
    def trajectory(self) -> Trajectory:
        """The steps so far."""
        task = self.task
        return Trajectory(
            task_id=task.task_id, user_id=task.user_id, type=task.type, steps=self.state.session
        )


def run_episode(
    environment: WebEnvironment, task: Task, history: tuple[Behavior, ...], agent: Agent
) -> Trajectory:
    """Let ``agent`` work on ``task`` to the end."""
    episode = Episode(environment, task, history)
    while not episode.done:
        episode.advance(agent(episode.state))
    return episode.trajectory
