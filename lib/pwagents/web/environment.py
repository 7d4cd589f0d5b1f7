"""The web environment: one task at a time, from the instruction to the reward."""

from collections.abc import Callable
from typing import Any, Literal

from pwagents.errors import NotEvaluableError
from pwagents.schema import Action, Observation, Task, check_choice
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

UserSimulator = Callable[[Task, str], str]  # (the task, what the agent said) -> what the user answers


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
        self.steps = 0

    def reset(self, task: Task) -> Observation:
        """Begin ``task``. The first observation holds user id and instruction, for a review task also the
        product's information (PersonalWAB).

        Raises:
            NotEvaluableError: a review task without a real review to compare with.
        """
        if task.type == "review" and not task.review.text.strip():
            raise NotEvaluableError(f"task {task.task_id} has no real review to compare with")
        self.task, self.steps, self.done = task, 0, False
        text = f"User {task.user_id}: {task.instruction}"
        if task.type != "review":
            return Observation(text=text)
        product = self.shop.benchmark.products[task.target]
        return Observation(text=f"{text}\n\nThe product:\n{full_text(product)}", products=(task.target,))

    def step(self, action: Action) -> tuple[Observation, float, bool, dict[str, Any]]:
        """Carry out one call.

        Returns:
            The observation; the reward, which is the result accuracy of an attempt and 0 otherwise; whether
            the task has ended; and ``{"error": str, "attempt": bool}``, where an attempt is a valid call
            of the function that the task asks for. A malformed call is no exception: its error is the
            observation, which the agent can learn from.

        Raises:
            RuntimeError: there is no task, or it has ended.
        """
        if self.task is None or self.done:
            raise RuntimeError("no task is under way; call reset(task) first")
        self.steps += 1
        error, attempt, reward = "", False, 0.0
        try:
            observation = call(self.functions, self.allowed, action.name, action.arguments)
        except MalformedCallError as problem:
            error = str(problem)
            observation = Observation(text=f"Error: {error}")
        else:
            attempt = action.name == FUNCTION_OF[self.task.type]
            reward = self._result_accuracy(action, observation) if attempt else 0.0
            observation = observation or Observation(text=self._talk(action))
        self.done = self._has_ended(action, error)
        return observation, reward, self.done, {"error": error, "attempt": attempt}

    def _talk(self, action: Action) -> str:
        if action.name == "stop":
            return "The task has ended."
        if self.user is None:
            return "Nobody answers."
        return self.user(self.task, action.arguments["content"])

    def _result_accuracy(self, action: Action, observation: Observation) -> float:
        if self.task.type == "review":
            return self.shop.embedder.similarity(action.arguments["review"], self.task.review.text)
        return rank_accuracy(observation.products, self.task.target)

    def _has_ended(self, action: Action, error: str) -> bool:
        if self.track == "single_turn":
            looked_up = action.name == DETAILS_FUNCTION and not error
            return not looked_up or self.steps >= MAX_STEPS
        return (action.name == "stop" and not error) or self.steps >= MAX_STEPS
