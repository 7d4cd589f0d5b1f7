"""Prices, the estimate of a run, and a budget that holds while threads spend it."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pwagents.llm.budget import Budget, BudgetError, Load, cost_usd, estimate, price_of
from pwagents.llm.chat import Reply
from pwagents.schema import Usage


def pay_until_spent(budget, seconds=0.0):
    """How many calls of 100 tokens and a cent it paid for, at most 100, and what it says in the end."""

    def call():
        time.sleep(seconds)
        return Reply(text="x", usage=Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.01))

    for n in range(100):
        try:
            budget.pay(call)
        except BudgetError as error:
            return n, str(error)
    return 100, ""


def test_dollars_and_tokens_are_capped_also_for_calls_under_way():
    n, told = pay_until_spent(Budget(max_usd=0.05))
    assert n == 5 and "0.05 US dollars is spent" in told and "raise the budget" in told
    assert pay_until_spent(Budget(max_tokens=100))[0] == 1
    budget = Budget(max_tokens=2000)
    budget.pay(lambda: Reply(text="x", usage=Usage(calls=1, prompt_tokens=100)))
    with ThreadPoolExecutor(8) as threads:
        counts = threads.map(lambda _: pay_until_spent(budget, 0.02)[0], range(8))
    assert sum(counts) == 19 and budget.spent.calls == 20
    assert pay_until_spent(Budget()) == (100, "")


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        ("gpt-4o-mini", 0.15 + 0.60),
        ("GPT-4o-mini", 0.15 + 0.60),
        ("openai/gpt-4o-mini", 0.15 + 0.60),
        ("gpt-4o-mini-2024-07-18", 0.15 + 0.60),
        ("openai/gpt-4o-2024-05-13", 5 + 15),  # a version with a price of its own
        ("openai/gpt-4o-2024-08-06", 2.5 + 10),
        ("Qwen/Qwen2.5-7B-Instruct", None),
        ("my-model", None),
        ("", None),
    ],
)
def test_prices_of_names_with_maker_and_date(name, usd):
    assert cost_usd(name, 1e6, 1e6) == pytest.approx(usd or 0)
    assert (price_of(name) is None) == (usd is None)


def test_an_estimate_has_one_row_for_each_role_that_a_model_plays():
    table = estimate(
        {
            "policy": Load("openai:gpt-4o", 100, 4, 5000, 50),
            "user": Load("openai:my-model", 100, 1.5, 1000, 20),
            "judge": Load("local:outputs/judge", 100, 4, 500, 5),
            "profiler": Load("offline", 100, 1, 500, 5),
        }
    )
    assert list(table["role"]) == ["policy", "user", "judge"]
    assert list(table["calls"]) == [400, 150, 400]
    assert list(table["prompt tokens"]) == [2_000_000, 150_000, 200_000]
    assert list(table["US dollars"]) == pytest.approx([5.0 + 0.2, 0, 0])
    assert list(table["price"]) == ["2.5 / 10 per million", "no price known", "runs here"]
