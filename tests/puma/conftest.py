"""A user whose purchases and tasks are made by hand, stand-ins for models around PUMA's own, a tiny study.

Thirty-three things for the kitchen, one a day, some for the garden between them, no toy before a train task
asks for one.
"""

import zlib
from copy import copy
from pathlib import Path

import numpy as np
import pytest
import yaml

from base_model.small import make_small_model
from pwagents.embedding import Embedder
from pwagents.puma.labels import begin_tasks
from pwagents.puma.memory import TaskMemory, load_prompts
from pwagents.puma.study import Study, load_worlds
from pwagents.schema import Behavior, Benchmark, Product, Review, Task
from pwagents.settings import PumaNotebook, project_path, settings_values
from pwagents.shop.environment import Environment, Shop

from ..llm.conftest import byte_tokenizer

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))
DAY = 86_400_000
T0 = 1_500_000_000_000
BOUGHT = {f"K{day:02}": day for day in range(1, 34)}  # id -> day
BOUGHT |= {"G1": 5.5, "G2": 20.5, "G9": 25.2, "G3": 32.5, "K99": 40.0, "T1": 41.0, "K98": 50.0}
KINDS = {"K": ("Kitchen", "Pan"), "G": ("Garden", "Rake"), "T": ("Toys", "Kite"), "Q": ("Kitchen", "Quux")}


def product(asin):
    (category, noun), more = KINDS[asin[0]], {"price": 9.5, "store": "Otter"} if asin != "G1" else {}
    facts = {"parent_asin": asin, "title": f"{noun} {asin}", "category": category, "average_rating": 4.5}
    facts |= {"features": (f"Feature of {asin}.",), "description": ("For every day.",), "rating_number": 12}
    return Product(**facts, **more, details={"Color": "red"})


def make_benchmark(**more):
    """The world; ``more`` purchases as id -> day."""

    def written(asin, day):
        return {"timestamp": T0 + int(day * DAY), "review": Review(rating=4.0, text=f"My words on {asin}.")}

    def task(name, kind, target, day, instruction, _):
        facts = {"task_id": name, "user_id": "U", "type": kind, "target": target, "instruction": instruction}
        return Task(**facts, **written(target, day))

    bought = sorted((BOUGHT | more).items(), key=lambda pair: pair[1])
    return Benchmark(
        name="by hand",
        products={asin: product(asin) for asin, _ in bought},
        behaviors={"U": tuple(Behavior(parent_asin=each[0], **written(*each)) for each in bought)},
        tasks={split: tuple(task(*row) for row in rows) for split, rows in CIRCUMSTANCES["tasks"].items()},
    )


class Words(Embedder):
    """Stands in for MiniLM: words in common, and a little chance, so that no two texts are equally close."""

    def encode(self, texts, show_progress=False):
        rows = np.zeros((len(texts), 384), np.float32)
        for row, words in zip(rows, (text.lower().split() for text in texts), strict=True):
            row[:] = np.random.default_rng(zlib.crc32(repr(words).encode())).normal(0, 0.05, 384)
            for word in words:
                row[sum(map(ord, word)) % 384] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def memory_of(benchmark, texts=None):
    return TaskMemory(benchmark.products, Words(), byte_tokenizer(), texts or load_prompts().texts)


def begun_of(benchmark, split, protocol="published"):
    def start(task):
        shop = Shop(benchmark, search_engine=None, recommenders=None, embedder=None)
        return Environment(shop, task, protocol=protocol, split=split)

    return {each.task.task_id: each for each in begin_tasks(benchmark.tasks[split], start)}


SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="session")
def tiny(tokenizer, tmp_path_factory):
    """Smoke with a world and trainings of seconds that learn: eight users, and four more to train on."""
    values = settings_values("04_puma", {"preset": "smoke"})
    base, output = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("puma")
    make_small_model(tokenizer, 0, SIZE).save_pretrained(base)
    tokenizer.save_pretrained(base)
    fast = {"learning_rate": 2e-2, "per_device_train_batch_size": 4, "max_steps": 12}
    slow = {"learning_rate": 2e-2, "per_device_train_batch_size": 2, "num_train_epochs": 4.0}
    for group, changes in {
        "data": {"n_users": 8, "n_products": 200},
        "base": {"model": str(base)},
        "study": {
            "max_new_tokens": 12,
            "training_users": 4,
            "test_tasks": 6,
            "seeds": (0,),
            "timed_tasks": 5,
        },
        "identify": {"lora": (4, 8), "trainer": values["identify"]["trainer"] | fast},
        "sft": {"lora": (4, 8), "trainer": values["sft"]["trainer"] | fast},
        "dpo": {"lora": (4, 8), "trainer": values["dpo"]["trainer"] | slow, "candidates": 3, "train_tasks": 8}
        | {"variants": (), "held_out": 0.0},
    }.items():
        values[group] |= changes
    values["shop"]["recommender"] |= {"epochs": 1}
    return PumaNotebook(**values | {"output_dir": output})


@pytest.fixture(scope="session")
def study(tiny):
    return Study(load_worlds(tiny), tiny, project_path(tiny.base.model), load_prompts())


def changed(study, **changes):
    """The same study with other settings."""
    other = copy(study)
    other.settings = study.settings.changed(**changes)
    return other


@pytest.fixture(scope="session")
def world():
    """Made by hand, as are the next two."""
    return make_benchmark()


@pytest.fixture(scope="session")
def memory(world):
    return memory_of(world)


@pytest.fixture(scope="session")
def begun(world):
    """By the name of the task."""
    return begun_of(world, "train") | begun_of(world, "test")
