"""What a model writes after plain texts: no chat template, up to the end token."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pwagents.files import append_line, open_lines, read_json_lines
from pwagents.llm.folder import ADAPTER, read_model, read_tokenizer
from pwagents.lm.launch import free_memory
from pwagents.lm.load import quiet
from pwagents.progress import progress
from pwagents.seeds import derive_seed

AT_ONCE = 256  # prompts that vLLM is given, between which completions are stored
Write = Callable[[list[str], int], list[list[str]]]  # prompts, seed -> completions of each


def complete(
    folder: Path,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    batch_size: int,
    temperature: float = 0.0,
    beams: int = 1,
    independent: bool = False,
    seed: int = 0,
    store: Path | None = None,
    loaded: dict[Path, Any] | None = None,
) -> list[list[str]]:
    """Return of each prompt its completions, without the end token.

    transformers' ``generate`` writes them, or vLLM, where it is installed and there is a GPU and no beams are
    searched, which it does not sample. A greedy completion depends on its prompt alone (up to the last bit of
    sums), a sampled one on seed, prompts and batch size.

    Args:
        folder: of a model or an adapter (vLLM: of a whole model; an adapter is left to transformers).
        temperature: 0: greedy, or the best beams.
        beams: searched at once, all of which are returned; with a temperature they are sampled.
        independent: draw as many independent samples in the place of beams.
        store: a file of these prompts and this sampling alone, to which each batch is added as a line when it
            is written. A call that was killed goes on after what is there.
        loaded: models by folder, which later calls with the same dict find again; transformers write then.
    """
    lines = read_json_lines(store, torn=True) if store and store.exists() else ()
    completions: list[list[str]] = [texts for _, batch in lines for texts in batch]
    if len(completions) == len(prompts):
        return completions
    import torch

    is_there = find_spec("vllm") is not None and torch.cuda.is_available() and loaded is None
    by_vllm = is_there and (independent or beams == 1) and not (Path(folder) / ADAPTER).exists()
    sampling = (max_new_tokens, temperature, beams, independent)
    write = _vllm(folder, *sampling) if by_vllm else _transformers(folder, loaded, *sampling)
    size, alone = AT_ONCE if by_vllm else batch_size, len(prompts) == 1
    batches = range(len(completions), len(prompts), size)
    with open_lines(store) if store else nullcontext() as file:
        for first in progress(batches, desc="complete", unit="batch", disable=alone):
            batch = list(prompts[first : first + size])
            written = write(batch, derive_seed(seed, "complete", str(first)))
            if file:
                append_line(file, json.dumps(written).encode() + b"\n")
            completions += written
    return completions


def _transformers(
    folder: Path, kept: dict | None, most: int, temperature: float, n: int, alone: bool
) -> Write:
    import torch

    device, loaded = "cuda" if torch.cuda.is_available() else "cpu", {} if kept is None else kept
    if folder not in loaded:
        tokenizer = read_tokenizer(folder)
        tokenizer.padding_side = "left"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        model = read_model(folder, "auto" if device == "cuda" else torch.float32)
        loaded[folder] = tokenizer, model.to(device).eval()
    tokenizer, model = loaded[folder]
    # What a model's generation_config says of sampling (LLaMA-2: temperature .6) must not join ours. The 50
    # likeliest tokens are drawn from: transformers 4's default, which PUMA's test_llama.py leaves as it is.
    chance = {"do_sample": True, "temperature": temperature, "top_k": 50, "top_p": 1.0} if temperature else {}
    chance = chance or {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    beams = 1 if alone else n
    options = {"max_new_tokens": most, "num_beams": beams, "num_return_sequences": n}
    options["early_stopping"] = beams > 1  # published, too: done with the first so many finished beams

    def write(prompts: list[str], seed: int) -> list[list[str]]:
        with quiet(), torch.inference_mode(), torch.random.fork_rng():
            torch.manual_seed(seed)
            batch = tokenizer(prompts, padding=True, return_tensors="pt").to(device)
            batch.pop("token_type_ids", None)
            written = model.generate(**batch, **options, **chance, **ends)
        texts = tokenizer.batch_decode(written[:, batch.input_ids.shape[1] :], skip_special_tokens=True)
        return [texts[i : i + n] for i in range(0, len(texts), n)]

    return write


def _vllm(folder: Path, most: int, temperature: float, n: int, alone: bool) -> Write:
    from vllm import LLM, SamplingParams

    free_memory()  # vLLM takes nine tenths of the GPU: what a training of this process left there must go
    engine = LLM(model=str(folder))

    def write(prompts: list[str], seed: int) -> list[list[str]]:
        chance = {"temperature": temperature, "top_k": 50, "n": n, "seed": seed % 2**31}
        sampling = SamplingParams(max_tokens=most, **chance)
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        return [[each.text for each in output.outputs] for output in outputs]

    return write
