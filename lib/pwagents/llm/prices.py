"""What models cost: prices per million tokens, and an estimate of a run before it is paid for.

The prices are data (``models.csv``), with source and date; they change, so look before you spend.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens, and where the numbers come from."""

    prompt: float
    completion: float
    source: str


@dataclass(frozen=True)
class Load:
    """What a role will ask of its model.

    Args:
        model: as :func:`pwagents.llm.make.make_model` takes it, or "offline".
        prompt_tokens, completion_tokens: of one call, on average.
    """

    model: str
    tasks: int
    calls_per_task: float
    prompt_tokens: float
    completion_tokens: float


def price_of(model: str) -> Price | None:
    """The price of a model; None where none is known.

    A maker before the name does not matter, and a date behind it only where that version has a price of its
    own: "openai/gpt-4o-2024-08-06" is "gpt-4o", "gpt-4o-2024-05-13" is not.
    """
    name = model.lower().rpartition("/")[2]
    return _prices().get(name) or _prices().get(_VERSION.sub("", name))


def cost_usd(model: str, prompt_tokens: float, completion_tokens: float) -> float:
    """US dollars for these tokens; 0 where no price is known."""
    price = price_of(model)
    if price is None:
        return 0.0
    return (prompt_tokens * price.prompt + completion_tokens * price.completion) / 1e6


def estimate(roles: Mapping[str, Load]) -> "pd.DataFrame":
    """One row per role: calls, tokens and US dollars of a run, before it is paid for.

    Stored replies and retries are not known beforehand: the first make a run cheaper, the others dearer.

    Returns:
        Columns role, model, calls, prompt_tokens, completion_tokens, usd, price (in words; a model without a
        known price has usd 0 and says so).
    """
    import pandas as pd

    columns = ["role", "model", "calls", "prompt_tokens", "completion_tokens", "usd", "price"]
    return pd.DataFrame([_estimate_one(role, load) for role, load in roles.items()], columns=columns)


def _estimate_one(role: str, load: Load) -> dict:
    provider, _, name = load.model.partition(":")
    calls = 0 if provider == "offline" else round(load.tasks * load.calls_per_task)
    prompt, completion = round(calls * load.prompt_tokens), round(calls * load.completion_tokens)
    usd, price = 0.0, {"offline": "no model", "local": "runs here", "replay": "stored replies"}.get(provider)
    if price is None:
        known = price_of(name)
        usd = cost_usd(name, prompt, completion)
        price = f"{known.prompt:g} / {known.completion:g} per million" if known else "no price known"
    return {
        "role": role,
        "model": load.model,
        "calls": calls,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "usd": usd,
        "price": price,
    }


@cache
def _prices() -> dict[str, Price]:
    with (files("pwagents.llm") / "models.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["name"]: Price(
                float(row["prompt_usd_per_million"]), float(row["completion_usd_per_million"]), row["source"]
            )
            for row in csv.DictReader(file)
            if row["prompt_usd_per_million"]
        }
