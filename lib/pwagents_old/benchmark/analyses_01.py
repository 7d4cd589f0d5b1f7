"""Tables and figures of notebook 01: what the data hold, one user to read, and how hard the tasks are.

How hard: a ladder of search queries for the same tasks, of which each rung knows more than the one below.
Because the rungs use the latent truth, their differences measure the embedded world, not a method.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pwagents.data.synthetic import World, make_world
from pwagents.embedding import count_tokens
from pwagents.profiles.clusters import section
from pwagents.results.figures import plot_bars, plot_intervals
from pwagents.shop.score import rank_accuracy
from pwagents.results.papers import paper_table
from pwagents.results.references import COLUMNS, product_references
from pwagents.results.statistics import paired_test
from pwagents.results.style import COLORS, NEUTRAL, styled
from pwagents.schema import TASK_TYPES, Benchmark, Task
from pwagents.settings import WorldSettings
from pwagents.shop.search import SearchEngine, build_search_engine, product_text

NEEDS_TRUTH = 'Not known here: only the embedded world tells what people really want (source = "synthetic").'
RUNGS = (
    "random",
    "popularity",
    "instruction alone",
    "content words alone",
    "+ averaged profile",
    "+ right interest, before drift",
    "+ right interest, up to date",
    "+ the user's answers",
    "oracle query",
)
# Three kinds of knowledge, each the gain of one rung over another.
GAINS = {
    "knowing the right interest": ("+ averaged profile", "+ right interest, up to date"),
    "updating the profile": ("+ right interest, before drift", "+ right interest, up to date"),
    "asking the user": ("instruction alone", "+ the user's answers"),
}
# Negative controls: worlds in which one setting takes the worth out of one kind of knowledge.
CONTROLS: dict[str, dict[str, Any]] = {
    "as configured": {},
    "one interest": {"interests": (1, 1)},  # the averaged profile is the right interest
    "no drift": {"drift": 0.0},  # the old preferences are the current ones
    "complete instructions": {"completeness": 1.0},  # nothing is left to ask
}


def statistics_below_paper(benchmark: Benchmark, data: str) -> pd.DataFrame:
    """Put a benchmark's statistics below PersonalWAB's Table 2 as printed, in rows of their own.

    Tokens are counted by MiniLM's tokenizer; the paper does not name its own. A behaviour's text is the
    product as the search engine sees it and the review; the paper's 237 tokens a behaviour suggest the
    same. For test tasks a history includes the train purchases. Products are those of the whole catalogue,
    and stand under both splits, as do the targets of all tasks. (The paper counts 8,236 products, its
    published recommender can name 35,772; the smaller may be one of targets.)

    Returns:
        A row a source and split (ours are called ``data``), a column a statistic, missing where one counts
        none.
    """
    tokens_of = count_tokens([product_text(product) for product in benchmark.products.values()])
    product_tokens = dict(zip(benchmark.products, tokens_of, strict=True))
    ours = {}
    for split, tasks in benchmark.tasks.items():
        histories = [benchmark.history(task, split) for task in {t.user_id: t for t in tasks}.values()]
        behaviors = [b for history in histories for b in history]
        # Of a behaviour: the product's text was counted above, once for all who bought it.
        tokens = sum(count_tokens([f"{b.review.title} {b.review.text}" for b in behaviors]))
        tokens += sum(product_tokens[b.parent_asin] for b in behaviors)
        ours[split] = {
            "Users": len(histories),
            "Avg. behavior length": len(behaviors) / len(histories),
            "Avg. behavior tokens": tokens / len(histories),
            "Instructions": len(tasks),
            "Avg. instruction tokens": sum(count_tokens([t.instruction for t in tasks])) / len(tasks),
            "Products": len(benchmark.products),
            "Avg. product tokens": sum(product_tokens.values()) / len(product_tokens),
            "Products that are a target": len({task.target for task in benchmark.all_tasks()}),
        }
    paper = paper_table("PersonalWAB", "Table 2").droplevel("task", axis=1)
    # The paper counts products once; they stand under both splits, as ours do.
    printed = pd.DataFrame({split: paper[split].fillna(paper["all"]) for split in ("train", "test")})
    sources = {"PersonalWAB, Table 2": printed.T, f"here, {data}": pd.DataFrame(ours).T}
    return pd.concat(sources, names=["source", "split"]).astype(float)


def realism(benchmarks: Mapping[str, Benchmark]) -> pd.DataFrame:
    """Measure what decides whether memory can name a target, and what a text tells: a column a benchmark.

    Shares are of the recommend tasks of the test, and know what lies before their user's first test task;
    strangers are left out, so that benchmarks with and without them compare.
    """
    columns = {}
    for name, benchmark in benchmarks.items():
        tasks = [task for task in benchmark.tasks["test"] if task.type == "recommend"]
        behaviors = [behavior for own in benchmark.behaviors.values() for behavior in own]
        first: dict[str, int] = {}  # product -> when one of the users bought it first
        for behavior in sorted(behaviors, key=lambda each: each.timestamp):
            first.setdefault(behavior.parent_asin, behavior.timestamp)
        by_user = [task.target in {b.parent_asin for b in benchmark.history(task, "test")} for task in tasks]
        by_any = [first[task.target] < benchmark.first_task(task.user_id) for task in tasks]
        columns[name] = {
            "users": len(benchmark.behaviors),
            "purchases of a user": len(behaviors) / len(benchmark.behaviors),
            "targets of recommendations": len(tasks),
            "share that their user bought before": np.mean(by_user),
            "share that any user bought before": np.mean(by_any),
            "different products / purchases": len(first) / len(behaviors),
            "words of a review": np.mean([len(behavior.review.text.split()) for behavior in behaviors]),
        }
    return pd.DataFrame(columns).rename_axis("measure").reset_index()


def instruction_statistics(benchmark: Benchmark) -> pd.DataFrame:
    """Count the instructions and their mean tokens by task type, both splits (PersonalWAB, Figure 4(b))."""
    tasks = list(benchmark.all_tasks())
    frame = pd.DataFrame({"task": [t.type for t in tasks], "n": count_tokens([t.instruction for t in tasks])})
    table = frame.groupby("task")["n"].agg(instructions="size", mean_tokens="mean").reindex(TASK_TYPES)
    return table.fillna({"instructions": 0}).astype({"instructions": int}).reset_index()


def plot_instructions(statistics: pd.DataFrame):
    """Draw :func:`instruction_statistics` as bars of mean tokens, with the number of instructions in each."""
    look = {"hue": "task", "stacked": True}  # each colour has a place to itself
    figure = plot_bars(statistics, "task", "mean_tokens", **look, ylabel="mean tokens of an instruction")
    figure.legends[0].remove()  # the axis names the types
    for place, n in enumerate(statistics["instructions"]):
        figure.axes[0].annotate(f"n = {n:,}", (place, 0.5), ha="center", color="white")
    return figure


def history_table(benchmark: Benchmark, user_id: str, n: int) -> pd.DataFrame:
    """List the last ``n`` behaviours of a user's train period, one a row, to be read."""
    behaviors = benchmark.train_period(user_id)[-n:]
    products = [benchmark.products[behavior.parent_asin] for behavior in behaviors]
    dates = pd.to_datetime([behavior.timestamp for behavior in behaviors], unit="ms")
    columns = {
        "bought": dates.strftime("%Y-%m-%d"),
        "category": [product.category for product in products],
        "product": [product.title for product in products],
        "price ($)": [product.price for product in products],
        "stars": [f"{behavior.review.rating:g}" for behavior in behaviors],
        "review": [behavior.review.text for behavior in behaviors],
    }
    return pd.DataFrame(columns)


