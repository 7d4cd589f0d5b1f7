"""How long PUMA's trainings of the preset smoke take; each should take half a minute at most.

    .venv/bin/python benchmarks/puma_trainings.py

Half a minute on one core: a third of the preset's tasks, so that a training here may take ten seconds.
"""

import tempfile
import time
from pathlib import Path

import pandas as pd

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.lm.small import make_small_model
from pwagents.notebook.settings import preset_values
from pwagents.orion.base import base_tokenizer
from pwagents.portable import one_core
from pwagents.puma.agent import TaskMemory
from pwagents.puma.labels import Example, remember
from pwagents.puma.pairs import Candidate, make_pairs
from pwagents.puma.settings import PumaNotebook
from pwagents.puma.train import PumaModels
from pwagents.schema import Benchmark
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

N_TASKS = 26  # a third of the preset's
LIMIT_S = 30 / 3


def smoke(output_dir: Path) -> PumaNotebook:
    """The settings of the preset smoke."""
    return PumaNotebook(
        preset="smoke", output_dir=output_dir, **preset_values("04_puma", PumaNotebook, "smoke")
    )


def train_all(settings: PumaNotebook, benchmark: Benchmark) -> tuple[dict[str, Path], dict[str, float]]:
    """Train each part once: the folder, and the CPU seconds, of each training."""
    embedder, tokenizer = Embedder(batch_size=32), base_tokenizer()
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, embedder)
    base = settings.output_dir / "base"
    make_small_model(tokenizer, 0).save_pretrained(base)
    tokenizer.save_pretrained(base)
    models = PumaModels(settings, base, "a small world")
    memory = TaskMemory(benchmark.products, embedder, settings.study.memory_tokens, models.count)

    def start(task):
        environment = WebEnvironment(shop)
        environment.reset(task, benchmark.history(task, "train"))
        return environment

    items = remember(benchmark.tasks["train"][:N_TASKS], start, memory)
    searches = [item for item in items if item.task.type == "search"][:5]
    examples = [Example(item, {"query": item.state.instruction}) for item in searches * 5]
    told = [
        [Candidate({"query": item.state.instruction}, 1.0), Candidate({"query": "blue"}, 0.0)]
        for item in searches
    ]
    trainings = {
        "function": lambda: models.identifier([item.task for item in items]),
        "SFT": lambda: models.fine_tuned("a", examples),
        "DPO": lambda: models.preferred("a", folders["SFT"], make_pairs(searches, told)[0]),
    }
    folders: dict[str, Path] = {}
    seconds = {}
    for name, train in trainings.items():
        begun = time.process_time()  # of this process alone: other work on the machine does not count
        folders[name] = train()
        seconds[name] = time.process_time() - begun
    return folders, seconds


def main() -> None:
    world = make_world(WorldConfig(n_users=12, n_products=400), seed=3)
    with tempfile.TemporaryDirectory() as folder, one_core():
        _, seconds = train_all(smoke(Path(folder)), world.benchmark)
    frame = pd.DataFrame({"CPU seconds": seconds})
    frame["verdict"] = ["OK" if spent <= LIMIT_S else "FAIL" for spent in frame["CPU seconds"]]
    print(frame.round(1).to_string())


if __name__ == "__main__":
    main()
