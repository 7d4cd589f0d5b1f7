"""A user whose purchases and tasks are made by hand, for what the published scripts make of them.

Thirty-three things for the kitchen, one a day, three for the garden between them, no toy before a train task
asks for one.
"""

import json

from pwagents.schema import Behavior, Benchmark, Product, Review, Task

DAY = 86_400_000
KITCHEN = [f"K{i:02}" for i in range(1, 34)]
GARDEN = {"G1": 5.5, "G2": 20.5, "G3": 32.5}  # id -> day


def product(asin, category, noun):
    extra = {"price": 9.5, "store": "Otter"} if asin != "G1" else {}
    return Product(
        parent_asin=asin,
        title=f"{noun} {asin}",
        category=category,
        average_rating=4.5,
        rating_number=12,
        features=(f"Feature of {asin}.",),
        description=("For every day.",),
        details={"Color": "red"},
        **extra,
    )


def make_products():
    shelf = [*((asin, "Kitchen", "Pan") for asin in [*KITCHEN, "K98", "K99"])]
    shelf += [*((asin, "Garden", "Rake") for asin in [*GARDEN, "G9"]), ("T1", "Toys", "Kite")]
    return {row[0]: product(*row) for row in shelf}


def behavior(asin, day):
    review = Review(rating=4.0, text=f"My words on {asin}.")
    return Behavior(parent_asin=asin, timestamp=int(day * DAY), review=review)


def task(name, kind, target, day, instruction):
    return Task(
        task_id=name,
        user_id="U",
        type=kind,
        timestamp=int(day * DAY),
        instruction=instruction,
        target=target,
        review=Review(rating=4.0, text=f"My words on {target}."),
    )


def make_benchmark():
    bought = [*((asin, i) for i, asin in enumerate(KITCHEN, start=1)), *GARDEN.items()]
    bought += [("G9", 25.2), ("K99", 40.0), ("T1", 41.0), ("K98", 50.0)]
    behaviors = sorted((behavior(*each) for each in bought), key=lambda each: each.timestamp)
    train = [
        task("early", "recommend", "G9", 25, "Something to rake leaves with"),
        task("many", "recommend", "K99", 40, "What else could I cook with?"),
        task("none", "recommend", "T1", 41, "A present for a child"),
        task("query", "search", "K99", 40.5, "Find a red pan"),
        task("words", "review", "K99", 41.5, "Write what I think of the pan"),
    ]
    test = [
        task("title", "search", "K98", 50, "Find another pan"),
        task("later", "recommend", "K98", 50.5, "More for the kitchen"),
    ]
    return Benchmark(
        name="by hand",
        products=make_products(),
        behaviors={"U": tuple(behaviors)},
        tasks={"train": tuple(train), "test": tuple(test)},
    )


LABELS = {  # by the published script, worked out by hand
    "early": "G1, G2",  # only what lies before the task
    "many": ", ".join(KITCHEN[-30:]),  # thirty of thirty-three
    "none": "T1",  # no toy before: the target itself
    "words": "My words on K99.",
    "title": "Pan K98",  # of a test task, a placeholder
    "later": ", ".join([*KITCHEN[-28:], "K99", "K98"]),
}


def write_published(benchmark, folder):
    """Write the benchmark as the files that the published scripts read: tasks, histories."""

    def info(asin):
        found = benchmark.products[asin].model_dump(mode="json")
        return {"main_category": found.pop("category"), **found}

    def row(each):
        return {**each.review.model_dump(exclude={"title"}), "timestamp": each.timestamp}

    history = {
        user: [{"product_info": info(b.parent_asin), "review": row(b)} for b in behaviors]
        for user, behaviors in benchmark.behaviors.items()
    }
    tasks = {
        split: [
            {"task": t.instruction, "user_id": t.user_id, "type": t.type, "timestamp": t.timestamp}
            | {"target": {"product_info": info(t.target), "review": row(t)}}
            for t in own
        ]
        for split, own in benchmark.tasks.items()
    }
    for name, content in (("tasks", tasks), ("history", history)):
        (folder / f"{name}.json").write_text(json.dumps(content))
