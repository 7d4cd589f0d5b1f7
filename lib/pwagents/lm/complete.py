"""What a model writes after plain texts: no chat template, up to the end token."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pwagents.llm.folder import ADAPTER, read_model, read_tokenizer
from pwagents.progress import progress
from pwagents.seeds import derive_seed


def complete(
    folder: Path,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    batch_size: int,
    temperature: float = 0.0,
    beams: int = 1,
    returned: int = 1,
    seed: int = 0,
) -> list[list[str]]:
    """Return of each prompt its completions, without the end token.

    transformers' ``generate`` writes them, or vLLM, where it is installed and there is a GPU. vLLM knows no
    sampled beams: it draws ``returned`` independent samples in their place. A greedy completion depends on
    its prompt alone (up to the last bit of sums), a sampled one on seed, prompts and batch size.

    Args:
        folder: of a model or an adapter (vLLM: of a whole model; an adapter is left to transformers).
        temperature: 0: greedy, or the best beams.
        beams: searched at once; with a temperature they are sampled.
        returned: completions of each prompt, at most ``beams`` where these are more than one.
    """
    import torch

    if find_spec("vllm") and torch.cuda.is_available() and not (Path(folder) / ADAPTER).exists():
        return _by_vllm(folder, prompts, max_new_tokens, temperature, returned, seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = read_tokenizer(folder)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = read_model(folder, "auto" if device == "cuda" else torch.float32).to(device).eval()
    # What a model's generation_config says of sampling (LLaMA-2: temperature .6) must not join ours.
    drawn = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    drawn = drawn or {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    completions = []
    with torch.inference_mode(), torch.random.fork_rng():
        for first in progress(range(0, len(prompts), batch_size), desc="complete", unit="batch"):
            torch.manual_seed(derive_seed(seed, "complete", str(first)))
            batch = tokenizer(
                list(prompts[first : first + batch_size]), padding=True, return_tensors="pt"
            ).to(device)
            batch.pop("token_type_ids", None)
            options = {"max_new_tokens": max_new_tokens, "num_beams": beams, "num_return_sequences": returned}
            written = model.generate(**batch, **options, **drawn, **ends)
            texts = tokenizer.batch_decode(written[:, batch.input_ids.shape[1] :], skip_special_tokens=True)
            completions += [texts[i : i + returned] for i in range(0, len(texts), returned)]
    return completions


def _by_vllm(
    folder: Path, prompts: Sequence[str], most: int, temperature: float, returned: int, seed: int
) -> list[list[str]]:
    from vllm import LLM, SamplingParams

    sampling = SamplingParams(
        temperature=temperature, max_tokens=most, n=returned, seed=derive_seed(seed, "complete") % 2**31
    )
    outputs = LLM(model=str(folder)).generate(list(prompts), sampling, use_tqdm=False)
    return [[each.text for each in output.outputs] for output in outputs]
