"""Prices of the papers' models, and the estimate of a run."""

import pandas as pd
import pytest

from pwagents.llm.budget import Load, cost_usd, estimate, price_of


def test_every_model_of_the_papers_is_there():
    from importlib.resources import files

    rows = pd.read_csv(files("pwagents.llm") / "models.csv")
    assert list(rows.columns) == ["name", "prompt_usd_per_million", "completion_usd_per_million", "source"]
    assert list(rows["name"]) == [
        "gpt-4.1",
        "gpt-4o",
        "gpt-4o-2024-05-13",
        "gpt-4o-mini",
        "deepseek-v3",
        "qwen2.5-72b-instruct",
        "qwen2.5-7b-instruct",
        "llama-2-7b",
        "claude-3-5-sonnet",
    ]
    assert rows["source"].str.len().min() > 10


@pytest.mark.parametrize(
    "name", ["gpt-4o-mini", "GPT-4o-mini", "openai/gpt-4o-mini", "gpt-4o-mini-2024-07-18"]
)
def test_names_with_maker_and_date(name):
    assert cost_usd(name, 2_000_000, 500_000) == pytest.approx(0.30 + 0.30)


def test_a_version_with_a_price_of_its_own():
    assert cost_usd("openai/gpt-4o-2024-05-13", 1e6, 1e6) == pytest.approx(5 + 15)
    assert cost_usd("openai/gpt-4o-2024-08-06", 1e6, 1e6) == pytest.approx(2.5 + 10)


@pytest.mark.parametrize("name", ["qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct", "my-model", ""])
def test_a_model_without_a_known_price_costs_nothing(name):
    assert price_of(name) is None
    assert cost_usd(name, 1e6, 1e6) == 0.0


def test_an_estimate_has_one_row_for_each_role_that_a_model_plays():
    table = estimate(
        {
            "policy": Load(
                "openai:gpt-4o", tasks=100, calls_per_task=4, prompt_tokens=5000, completion_tokens=50
            ),
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
