"""What a benchmark holds, in numbers: the statistics of PersonalWAB's section 4.1, on any source."""

import pandas as pd

from pwagents.embedding import count_tokens
from pwagents.schema import TASK_TYPES, Benchmark
from pwagents.web.documents import product_text


def benchmark_statistics(benchmark: Benchmark) -> pd.DataFrame:
    """The rows of PersonalWAB's Table 2: index ``row``, columns "train" and "test".

    Tokens are counted by MiniLM's tokenizer; the paper does not name its own. A behaviour's text is the
    product as the search engine sees it and the review; the paper's 237 tokens a behaviour suggest the
    same. What a user's history holds depends on the split: for test tasks it includes the train purchases.
    Products are those of the whole catalogue, and stand under both splits, as do the targets of all tasks.
    (The paper counts 8,236 products, its published index holds 35,772; the smaller may be one of targets.)
    """
    tokens_of = count_tokens([product_text(product) for product in benchmark.products.values()])
    product_tokens = dict(zip(benchmark.products, tokens_of, strict=True))
    columns = {}
    for split, tasks in benchmark.tasks.items():
        histories = [benchmark.history(task, split) for task in {t.user_id: t for t in tasks}.values()]
        behaviors = [b for history in histories for b in history]
        tokens = sum(count_tokens([f"{b.review.title} {b.review.text}" for b in behaviors]))
        tokens += sum(product_tokens[b.parent_asin] for b in behaviors)
        columns[split] = {
            "Users": len(histories),
            "Avg. behavior length": len(behaviors) / len(histories),
            "Avg. behavior tokens": tokens / len(histories),
            "Instructions": len(tasks),
            "Avg. instruction tokens": sum(count_tokens([t.instruction for t in tasks])) / len(tasks),
            "Products": len(benchmark.products),
            "Avg. product tokens": sum(product_tokens.values()) / len(product_tokens),
            "Products that are a target": len({task.target for task in benchmark.all_tasks()}),
        }
    return pd.DataFrame(columns).rename_axis("row")


def instruction_statistics(benchmark: Benchmark) -> pd.DataFrame:
    """Number and mean tokens of the instructions by task type, both splits (PersonalWAB, Figure 4(b))."""
    rows = []
    for task_type in TASK_TYPES:
        instructions = [t.instruction for t in benchmark.all_tasks() if t.type == task_type]
        tokens = count_tokens(instructions)
        rows.append((task_type, len(instructions), sum(tokens) / len(tokens) if tokens else float("nan")))
    return pd.DataFrame(rows, columns=["task", "instructions", "mean_tokens"])


def history_table(benchmark: Benchmark, user_id: str, n: int) -> pd.DataFrame:
    """The last ``n`` behaviours of a user's train period, one a row, to be looked at."""
    rows = []
    for behavior in benchmark.train_period(user_id)[-n:]:
        product = benchmark.products[behavior.parent_asin]
        rows.append(
            {
                "bought": pd.to_datetime(behavior.timestamp, unit="ms").strftime("%Y-%m-%d"),
                "category": product.category,
                "product": product.title,
                "price ($)": product.price,
                "stars": f"{behavior.review.rating:g}",
                "review": behavior.review.text,
            }
        )
    return pd.DataFrame(rows)
