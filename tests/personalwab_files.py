"""Any benchmark as PersonalWAB's files have it, for tests."""

import json
from pathlib import Path
from typing import Any

from pwagents.schema import Behavior, Benchmark, Task


def records(benchmark: Benchmark) -> dict[str, Any]:
    """What the files hold, by table: histories, profiles, products and the tasks of each split."""

    def product(asin: str) -> dict[str, Any]:
        info = benchmark.products[asin].model_dump(mode="json")
        return info | {"main_category": info["category"], "categories": info["category"]}

    def purchase(asin: str, of: Behavior | Task) -> dict[str, Any]:
        review = of.review.model_dump() | {"parent_asin": asin, "timestamp": of.timestamp}
        return {"product_info": product(asin), "review": review, "split": "history"}

    def task(of: Task) -> dict[str, Any]:
        told = of.model_dump(include={"task_id", "user_id", "type", "timestamp"})
        return told | {"task": of.instruction, "target": purchase(of.target, of)}

    histories, profiles = benchmark.behaviors.items(), benchmark.profiles.items()
    return {
        "user_history": {user: [purchase(b.parent_asin, b) for b in past] for user, past in histories},
        "user_profile": {user: {"user_profile": p.model_dump(by_alias=True)} for user, p in profiles},
        "all_products": {asin: product(asin) for asin in benchmark.products},
        "instructions": {split: [*map(task, tasks)] for split, tasks in benchmark.tasks.items()},
    }


def write_records(tables: dict[str, Any], folder: Path) -> Path:
    """Write the files, from which ``load_personalwab`` makes an equal benchmark; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"user_profiles": tables["user_profile"], "user_instructions": tables["instructions"]}
    for name, first in (("all_products", 4), ("user_history", 1)):  # in two parts
        entries = list(tables[name].items())
        files |= {f"{name}_part_1": dict(entries[:first]), f"{name}_part_2": dict(entries[first:])}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2))
    return folder
