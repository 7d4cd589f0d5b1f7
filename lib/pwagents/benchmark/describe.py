"""What a benchmark holds: the statistics of PersonalWAB's section 4.1 on any source, and one user to read."""

import pandas as pd

from pwagents.data.synthetic import Truth
from pwagents.embedding import count_tokens
from pwagents.evaluation.figures import COLORS, NEUTRAL, plot_bars, use_style
from pwagents.evaluation.paper import paper_table
from pwagents.profiles.catalogue import section
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


def statistics_below_paper(benchmark: Benchmark, data: str) -> pd.DataFrame:
    """PersonalWAB's Table 2 as printed, and :func:`benchmark_statistics` in rows of their own.

    Args:
        data: what our rows call the benchmark.

    Returns:
        A row a source and split, a column a statistic; what one of the two does not count is missing.
    """
    paper = paper_table("PersonalWAB", "Table 2").droplevel("task", axis=1)
    # The paper counts products once; they stand under both splits, as ours do.
    printed = pd.DataFrame({split: paper[split].fillna(paper["all"]) for split in ("train", "test")})
    sources = {"PersonalWAB, Table 2": printed.T, f"here, {data}": benchmark_statistics(benchmark).T}
    return pd.concat(sources, names=["source", "split"]).astype(float)


def instruction_statistics(benchmark: Benchmark) -> pd.DataFrame:
    """Number and mean tokens of the instructions by task type, both splits (PersonalWAB, Figure 4(b))."""
    rows = []
    for task_type in TASK_TYPES:
        instructions = [t.instruction for t in benchmark.all_tasks() if t.type == task_type]
        tokens = count_tokens(instructions)
        rows.append((task_type, len(instructions), sum(tokens) / len(tokens) if tokens else float("nan")))
    return pd.DataFrame(rows, columns=["task", "instructions", "mean_tokens"])


def plot_instructions(statistics: pd.DataFrame):
    """:func:`instruction_statistics` as bars of mean tokens, the number of instructions within each bar."""
    figure = plot_bars(statistics, "task", "mean_tokens", ylabel="mean tokens of an instruction")
    for bar, task in zip(figure.axes[0].patches, statistics["task"], strict=True):
        bar.set_color(COLORS[task])
    for place, n in enumerate(statistics["instructions"]):
        figure.axes[0].annotate(f"n = {n:,}", (place, 0.5), ha="center", color="white")
    return figure


def comparison_table(source: str) -> pd.DataFrame:
    """PersonalWAB's Table 1, which compares benchmarks, with two rows more: Persona2Web and the benchmark of
    ``source``."""
    table = paper_table("PersonalWAB", "Table 1").droplevel("task", axis=1).rename_axis("benchmark")
    table["source of the row"] = "PersonalWAB, Table 1"
    table.loc["Persona2Web"] = [*paper_table("Persona2Web", "summary").iloc[0], "Persona2Web"]
    table.loc[f"here ({source})"] = ["Single-turn & Multi-turn", "Web function", "yes", "this project"]
    return table


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


def last_year(benchmark: Benchmark, user_id: str) -> pd.DataFrame:
    """What a user bought in the year up to their last purchase, and which of it the test tasks are about.

    Returns:
        A row an event, oldest first: ``date``, ``section`` (the finest category that pages name), ``event``
        ("bought", or the type of a test task) and ``product``.
    """
    bought = [("bought", b.timestamp, b.parent_asin) for b in benchmark.behaviors[user_id]]
    asked = [(t.type, t.timestamp, t.target) for t in benchmark.tasks["test"] if t.user_id == user_id]
    since = bought[-1][1] - 365 * 24 * 3600 * 1000
    rows = [
        {
            "date": pd.to_datetime(timestamp, unit="ms").normalize(),
            "section": section(benchmark.products[asin]),
            "event": event,
            "product": benchmark.products[asin].title,
        }
        for event, timestamp, asin in sorted([*bought, *asked], key=lambda each: each[1])
        if timestamp > since
    ]
    return pd.DataFrame(rows)


def plot_year(year: pd.DataFrame):
    """:func:`last_year` as a line of time for each section; test tasks above the purchase they are about."""
    import matplotlib.pyplot as plt

    use_style()
    sections = sorted(year["section"].unique(), reverse=True)
    figure, ax = plt.subplots(figsize=(10, 1.5 + 0.5 * len(sections)))
    for i, (event, color) in enumerate({"bought": NEUTRAL, **{t: COLORS[t] for t in TASK_TYPES}}.items()):
        own = year[year["event"] == event]
        heights = own["section"].map(sections.index).to_numpy() + 0.18 * i
        ax.scatter(own["date"], heights, color=color, marker="o" if event == "bought" else "^", label=event)
    ax.set_yticks(range(len(sections)), sections)
    ax.set_ylim(-0.5, len(sections))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    figure.autofmt_xdate()
    return figure


def task_table(benchmark: Benchmark, user_id: str, n: int, truth: Truth | None) -> pd.DataFrame:
    """The first ``n`` test tasks of a user, one a row, to be looked at.

    Args:
        truth: of the embedded world; with it, the table says which kind of instruction each is and what it
            leaves out (review tasks have no such truth).
    """
    rows = []
    for task in [task for task in benchmark.tasks["test"] if task.user_id == user_id][:n]:
        title = benchmark.products[task.target].title
        row = {"task": task.type, "instruction": task.instruction, "really bought": title}
        if truth:
            meaning = truth.tasks.get(task.task_id)
            row["kind"] = meaning.kind if meaning else None
            row["left out, in the history"] = ", ".join(meaning.in_history) if meaning else None
            row["left out, in the head"] = ", ".join(meaning.in_head) if meaning else None
        rows.append(row)
    return pd.DataFrame(rows)
