"""What models cost: known prices, an estimate of a run before it is paid for, a limit while it is.

The prices are data (``budget.csv``), with source and date; they change, so look before you spend.
"""

import csv
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from pwagents.errors import InfrastructureError
from pwagents.llm.chat import Reply
from pwagents.schema import Usage

if TYPE_CHECKING:
    import pandas as pd

_VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


@dataclass(frozen=True)
class Load:
    """What a role will ask of its model: how many calls, and of which size.

    Args:
        model: as :func:`pwagents.llm.make.Models` takes it, or a word such as "offline".
        prompt_tokens, completion_tokens: of one call, on average.
    """

    model: str
    tasks: int
    calls_per_task: float
    prompt_tokens: float
    completion_tokens: float


def price_of(model: str) -> tuple[float, float] | None:
    """Return US dollars per million tokens of prompts and of replies; None if no price is known.

    A maker before the name does not matter, and a date after it only if that version has a price of its own:
    "openai/gpt-4o-2024-08-06" is "gpt-4o", "gpt-4o-2024-05-13" is not.
    """
    name = model.lower().rpartition("/")[2]
    return _prices().get(name) or _prices().get(_VERSION.sub("", name))


def cost_usd(model: str, prompt_tokens: float, completion_tokens: float) -> float:
    """Return US dollars for these tokens; 0 if no price is known."""
    prompt, completion = price_of(model) or (0.0, 0.0)
    return (prompt_tokens * prompt + completion_tokens * completion) / 1e6


def estimate(roles: Mapping[str, Load]) -> "pd.DataFrame":
    """Return an estimate of what a run will ask of each role that a model plays.

    Stored replies make it cheaper and retries more expensive; neither are known beforehand.

    Returns:
        Columns role, model, calls, prompt tokens, reply tokens, US dollars, price (in words; a model without
        a known price costs 0 US dollars and says so).
    """
    import pandas as pd

    rows = []
    for role, load in roles.items():
        provider, _, name = load.model.partition(":")
        if not name:
            continue
        calls = round(load.tasks * load.calls_per_task)
        prompt, completion = round(calls * load.prompt_tokens), round(calls * load.completion_tokens)
        prices = price_of(name) if provider == "openai" else None
        price = "{:g} / {:g} per million".format(*prices) if prices else "no price known"
        price = {"local": "runs here", "replay": "stored replies"}.get(provider, price)
        usd = cost_usd(name, prompt, completion) if prices else 0.0
        rows.append((role, load.model, calls, prompt, completion, usd, price))
    columns = ["role", "model", "calls", "prompt tokens", "reply tokens", "US dollars", "price"]
    return pd.DataFrame(rows, columns=columns)


class BudgetError(InfrastructureError):
    """The budget is spent. Finished episodes are stored; with a larger budget the run goes on from there."""


class Budget:
    """Limits on tokens (prompt and completion) and US dollars, shared by models and threads.

    A new budget starts at nothing spent: it limits one run of a notebook. Stored replies cost nothing, and
    neither do local models. A model without a known price counts 0 dollars: limit its tokens. An answer that
    could not be read is asked for again, and what it cost is not known here.

    Attributes:
        spent: what the calls so far cost.
    """

    def __init__(self, *, max_usd: float | None = None, max_tokens: int | None = None):
        self.max_usd, self.max_tokens = max_usd, max_tokens
        self.spent = Usage()
        self._under_way = 0
        self._lock = threading.Lock()

    def pay(self, call: Callable[[], Reply]) -> Reply:
        """Return the reply of ``call``, its cost added to what is spent.

        Raises:
            BudgetError: the budget is spent. Calls under way count with the mean cost of those so far, so
                except for the very first calls it is overrun by the difference from that mean at most.
        """
        with self._lock:
            # Without the calls under way, as many as there are threads would slip through at the end.
            spent = self.spent
            for limit, so_far, unit in (
                (self.max_usd, spent.usd, "US dollars"), (self.max_tokens, spent.tokens, "tokens")
            ):  # fmt: skip
                if limit is not None and so_far + so_far * self._under_way / max(1, spent.calls) >= limit:
                    raise BudgetError(
                        f"the budget of {limit:,} {unit} is spent ({so_far:,.10g} in {spent.calls:,} calls); "
                        "raise the budget and run again: finished episodes are stored"
                    )
            self._under_way += 1
        usage = Usage()  # of a call that fails: what it cost is not known
        try:
            reply = call()
            usage = reply.usage
            return reply
        finally:
            with self._lock:
                self._under_way -= 1
                self.spent += usage


@cache
def _prices() -> dict[str, tuple[float, float]]:
    with (files("pwagents.llm") / "budget.csv").open(encoding="utf-8", newline="") as file:
        rows = [(name, prompt, reply) for name, prompt, reply, _ in csv.reader(file)][1:]
    return {name: (float(prompt), float(reply)) for name, prompt, reply in rows if prompt}
