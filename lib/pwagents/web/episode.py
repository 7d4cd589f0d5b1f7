"""One episode: what turns a belief state and an action into the next belief state, or the end."""

from collections.abc import Callable
from dataclasses import dataclass, replace

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
    """

    user_id: str
    instruction: str
    observation: str
    product: Product | None
    history: tuple[Behavior, ...]
    session: tuple[Step, ...] = ()


Agent = Callable[[BeliefState], Action]


class Episode:
    """Drives one task. The runner and the trainers both use it, so that they cannot differ.

    Args:
        environment: a session with the shop; the episode resets it.
        task: the task; the agent sees of it only what :class:`BeliefState` holds.
        history: what the agent may know of the user's past (:meth:`Benchmark.history`).
    """

    def __init__(self, environment: WebEnvironment, task: Task, history: tuple[Behavior, ...]):
        self.environment, self.task = environment, task
        first = environment.reset(task)
        product = environment.shop.benchmark.products[task.target] if task.type == "review" else None
        self.state = BeliefState(task.user_id, task.instruction, first.text, product, history)
        self.done = False

    def advance(self, action: Action) -> BeliefState:
        """Carry out the agent's action: the next belief state. ``done`` tells whether it is the last."""
        observation, reward, self.done, info = self.environment.step(action)
        step = Step(action=action, observation=observation, result_accuracy=reward, **info)
        self.state = replace(self.state, session=(*self.state.session, step))
        return self.state

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
