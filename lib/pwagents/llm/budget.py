"""A limit on what the models of a notebook may cost together."""

import threading
from collections.abc import Callable

from pwagents.errors import InfrastructureError
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.schema import Usage


class BudgetError(InfrastructureError):
    """The budget is spent. Finished episodes are stored; with a larger budget the run goes on from there."""


class Budget:
    """Caps on tokens (prompt and completion) and US dollars, shared by models and threads.

    A new budget starts at nothing spent: it limits one run of a notebook. Stored replies cost nothing, and
    neither do local models. A model without a known price counts 0 dollars: cap its tokens. An
    answer that could not be read is asked for again, and what it cost is not known here.

    Attributes:
        spent: what the calls so far cost.
    """

    def __init__(self, *, max_usd: float | None = None, max_tokens: int | None = None):
        self.max_usd, self.max_tokens = max_usd, max_tokens
        self.spent = Usage()
        self._under_way = 0
        self._lock = threading.Lock()

    def pay(self, call: Callable[[], Reply]) -> Reply:
        """The reply of ``call``, its cost added to what is spent.

        Raises:
            BudgetError: the budget is spent; calls under way count with the mean cost of those so far, so
                it is overrun by the difference from that mean at most, the very first calls aside.
        """
        with self._lock:
            self._check()
            self._under_way += 1
        usage = Usage()
        try:
            reply = call()
            usage = reply.usage
            return reply
        finally:
            with self._lock:
                self._under_way -= 1
                self.spent += usage

    def _check(self) -> None:
        usd, calls = self.spent.usd, self.spent.calls
        tokens = self.spent.prompt_tokens + self.spent.completion_tokens
        expected = self._under_way / max(1, calls)  # of the calls under way, as a share of what is spent
        if self.max_usd is not None and usd + usd * expected >= self.max_usd:
            raise BudgetError(
                f"the budget of {self.max_usd:g} US dollars is spent ({usd:.4g} in {calls:,} calls); "
                "raise the budget and run again: finished episodes are stored"
            )
        if self.max_tokens is not None and tokens + round(tokens * expected) >= self.max_tokens:
            raise BudgetError(
                f"the budget of {self.max_tokens:,} tokens is spent ({tokens:,} in {calls:,} calls); "
                "raise the budget and run again: finished episodes are stored"
            )


class BudgetedModel(ChatModel):
    """A model whose calls are paid from a budget."""

    def __init__(self, inner: ChatModel, budget: Budget):
        self.inner, self.budget = inner, budget
        self.name, self.workers = inner.name, inner.workers

    def reply(self, request: Request) -> Reply:
        return self.budget.pay(lambda: self.inner.reply(request))