def last_year(benchmark: Benchmark, user_id: str) -> pd.DataFrame:
    """List what a user bought in their last year, and which of it the test tasks are about.

    Returns:
        A row an event, oldest first: ``date``, ``section`` (the finest category that pages name), ``event``
        ("bought", or the type of a test task) and ``product``.
    """
    products, own = benchmark.products, [t for t in benchmark.tasks["test"] if t.user_id == user_id]
    rows = [("bought", b.timestamp, b.parent_asin) for b in benchmark.behaviors[user_id]]
    rows += [(task.type, task.timestamp, task.target) for task in own]
    events = pd.DataFrame(rows, columns=["event", "date", "asin"])
    events["date"] = pd.to_datetime(events["date"], unit="ms")
    events["section"] = [section(products[asin]) for asin in events["asin"]]
    events["product"] = [products[asin].title for asin in events["asin"]]
    end = pd.to_datetime(benchmark.behaviors[user_id][-1].timestamp, unit="ms")
    year = events[events["date"] > end - pd.Timedelta(days=365)].sort_values("date", kind="stable")
    return year.assign(date=year["date"].dt.normalize())[["date", "section", "event", "product"]]


@styled
def plot_year(year: pd.DataFrame):
    """Draw :func:`last_year`, a line of time a section; test tasks above the purchase they are about."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sections = sorted(year["section"].unique(), reverse=True)
    colors = {"bought": NEUTRAL, **{task_type: COLORS[task_type] for task_type in TASK_TYPES}}
    heights = year["section"].map(sections.index) + 0.18 * year["event"].map(list(colors).index)
    figure, ax = plt.subplots(figsize=(10, 1.5 + 0.5 * len(sections)))
    sns.scatterplot(
        year.assign(height=heights), x="date", y="height", ax=ax, s=90, linewidth=0,
        hue="event", hue_order=colors, palette=colors,
        style="event", markers={event: "o" if event == "bought" else "^" for event in colors},
    )  # fmt: skip
    ax.set_yticks(range(len(sections)), sections)
    ax.set(ylim=(-0.5, len(sections)), xlabel="", ylabel="")
    sns.move_legend(ax, "lower center", bbox_to_anchor=(0.5, 1), ncols=4, title=None)
    figure.autofmt_xdate()
    return figure


def search_ladder(world: World, engine: SearchEngine, tasks: Sequence[Task], seed: int) -> pd.DataFrame:
    """Score each rung on the search tasks among ``tasks``, one row a task and rung.

    The rungs between instruction and oracle are queries: the instruction, and values for the attributes that
    it leaves out. Each knows which attributes the target's domain has. They differ in the values they take
    for them, and in the departments they name: all of the user's, or the right one.
    """
    searches = [task for task in tasks if task.type == "search"]
    ends = product_references(world.benchmark, engine, searches, seed)
    rows = []
    for task in searches:
        person, meaning = world.truth.people[task.user_id], world.truth.tasks[task.task_id]
        interest = next(i for i in person.interests if i.domain.name == meaning.interest)
        averaged = {slot: person.averaged[slot] for slot in interest.domain.slots}
        queries = {
            "+ averaged profile": (averaged, [i.domain.name for i in person.interests]),
            "+ right interest, before drift": (interest.initial, [meaning.interest]),
            "+ right interest, up to date": (interest.current, [meaning.interest]),
            "+ the user's answers": (meaning.wants, []),
        }
        # What the instruction states is in each query already.
        for rung, (preferences, departments) in queries.items():
            left_out = [value for slot, value in preferences.items() if slot not in meaning.stated]
            query = " ".join([task.instruction, *left_out, *departments])
            ranking = [asin for asin, _ in engine.search(query)]
            rows.append((rung, task.task_id, task.user_id, task.type, rank_accuracy(ranking, task.target)))
    ladder = pd.concat([ends, pd.DataFrame(rows, columns=COLUMNS)], ignore_index=True)
    ladder = ladder.replace({"method": {"oracle": "oracle query"}})
    return ladder.sort_values("method", key=lambda rungs: rungs.map(RUNGS.index), kind="stable")


def knowledge_gains(config: WorldSettings, seed: int) -> pd.DataFrame:
    """Measure what each kind of knowledge gains in the world of ``config`` and in :data:`CONTROLS`.

    Returns:
        ``world, knowledge, gain, low, high, p``, one row a world and kind of knowledge: paired differences
        of result accuracy on the same search tasks, with 95% intervals clustered by user.
    """
    rows = []
    for name, changes in CONTROLS.items():
        world = make_world(config.changed(**changes), seed)
        engine = build_search_engine(world.benchmark.products)
        ladder = search_ladder(world, engine, world.benchmark.tasks["test"], seed)
        for knowledge, (without, knowing) in GAINS.items():
            test = paired_test(ladder, "result_accuracy", knowing, without)
            rows.append((name, knowledge, test.difference, test.low, test.high, test.p))
    return pd.DataFrame(rows, columns=["world", "knowledge", "gain", "low", "high", "p"])


def plot_gains(gains: pd.DataFrame):
    """Draw :func:`knowledge_gains` as points with intervals, beside a line at no gain."""
    label = "gain in result accuracy, search tasks (95% interval)"
    figure = plot_intervals(gains, "world", hue="knowledge", mean="gain", xlabel=label)
    figure.axes[0].axvline(0, color="black", linewidth=1)
    return figure
