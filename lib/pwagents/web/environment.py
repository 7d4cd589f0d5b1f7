"""The web environment: one task at a time, from the instruction to the reward."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pwagents.errors import NotEvaluableError
from pwagents.schema import Action, Observation, Task, Usage, check_choice
from pwagents.web.functions import (
    DETAILS_FUNCTION,
    FUNCTION_OF,
    MalformedCallError,
    Shop,
    WebFunctions,
    call,
    full_text,
)
from pwagents.web.reward import rank_accuracy

Track = Literal["single_turn", "multi_turn"]
MAX_STEPS = 10  # of the multi-turn track


class Exchange(NamedTuple):
    """One call of the agent and what it got for an answer; ``error`` where it was malformed."""

    action: Action
    observation: Observation
    error: str = ""


class UserReply(NamedTuple):
    """What the user says, and what it cost where a language model speaks for them."""

    text: str
    usage: Usage | None = None


# (the task, the session so far, what the agent says now) -> what the user answers. It keeps nothing of its
# own, so that one simulator serves all episodes and threads.
UserSimulator = Callable[[Task, tuple[Exchange, ...], str], UserReply]


class WebEnvironment:
    """One agent's session with the shop. Make one for each thread; all may share one ``shop``.

    Single-turn track: the first call ends the task, whatever it is (a look-up of a product's details
    excepted). Multi-turn track: up to ``MAX_STEPS`` calls; ``respond`` reaches the user simulator and
    ``stop`` ends the task.

    Args:
        shop: what the web functions run on; it is shared, never copied.
        track: "single_turn" or "multi_turn".
        user: answers ``respond``; without one nobody answers.
        details: offer RecMind's look-up of a product's details, too.
    """

    def __init__(
        self, shop: Shop, track: Track = "single_turn", user: UserSimulator | None = None, details=False
    ):
        check_choice("track", track, Track)
        self.shop, self.track, self.user = shop, track, user
        self.functions = WebFunctions(shop)
        self.allowed = (*FUNCTION_OF.values(), "respond", "stop") + ((DETAILS_FUNCTION,) if details else ())
        self.task: Task | None = None
        self.session: tuple[Exchange, ...] = ()

    def reset(self, task: Task) -> Observation:
        """Begin ``task``. The first observation holds user id and instruction, for a review task also the
        product's information (PersonalWAB).

        Raises:
            NotEvaluableError: a review task without a real review to compare with.
        """
        self.task = None  # a refused task must not leave the last one open
        if task.type == "review" and not task.review.text.strip():
            raise NotEvaluableError(f"task {task.task_id} has no real review to compare with")
        self.task, self.session, self.done = task, (), False
        text = f"User {task.user_id}: {task.instruction}"
        if task.type != "review":
            return Observation(text=text)
        product = self.shop.benchmark.products[task.target]
        return Observation(text=f"{text}\n\nThe product:\n{full_text(product)}", products=(task.target,))

    def step(self, action: Action) -> tuple[Observation, float, bool, dict[str, Any]]:
        """Carry out one call.

        Returns:
            The observation; the reward, which is the result accuracy of an attempt and 0 otherwise; whether
            the task has ended; and ``{"error", "error_kind", "attempt", "user_usage"}`` as in
            :class:`pwagents.schema.Step`. A malformed call is no exception: its error is the observation,
            which the agent can learn from.

        Raises:
            RuntimeError: there is no task, or it has ended.
        """
        if self.task is None or self.done:
            raise RuntimeError("no task is under way; call reset(task) first")
        info = {"error": "", "error_kind": "", "attempt": False, "user_usage": None}
        reward = 0.0
        try:
            observation = self._call(action)
        except MalformedCallError as problem:
            info |= {"error": str(problem), "error_kind": problem.kind}
            observation = Observation(text=f"Error: {problem}")
        else:
            info["attempt"] = action.name == FUNCTION_OF[self.task.type]
            reward = self._result_accuracy(action, observation) if info["attempt"] else 0.0
            if observation is None:
                observation, info["user_usage"] = self._talk(action)
        self.session += (Exchange(action, observation, info["error"]),)
        self.done = self._has_ended(action, info["error"])
        return observation, reward, self.done, info

    def _call(self, action: Action) -> Observation | None:
        if action.problem:
            raise MalformedCallError(action.problem, action.problem_kind)
        return call(self.functions, self.allowed, action.name, action.arguments)

    def _talk(self, action: Action) -> tuple[Observation, Usage | None]:
        if action.name == "stop":
            return Observation(text="The task has ended."), None
        if self.user is None:
            return Observation(text="Nobody answers."), None
        reply = self.user(self.task, self.session, action.arguments["content"])
        return Observation(text=reply.text), reply.usage

    def _result_accuracy(self, action: Action, observation: Observation) -> float:
        if self.task.type == "review":
            return self.shop.embedder.similarity(action.arguments["review"], self.task.review.text)
        return rank_accuracy(observation.products, self.task.target)

    def _has_ended(self, action: Action, error: str) -> bool:
        if self.track == "single_turn":
            looked_up = action.name == DETAILS_FUNCTION and not error
            return not looked_up or len(self.session) >= MAX_STEPS
        return (action.name == "stop" and not error) or len(self.session) >= MAX_STEPS
