"""Prices, the estimate of a run, and a budget that holds while threads spend it."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pwagents.llm.budget import Budget, BudgetError, Load, cost_usd, estimate, price_of
from pwagents.llm.chat import Reply
from pwagents.schema import Usage

COST = Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.01)


def paid_calls(budget, seconds=0.0):
    """How many calls it paid for, at most 100."""

    def call():
        time.sleep(seconds)
        return Reply(text="x", usage=COST)

    for n in range(100):
        try:
            budget.pay(call)
        except BudgetError as error:
            assert "is spent" in str(error) and "raise the budget" in str(error)
            return n
    return 100


def test_dollars_and_tokens_are_capped_also_for_calls_under_way():
    assert paid_calls(Budget(max_usd=0.05)) == 5
    assert paid_calls(Budget(max_tokens=100)) == 1
    assert paid_calls(Budget()) == 100
    budget = Budget(max_tokens=2000)
    budget.pay(lambda: Reply(text="x", usage=COST))
    with ThreadPoolExecutor(8) as threads:
        counts = threads.map(lambda _: paid_calls(budget, 0.02), range(8))
    assert sum(counts) == 19 and budget.spent.calls == 20


PRICES = {
    "openai/GPT-4o-mini-2024-07-18": 0.15 + 0.60,
    "openai/gpt-4o-2024-05-13": 5 + 15,  # a version with a price of its own
    "Qwen/Qwen2.5-7B-Instruct": None,
    "": None,
}


@pytest.mark.parametrize("name", PRICES)
def test_prices_of_names_with_maker_and_date(name):
    assert cost_usd(name, 1e6, 1e6) == pytest.approx(PRICES[name] or 0)
    assert (price_of(name) is None) == (PRICES[name] is None)


def test_an_estimate_has_one_row_for_each_role_that_a_model_plays():
    table = estimate(
        {
            "policy": Load("openai:gpt-4o", 100, 4, 5000, 50),
            "user": Load("openai:my-model", 100, 1.5, 1000, 20),
            "judge": Load("local:outputs/judge", 100, 4, 500, 5),
            "profiler": Load("offline", 100, 1, 500, 5),
        }
    )
    assert table.drop(columns="model").values.tolist() == [
        ["policy", 400, 2_000_000, 20_000, pytest.approx(5.2), "2.5 / 10 per million"],
        ["user", 150, 150_000, 3_000, 0, "no price known"],
        ["judge", 400, 200_000, 2_000, 0, "runs here"],
    ]
