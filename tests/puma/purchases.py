"""A user whose purchases and tasks are made by hand, for what the published scripts make of them.

Thirty-three things for the kitchen, one a day, three for the garden between them, no toy before a train task
asks for one.
"""

import json

from pwagents.schema import Behavior, Benchmark, Product, Review, Task

DAY = 86_400_000
KITCHEN = [f"K{i:02}" for i in range(1, 34)]
BOUGHT = {asin: i for i, asin in enumerate(KITCHEN, start=1)}  # id -> day
BOUGHT |= {"G1": 5.5, "G2": 20.5, "G3": 32.5, "G9": 25.2, "K99": 40.0, "T1": 41.0, "K98": 50.0}
TASKS = {
    "train": [
        ("early", "recommend", "G9", 25, "Something to rake leaves with"),
        ("many", "recommend", "K99", 40, "What else could I cook with?"),
        ("none", "recommend", "T1", 41, "A present for a child"),
        ("query", "search", "K99", 40.5, "Find a red pan"),
        ("words", "review", "K99", 41.5, "Write what I think of the pan"),
    ],
    "test": [
        ("title", "search", "K98", 50, "Find another pan"),
        ("later", "recommend", "K98", 50.5, "More for the kitchen"),
    ],
}
LABELS = {  # by the published script, worked out by hand
    "early": "G1, G2",  # only what lies before the task
    "many": ", ".join(KITCHEN[-30:]),  # thirty of thirty-three
    "none": "T1",  # no toy before: the target itself
    "words": "My words on K99.",
    "title": "Pan K98",  # of a test task, a placeholder
    "later": ", ".join([*KITCHEN[-28:], "K99", "K98"]),
}


def product(asin):
    category, noun = {"K": ("Kitchen", "Pan"), "G": ("Garden", "Rake"), "T": ("Toys", "Kite")}[asin[0]]
    told = {
        "features": (f"Feature of {asin}.",),
        "description": ("For every day.",),
        "details": {"Color": "red"},
    }
    told |= {"price": 9.5, "store": "Otter"} if asin != "G1" else {}
    told |= {"average_rating": 4.5, "rating_number": 12}
    return Product(parent_asin=asin, title=f"{noun} {asin}", category=category, **told)


def review(asin):
    return Review(rating=4.0, text=f"My words on {asin}.")


def behavior(asin, day):
    return Behavior(parent_asin=asin, timestamp=int(day * DAY), review=review(asin))


def make_benchmark():
    names = ("task_id", "type", "target", "timestamp", "instruction")
    tasks = {split: [dict(zip(names, row, strict=True)) for row in rows] for split, rows in TASKS.items()}
    for each in (each for own in tasks.values() for each in own):
        each |= {"user_id": "U", "timestamp": int(each["timestamp"] * DAY), "review": review(each["target"])}
    return Benchmark(
        name="by hand",
        products={asin: product(asin) for asin in BOUGHT},
        behaviors={"U": tuple(behavior(*each) for each in sorted(BOUGHT.items(), key=lambda item: item[1]))},
        tasks={split: tuple(Task(**each) for each in own) for split, own in tasks.items()},
    )


def write_published(benchmark, folder):
    """Write the benchmark as the files that the published scripts read: tasks, histories."""

    def row(asin, each):
        info = benchmark.products[asin].model_dump(mode="json")
        told = each.review.model_dump(exclude={"title"}) | {"timestamp": each.timestamp}
        return {"product_info": {"main_category": info.pop("category"), **info}, "review": told}

    history = {user: [row(b.parent_asin, b) for b in own] for user, own in benchmark.behaviors.items()}
    tasks = {
        split: [
            {"task": t.instruction, "user_id": t.user_id, "type": t.type, "timestamp": t.timestamp}
            | {"target": row(t.target, t)}
            for t in own
        ]
        for split, own in benchmark.tasks.items()
    }
    for name, content in (("tasks", tasks), ("history", history)):
        (folder / f"{name}.json").write_text(json.dumps(content))
