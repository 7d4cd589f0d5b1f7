"""A user whose purchases and tasks are made by hand, and stand-ins for the models around PUMA's own.

Thirty-three things for the kitchen, one a day, three for the garden between them, no toy before a train task
asks for one.
"""

import zlib

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pwagents.embedding import Embedder
from pwagents.puma.labels import begin_tasks
from pwagents.puma.memory import TaskMemory
from pwagents.puma.prompts import load_prompts
from pwagents.schema import Behavior, Benchmark, Product, Review, Task
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop

KINDS = {"K": ("Kitchen", "Pan"), "G": ("Garden", "Rake"), "T": ("Toys", "Kite"), "Q": ("Kitchen", "Quux")}
KINDS = {"K": ("Kitchen", "Pan"), "G": ("Garden", "Rake"), "T": ("Toys", "Kite"), "Q": ("Kitchen", "Quux")}
DAY = 86_400_000
KITCHEN = [f"K{i:02}" for i in range(1, 34)]
BOUGHT = {asin: day for day, asin in enumerate(KITCHEN, start=1)}  # id -> day
BOUGHT |= {"G1": 5.5, "G2": 20.5, "G9": 25.2, "G3": 32.5, "K99": 40.0, "T1": 41.0, "K98": 50.0}
# The name of a task, its type, target, day and instruction, and its label by the published script.
TASKS = {
    "train": [
        ("early", "recommend", "G9", 25, "Something to rake leaves with", "G1, G2"),  # what lies before it
        ("many", "recommend", "K99", 40, "What else could I cook with?", ", ".join(KITCHEN[-30:])),
        ("none", "recommend", "T1", 41, "A present for a child", "T1"),  # no toy before: the target itself
        ("query", "search", "K99", 40.5, "Find a red pan", "a query"),  # a language model's
        ("words", "review", "K99", 41.5, "Write what I think of the pan", "My words on K99."),
    ],
    "test": [
        ("title", "search", "K98", 50, "Find another pan", "Pan K98"),  # a placeholder
        ("later", "recommend", "K98", 50.5, "More to cook with", ", ".join(KITCHEN[-28:]) + ", K99, K98"),
    ],
}
LABELS = {row[0]: row[-1] for rows in TASKS.values() for row in rows}


def product(asin):
    category, noun = KINDS[asin[0]]
    extra = {"price": 9.5, "store": "Otter"} if asin != "G1" else {}
    extra |= {"features": (f"Feature of {asin}.",), "description": ("For every day.",), "rating_number": 12}
    facts = {"parent_asin": asin, "title": f"{noun} {asin}", "category": category, "average_rating": 4.5}
    return Product(**facts, **extra, details={"Color": "red"})


def behavior(asin, day):
    review = Review(rating=4.0, text=f"My words on {asin}.")
    return Behavior(parent_asin=asin, timestamp=int(day * DAY), review=review)


def task(name, kind, target, day, instruction, _):
    known = {"task_id": name, "user_id": "U", "type": kind, "target": target, "instruction": instruction}
    return Task(**known, timestamp=int(day * DAY), review=behavior(target, day).review)


def make_benchmark(**more):
    """The world; ``more`` purchases as id -> day."""
    bought = sorted((BOUGHT | more).items(), key=lambda pair: pair[1])
    return Benchmark(
        name="by hand",
        products={asin: product(asin) for asin in sorted(BOUGHT | more)},
        behaviors={"U": tuple(behavior(*pair) for pair in bought)},
        tasks={split: tuple(task(*row) for row in rows) for split, rows in TASKS.items()},
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


def byte_tokenizer():
    """Stands in for LLaMA's: a byte is a token."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def memory_of(benchmark, texts=None):
    return TaskMemory(benchmark.products, Words(), byte_tokenizer(), texts or load_prompts().texts)


def begun_of(benchmark, split, protocol="published"):
    def start(task):
        environment = WebEnvironment(Shop(benchmark, search_engine=None, recommender=None, embedder=None))
        environment.reset(task, benchmark.history(task, split, protocol))
        return environment

    return {each.task.task_id: each for each in begin_tasks(benchmark.tasks[split], start)}
