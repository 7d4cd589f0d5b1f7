"""Caps on what the models of a notebook may cost together."""

import threading
import time

import pytest

from pwagents.errors import InfrastructureError
from pwagents.llm.budget import Budget, BudgetedModel, BudgetError
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.store import ResponseStore
from pwagents.llm.stored_model import StoredModel
from pwagents.schema import Usage


class Paid(ChatModel):
    """Each call costs a cent and 100 tokens."""

    name, workers = "paid", 8

    def __init__(self, seconds=0.0):
        self.seconds, self.asked = seconds, 0

    def reply(self, request):
        self.asked += 1
        time.sleep(self.seconds)
        return Reply(text="x", usage=Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.01))


def request(text):
    return Request(messages=({"role": "user", "content": text},))


def ask_until_spent(model):
    for i in range(100):
        try:
            model.reply(request(f"{model.name} {i}"))
        except BudgetError as error:
            return str(error)
    return None


def test_dollars_are_capped():
    inner, budget = Paid(), Budget(max_usd=0.05)
    told = ask_until_spent(BudgetedModel(inner, budget))
    assert inner.asked == 5
    assert budget.spent.usd == pytest.approx(0.05)
    assert "0.05 US dollars is spent" in told and "5 calls" in told and "raise the budget" in told
    assert issubclass(BudgetError, InfrastructureError)


def test_tokens_are_capped_for_all_models_together():
    budget = Budget(max_tokens=1000)
    first, second = Paid(), Paid()
    for i in range(3):
        BudgetedModel(first, budget).reply(request(str(i)))
    told = ask_until_spent(BudgetedModel(second, budget))
    assert (first.asked, second.asked) == (3, 7)
    assert "1,000 tokens is spent" in told


def test_calls_under_way_count():
    inner, budget = Paid(seconds=0.02), Budget(max_tokens=2000)
    model = BudgetedModel(inner, budget)
    model.reply(request("first"))
    threads = [threading.Thread(target=ask_until_spent, args=(model,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inner.asked == 20


def test_stored_replies_cost_nothing(tmp_path):
    store = ResponseStore(tmp_path / "replies.sqlite")
    StoredModel(Paid(), store).reply(request("a"))
    spent = Budget(max_usd=0)
    model = StoredModel(BudgetedModel(Paid(), spent), store)
    assert model.reply(request("a")).usage.usd == 0.01  # what it cost when it was made
    assert spent.spent == Usage()
    with pytest.raises(BudgetError):
        model.reply(request("b"))


def test_without_caps_it_only_counts():
    budget = Budget()
    ask_until_spent(BudgetedModel(Paid(), budget))
    assert budget.spent.calls == 100
