"""Prices, the estimate of a run, and a budget that holds while threads spend it."""

import threading
import time

import pytest

from pwagents.llm.budget import Budget, BudgetError, Load, cost_usd, estimate, price_of
from pwagents.llm.chat import Reply
from pwagents.schema import Usage


def paid(seconds=0.0):
    """A call of 100 tokens and a cent."""
    time.sleep(seconds)
    return Reply(text="x", usage=Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.01))


def pay_until_spent(budget, seconds=0.0):
    """How many calls the budget paid for, at most 100, and what it says in the end."""
    for n in range(100):
        try:
            budget.pay(lambda: paid(seconds))
        except BudgetError as error:
            return n, str(error)
    return 100, ""


def test_dollars_are_capped():
    n, told = pay_until_spent(Budget(max_usd=0.05))
    assert n == 5 and "0.05 US dollars is spent" in told and "raise the budget" in told


def test_tokens_are_capped_also_for_calls_under_way():
    budget, counts = Budget(max_tokens=2000), []
    budget.pay(paid)
    spend = threading.Thread
    threads = [spend(target=lambda: counts.append(pay_until_spent(budget, 0.02)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 19 and budget.spent.calls == 20


def test_without_caps_it_only_counts():
    budget = Budget()
    assert pay_until_spent(budget) == (100, "") and budget.spent.calls == 100


@pytest.mark.parametrize(
    "name", ["gpt-4o-mini", "GPT-4o-mini", "openai/gpt-4o-mini", "gpt-4o-mini-2024-07-18"]
)
def test_prices_of_names_with_maker_and_date(name):
    assert cost_usd(name, 2_000_000, 500_000) == pytest.approx(0.30 + 0.30)


def test_a_version_may_have_a_price_of_its_own_and_a_model_none():
    assert cost_usd("openai/gpt-4o-2024-05-13", 1e6, 1e6) == pytest.approx(5 + 15)
    assert cost_usd("openai/gpt-4o-2024-08-06", 1e6, 1e6) == pytest.approx(2.5 + 10)
    for name in ("qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct", "my-model", ""):
        assert price_of(name) is None and cost_usd(name, 1e6, 1e6) == 0.0


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
