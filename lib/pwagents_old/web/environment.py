"""One task in the shop: what an agent knows, what a call does to it, and the loop from instruction to end.

:class:`BeliefState` is all that an agent sees. Task, target and ledger stay in :class:`WebEnvironment`.
Grades are computed from its trajectory (:mod:`pwagents.results.metrics`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pydantic import ValidationError

from pwagents.errors import NotEvaluableError
from pwagents.schema import (
    FUNCTION_OF,
    Action,
    Behavior,
    End,
    Observation,
    Product,
    Step,
    Task,
    Trajectory,
    Usage,
    check_choice,
)
from pwagents_old.profiles.types import ContextualProfile
from pwagents_old.profiles.update import Updater
from pwagents_old.web.functions import DETAILS_FUNCTION, FUNCTIONS, MalformedCallError, Shop, full_text

Track = Literal["single_turn", "multi_turn"]
MAX_STEPS = 10  # of the multi-turn track
NOTHING = "Wants: nothing."  # of a contextual profile whose last line has gone


class UserReply(NamedTuple):
    """What the user says, and what a language model that speaks for them cost."""

    text: str
    usage: Usage | None = None


# (the task, the session so far, what the agent says now) -> the answer. One serves all episodes and threads.
UserSimulator = Callable[[Task, tuple[Step, ...], str], UserReply]


class Purchase(NamedTuple):
    """A past purchase as an agent is told of it."""

    asin: str
    title: str
    category: str
    month: str  # such as "2017-03"


class Context(NamedTuple):
    """What retrieval finds in a user's profiles for an instruction, before the first step (Orion, 4.1)."""

    profile: ContextualProfile  # P_ctx,0
    purchases: tuple[Purchase, ...] = ()  # of the interest called for and of others, oldest first


@dataclass(frozen=True)
class BeliefState:
    """All that an agent knows at one step: the instruction, the user's past, and the session so far.

    Args:
        observation: the environment's first words: user and instruction and, for a review, the product.
        product: the product to review; None for other tasks.
        history: the past behaviours that the protocol lets an agent see, oldest first.
        profile: the contextual profile as it is now (Orion's P_ctx,t); None for agents without one.
        context: what retrieval found before the first step, for agents with a contextual profile.
    """

    user_id: str
    instruction: str
    observation: str
    product: Product | None
    history: tuple[Behavior, ...]
    session: tuple[Step, ...] = ()
    profile: ContextualProfile | None = None
    context: Context | None = None

    @property
    def user_texts(self) -> list[str]:
        """What the user said so far: the instruction and the answers."""
        return [self.instruction, *(step.observation.text for step in self.session if step.is_talk)]


Agent = Callable[[BeliefState], Action]


