"""What models cost: known prices (``budget.csv``), an estimate before a run, a limit while it runs."""

import csv
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING

from pwagents.errors import InfrastructureError
from pwagents.llm.chat import Reply
from pwagents.schema import Usage

if TYPE_CHECKING:
    import pandas as pd

VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


@dataclass(frozen=True)
class Load:
    """What a role asks of its model (``openai:NAME``, "offline"): calls, and tokens of each on average."""

    model: str
    tasks: int
    calls_per_task: float
    prompt_tokens: float
    completion_tokens: float


@cache
def _known() -> dict[str, tuple[float, float, str]]:
    with (files(__package__) / "budget.csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return {name: (float(prompt), float(completion), date) for name, prompt, completion, date, _ in rows}


def _facts(model: str) -> tuple[float, float, str] | None:
    """Return what is known of a model.

    A maker before the name does not matter, and a date after it only if that version has a line of its own:
    "openai/gpt-4o-2024-08-06" is "gpt-4o", "gpt-4o-2024-05-13" is not.
    """
    name = model.lower().rpartition("/")[2]
    return _known().get(name) or _known().get(VERSION.sub("", name))


def price_of(model: str) -> tuple[float, float] | None:
    """Return US dollars per million tokens of prompts and of replies; None if no price is known."""
    return facts[:2] if (facts := _facts(model)) else None


def shut_down(model: str) -> str:
    """Return the day on which its maker retires or has retired a model, as announced; empty for none."""
    return facts[2] if (facts := _facts(model)) else ""


def cost_usd(model: str, prompt_tokens: float, completion_tokens: float) -> float:
    """Return US dollars for these tokens; 0 if no price is known."""
    prompt, completion = price_of(model) or (0.0, 0.0)
    return (prompt_tokens * prompt + completion_tokens * completion) / 1e6


def estimate(roles: Mapping[str, Load]) -> "pd.DataFrame":
    """Return a row for each role that a model plays: calls, tokens, and US dollars (0 without a price).

    Stored replies make a run cheaper and retries more expensive; neither are known beforehand.
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

    It limits one run: stored replies cost nothing, and neither do local models. A model without a known price
    counts 0 dollars: limit its tokens. What an answer that could not be read cost is not known here.

    Attributes:
        spent: what the calls so far cost.
    """

    def __init__(self, *, max_usd: float = inf, max_tokens: float = inf):
        self.max_usd, self.max_tokens, self.spent = max_usd, max_tokens, Usage()
        self._under_way, self._lock = 0, threading.Lock()

    def pay(self, call: Callable[[], Reply]) -> Reply:
        """Return the reply of ``call``, its cost added to what is spent.

        Raises:
            BudgetError: the budget is spent. Calls under way count with the mean cost of those so far, so
                except for the very first calls it is overrun by the difference from that mean at most.
        """
        with self._lock:
            calls = self.spent.calls
            usd, tokens = (self.spent.usd, self.max_usd), (self.spent.tokens, self.max_tokens)
            for unit, (spent, limit) in {"US dollars": usd, "tokens": tokens}.items():
                if spent + spent * self._under_way / max(1, calls) >= limit:
                    raise BudgetError(
                        f"the budget of {limit:,} {unit} is spent ({spent:,.10g} in {calls:,} calls); "
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
