"""What shops and customers write reaches a model between fences: instructions hidden in it stay data."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pwagents.agents.chat import Setup
from pwagents.agents.methods import METHODS
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.schema import FUNCTION_OF, Behavior, Benchmark, Product, Review, Task
from pwagents.shop.environment import Shop, run_episode
from pwagents.shop.search import build_search_engine

from .conftest import ScriptedModel, call

HIDDEN = yaml.safe_load((Path(__file__).parent / "adversarial.yaml").read_text("utf-8"))


def poison_shop(case, embedder):
    """Make a tiny shop whose user bought the mug with the hidden text before, and is to buy it again."""
    mug, reviews = HIDDEN["mug"], dict(HIDDEN["reviews"])
    poisoned = {
        "title": case["text"],
        "features": (*mug["features"], case["text"]),
        "description": (case["text"],),
        "details": {**mug["details"], "Note": case["text"]},
        "store": case["text"],
    }
    if case["place"] == "review":
        reviews["M1"] = case["text"]
    else:
        mug = {**mug, case["place"]: poisoned[case["place"]]}
    products = {fields["parent_asin"]: Product(**fields) for fields in (mug, *HIDDEN["others"])}
    past = tuple(
        Behavior(parent_asin=asin, timestamp=i, review=Review(rating=4, text=text))
        for i, (asin, text) in enumerate(reviews.items(), start=1)
    )
    fields = {"instruction": HIDDEN["instructions"][case["task"]], "timestamp": len(past) + 1}
    review = Review(rating=5, text="A mug like a friend, warm and sturdy.")
    task = Task(task_id="t", user_id="U1", type=case["task"], target="M1", review=review, **fields)
    benchmark = Benchmark("adversarial", products, {"U1": past}, {"train": (), "test": (task,)})
    anything = SimpleNamespace(recommend=lambda product_sequence, k: list(products)[:k])
    recommenders = SimpleNamespace(at=lambda timestamp: anything)
    return Shop(benchmark, build_search_engine(products), recommenders, embedder), task


@pytest.mark.parametrize("method", METHODS)
def test_no_hidden_instruction_stands_outside_of_the_fences(method, embedder):
    is_read = False
    for case in HIDDEN["cases"]:
        shop, task = poison_shop(case, embedder)

        def script(request, task=task):
            if len(request.messages) == 1:  # PUMA's first step
                return FUNCTION_OF[task.type]
            search = call("search_product_by_query", '{"query": "enamel mug"}')
            return search if len(request.messages) < 4 else call("stop")

        model = ScriptedModel(script)
        agent = METHODS[method](Setup(model, shop.benchmark.products, "multi_turn", embedder))
        run_episode(shop, task, agent, "multi_turn")
        text = "\n".join(m["content"] or "" for request in model.requests for m in request.messages)
        outside = re.sub(f"{OPEN}.*?{CLOSE}", "", text, flags=re.DOTALL)
        forms = (case["text"], json.dumps(case["text"])[1:-1])
        assert not any(form in outside for form in forms), case["name"]
        is_read |= any(form in text for form in forms)
    assert is_read  # in a memory, or in what a search shows
