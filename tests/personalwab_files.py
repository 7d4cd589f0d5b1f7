"""Any benchmark as files in PersonalWAB's layout, for tests."""

import json
from pathlib import Path

from pwagents.schema import Benchmark, Review


def write_personalwab(benchmark: Benchmark, folder: Path) -> Path:
    """Write the files, from which ``load_personalwab`` makes an equal benchmark; the folder."""

    def product(asin: str) -> dict:
        info = benchmark.products[asin].model_dump()
        return {"main_category": info.pop("category")} | info

    def purchase(asin: str, timestamp: int, review: Review) -> dict:
        return {"product_info": product(asin), "review": review.model_dump() | {"timestamp": timestamp}}

    files = {
        "user_profiles": {
            user: {"user_profile": profile.model_dump(by_alias=True)}
            for user, profile in benchmark.profiles.items()
        },
        "all_products_part_1": {asin: product(asin) for asin in benchmark.products},
        "user_history_part_1": {
            user: [purchase(b.parent_asin, b.timestamp, b.review) for b in history]
            for user, history in benchmark.behaviors.items()
        },
        "user_instructions": {
            split: [
                task.model_dump(include={"task_id", "user_id", "type", "timestamp"})
                | {"task": task.instruction, "target": purchase(task.target, task.timestamp, task.review)}
                for task in tasks
            ]
            for split, tasks in benchmark.tasks.items()
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
