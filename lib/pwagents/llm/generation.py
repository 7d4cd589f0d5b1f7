"""A transformers model in memory, and how its next tokens are drawn."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pydantic import Field

from pwagents.llm.failures import RefusedError
from pwagents.schema import Record


class Sampling(Record):
    """The sampling settings that a local model knows, with OpenAI's names and defaults."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(1024, ge=1)
    stop: str | tuple[str, ...] = ()
    seed: int = 0

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else self.stop


@dataclass(frozen=True)
class Loaded:
    """A model in memory; ``lock`` lets one thread at a time use it. ``context`` in tokens."""

    model: Any
    tokenizer: Any
    pad: int
    ends: frozenset[int]
    context: int
    lock: threading.Lock


_in_memory: WeakValueDictionary[tuple[Path, str], Loaded] = WeakValueDictionary()


def load(folder: Path, name: str) -> Loaded:
    """The model in memory: roles with the same one share a copy, which goes with the last of them.

    ``name`` holds its hash, so that a new training in the same folder is loaded anew.
    """
    if (loaded := _in_memory.get((folder, name))) is None:
        loaded = _in_memory[folder, name] = _load(folder)
    return loaded


def _load(folder: Path) -> Loaded:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    gpu = torch.cuda.is_available()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.chat_template is None:
        raise RefusedError(f"{folder}: the tokenizer has no chat template; save one with it")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto" if gpu else torch.float32, local_files_only=True
    )
    model = model.to("cuda" if gpu else "cpu").eval()
    ends = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(ends)
    model.generation_config = GenerationConfig(eos_token_id=sorted(ends), pad_token_id=pad)
    context = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    return Loaded(model, tokenizer, pad, frozenset(ends | {pad}), context, threading.Lock())


def sampler(sampling: Sampling, seeds: Sequence[int]):
    """What turns a greedy choice into a sample: Gumbel noise on each row's logits, by its own seed."""
    import torch
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

    if sampling.temperature == 0:
        return LogitsProcessorList()
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def add_noise(_, scores):
        # -log of an exponential variable is Gumbel noise; on the CPU, so that a GPU draws the same.
        noise = [torch.empty(scores.shape[1]).exponential_(generator=g).log_().neg_() for g in generators]
        return scores.float() + torch.stack(noise).to(scores.device)

    return LogitsProcessorList(
        [TemperatureLogitsWarper(sampling.temperature), TopPLogitsWarper(sampling.top_p), add_noise]
    )