class WebEnvironment:
    """One agent's session with the shop. Make one for each thread; all may share one ``shop``.

    Single-turn track: the first call ends the task (a look-up of a product's details excepted). Multi-turn
    track: up to ``MAX_STEPS`` calls; ``respond`` reaches the user simulator and ``stop`` ends the task.

    Args:
        user: answers ``respond``; without one nobody answers.
        details: offer RecMind's look-up of a product's details, too.

    Attributes:
        state: what the agent knows now; it holds the one history of the session.
        end: why the task has ended; None while it is under way.
    """

    def __init__(
        self, shop: Shop, track: Track = "single_turn", user: UserSimulator | None = None, details=False
    ):
        check_choice("track", track, Track)
        self.shop, self.track, self.user = shop, track, user
        self.allowed = (*FUNCTION_OF.values(), "respond", "stop") + ((DETAILS_FUNCTION,) if details else ())
        self.task: Task | None = None

    def reset(
        self,
        task: Task,
        history: tuple[Behavior, ...] = (),
        context: Context | None = None,
        update: Updater | None = None,
    ) -> BeliefState:
        """Begin ``task``.

        Args:
            history: what the agent may know of the user's past (:meth:`Benchmark.history`).
            update: follows the contextual profile from step to step (Orion's DPU); None keeps it as it was.

        Raises:
            NotEvaluableError: a review task without a real review to compare with.
        """
        self.task = None  # a refused task must not leave the last one open
        if task.type == "review" and not task.review.text.strip():
            raise NotEvaluableError(f"task {task.task_id} has no real review to compare with")
        self.task, self.update = task, update
        self.end: End | None = None
        self.similarities: list[float] = []  # of reviews with the real one: the ledger, see Trajectory
        # The agent is told user and instruction, and what a review is to be about (PersonalWAB).
        text, product = f"User {task.user_id}: {task.instruction}", None
        if task.type == "review":
            product = self.shop.benchmark.products[task.target]
            text = f"{text}\n\nThe product:\n{full_text(product)}"
        profile = context.profile if context else None
        self.state = BeliefState(task.user_id, task.instruction, text, product, history, (), profile, context)
        return self.state

    @property
    def done(self) -> bool:
        return self.end is not None

    def step(self, action: Action) -> Step:
        """Carry out one call; a malformed one has its error as observation, which the agent can learn from.

        Raises:
            RuntimeError: there is no task, or it has ended.
            Exception: what goes wrong inside the shop, as it is.
        """
        if self.task is None or self.end is not None:
            raise RuntimeError("no task is under way; call reset(task) first")
        name, error, kind = action.name, "", ""
        self.user_usage: Usage | None = None  # noted by respond
        if action.problem:
            error, kind = action.problem, action.problem_kind
        elif name not in self.allowed:
            error = f"unknown function {name!r}; the functions are {', '.join(self.allowed)}"
            kind = "unknown_function"
        else:
            try:
                observation = FUNCTIONS[name](self, **action.arguments)
            except MalformedCallError as problem:
                error, kind = str(problem), "wrong_arguments"
            except ValidationError as problem:
                if problem.title != name:  # not of the arguments: something inside the shop
                    raise
                first = problem.errors(include_url=False)[0]
                where = ".".join(map(str, first["loc"])) or "arguments"
                error, kind = " ".join(f"{name}: {where}: {first['msg']}".split()), "wrong_arguments"
        observation = Observation(text=f"Error: {error}") if error else observation
        told = {"observation": observation, "error": error, "error_kind": kind}
        step = Step(action=action, **told, user_usage=self.user_usage)

        # The contextual profile follows the step; one that changed is told with the step's observation.
        before = self.state
        profile = before.profile
        if profile is not None and self.update is not None:
            updated = self.update(profile, before.instruction, (*before.session, step))
            news = (updated.profile.describe() or NOTHING) if updated.profile != profile else ""
            step = step.model_copy(update={"profile": news, "update_usage": updated.usage})
            profile = updated.profile
        self.state = replace(before, session=(*before.session, step), profile=profile)

        # Looking a product up does not use up the one call of the single-turn track.
        looked_up = name == DETAILS_FUNCTION and not error
        if self.end is None and self.track == "single_turn" and not looked_up:
            self.end = "call"
        elif self.end is None and len(self.state.session) >= MAX_STEPS:
            self.end = "steps"
        return step

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far; where the task has not ended, as one that was cut off."""
        task = self.task.model_dump(include={"task_id", "user_id", "type", "target"})
        ledger = {"similarities": tuple(self.similarities), "end": self.end or "cut_off"}
        return Trajectory(**task, **ledger, steps=self.state.session)


def run_episode(
    environment: WebEnvironment,
    task: Task,
    history: tuple[Behavior, ...],
    agent: Agent,
    context: Context | None = None,
    update: Updater | None = None,
) -> Trajectory:
    """Let ``agent`` work on ``task`` to the end; for the arguments see :meth:`WebEnvironment.reset`.

    Where the policy's model refuses to act, the episode ends there, with the reason.

    Raises:
        NotEvaluableError: the task, the user or the profile's update cannot be evaluated.
    """
    environment.reset(task, history, context, update)
    while environment.end is None:
        try:
            action = agent(environment.state)
        except NotEvaluableError as refusal:
            ended = {"end": "refused", "message": str(refusal)}
            return environment.trajectory.model_copy(update=ended)
        environment.step(action)
    return environment.trajectory
