"""Stand-ins for the models around PUMA's own, for tests that need not wait for them."""

import zlib

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pwagents.embedding import Embedder
from pwagents.puma.labels import begin_tasks
from pwagents.puma.memory import TaskMemory
from pwagents.puma.prompts import load_prompts
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop


def word_counts(text):
    """Stands in for MiniLM: words in common, and a little chance, so that no two texts are equally close."""
    words = text.lower().split()
    row = np.random.default_rng(zlib.crc32(repr(words).encode())).normal(0, 0.05, 384).astype(np.float32)
    for word in words:
        row[sum(map(ord, word)) % 384] += 1
    return row


class Words(Embedder):
    def encode(self, texts, show_progress=False):
        rows = np.array([word_counts(text) for text in texts]).reshape(len(texts), 384)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def byte_tokenizer():
    """Stands in for LLaMA's: a byte is a token."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def memory_of(products, texts=None):
    return TaskMemory(products, Words(), byte_tokenizer(), texts or load_prompts().texts)


def begun_of(benchmark, split, protocol="published"):
    shop = Shop(benchmark, search_engine=None, recommender=None, embedder=None)

    def start(task):
        environment = WebEnvironment(shop)
        environment.reset(task, benchmark.history(task, split, protocol))
        return environment

    return begin_tasks(benchmark.tasks[split], start)
