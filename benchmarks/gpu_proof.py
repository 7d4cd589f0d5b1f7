"""What the papers' trainings take on a GPU, beside the forecasts of memory and time: one command, no network.

    .venv/bin/python benchmarks/gpu_proof.py

The models have random weights, which cost as much as trained ones; settings are those of preset paper, for a
few steps. MFU is the share of what a large matrix product reaches here in the same minute; the operations
that checkpointing does twice are counted once.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pwagents.lm.complete import complete
from pwagents.lm.decode import BatchDecoder
from pwagents.lm.dialogues import dialogue_tokenizer
from pwagents.lm.dpo import prefer
from pwagents.lm.fit import GIB, Plan, find_device, needed, without_storage
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.lm.sft import fine_tune
from pwagents.orion.agent import RULES
from pwagents.rl.log import read_rows
from pwagents.rl.rollout import Rollout
from pwagents.rl.settings import GrpoSettings
from pwagents.rl.train import train_policy
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory
from pwagents.seeds import rng
from pwagents.web.environment import BeliefState

DEVICE = "cuda"
COMMON = {"tie_word_embeddings": False, "dtype": "bfloat16"}
LLAMA = COMMON | {"vocab_size": 32000, "max_position_embeddings": 4096}  # LLaMA-2-7b: LlamaConfig's defaults
QWEN = COMMON | {  # Qwen2.5-7B-Instruct
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
}  # fmt: skip
WHOLE = ("embed_tokens", "lm_head", "input_layernorm", "post_attention_layernorm", "norm")
FIELDS = {"max_steps": 4, "save_steps": 1000, "bf16": True, "activation_checkpointing": True}
FIELDS |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
PUMA_SFT = SftSettings(lora=(16, 32), modules_to_save=WHOLE, trainer=FIELDS | {"max_length": 1280})
PUMA_DPO = DpoSettings(modules_to_save=WHOLE, trainer=FIELDS | {"max_length": 1024})
ORION_SFT = SftSettings(lora=(16, 32), trainer=FIELDS | {"max_length": 4096})
ORION_GRPO = GrpoSettings(
    max_steps=3, prompts_per_step=4, save_steps=0, lora=(16, 32), bf16=True, per_device_train_batch_size=1
)
READ, WRITTEN = 1024, 256  # tokens of an episode, and of a prompt whose parameters are sampled


def save_random(config: Any, folder: Path) -> Path:
    """Save a model with random weights, with the small model's tokenizer, which has fewer tokens."""
    from transformers import AutoModelForCausalLM

    with torch.device(DEVICE):
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    dialogue_tokenizer(RULES).save_pretrained(folder)
    return folder


def measure(train: Callable[[], Any], config: Any, plan: Plan, forwards: int = 1) -> dict[str, float]:
    """Run a training; return seconds and tokens of a pass, and memory against the forecast.

    Args:
        forwards: of the model in a pass (DPO: two, of the policy and of the reference).
    """
    begun, length = [], plan.max_length
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: begun.append(now()) if isinstance(module, torch.nn.Embedding) else None
    )
    forget_peak()
    train()
    hook.remove()
    seconds = float(np.median(np.diff(begun[::forwards])[4:]))
    tokens = length * forwards  # DPO: chosen and rejected
    # Forward and backward to the inputs, four a weight; DPO's reference goes forward alone, two more.
    work = tokens * operations(config, length) * (1.5 if forwards == 2 else 1)
    numbers = {"seconds of a pass": seconds, "tokens/s": tokens / seconds, "TFLOP/s": work / seconds / 1e12}
    return numbers | memory(config, plan)


def measure_grpo(config: Any) -> dict[str, float]:
    """The same of three steps of GRPO; episodes are played by our own decoder."""
    from transformers import AutoModelForCausalLM

    settings, length = ORION_GRPO, READ + WRITTEN
    forget_peak()
    with tempfile.TemporaryDirectory() as folder:
        with torch.device(DEVICE):
            model = AutoModelForCausalLM.from_config(config)
        by_chance = lambda episodes: {  # noqa: E731
            "chance": [[float(len(each.steps[0].action.thought) % 2)] for _, each in episodes]
        }
        tasks = [task_of(i) for i in range(settings.prompts_per_step)]
        train_policy(model, dialogue_tokenizer(RULES), tasks, play, by_chance, settings, Path(folder) / "run")
        rows = read_rows(Path(folder) / "run" / "log.jsonl")[1:]
    playing = float(np.median([row["rollout_seconds"] for row in rows]))
    training = float(np.median([row["seconds"] for row in rows])) - playing
    tokens = settings.episodes * length
    numbers = {
        "seconds of a pass": playing + training,
        "tokens/s": tokens / training,
        "TFLOP/s": tokens * operations(config, length) / training / 1e12,
        "tokens written/s": settings.episodes * WRITTEN / playing,
    }
    return numbers | memory(config, Plan(settings, length, settings.episodes))


def measure_candidates(folder: Path, batch_size: int = 8) -> dict[str, float]:
    """Tokens a second of ten sampled beams, as PUMA's candidates are written by transformers."""
    forget_peak()
    beams = {"temperature": 1.5, "beams": 10, "returned": 10, "max_new_tokens": WRITTEN}
    begin = now()
    complete(folder, [text_of(READ)] * batch_size, batch_size=batch_size, **beams)  # loads the model, too
    seconds = now() - begin
    return {"tokens written/s": batch_size * 10 * WRITTEN / seconds} | peak()


def play(model: Any, tasks: list[Task], seed: int) -> list[Rollout]:
    """One turn each, of random text."""
    draws, chance, never = rng(seed, "prompts"), torch.Generator().manual_seed(seed), -1
    prompts = [draws.integers(QWEN["vocab_size"], size=READ).tolist() for _ in tasks]
    with torch.inference_mode():  # no token ends a turn: all are equally long
        turns = BatchDecoder(model, len(tasks)).write(prompts, [1.0] * len(tasks), WRITTEN, never, chance)
    return [
        rollout(*each, luck=draws.integers(2))
        for each in zip(tasks, prompts, *zip(*turns, strict=True), strict=True)
    ]


def rollout(task: Task, prompt: list[int], ids: list[int], logprobs: list[float], luck: int) -> Rollout:
    action = Action(name="respond", arguments={"content": "."}, thought="!" * int(luck))
    steps = (Step(action=action, observation=Observation(text=".")),)
    episode = Trajectory(task_id=task.task_id, user_id="u", type="search", target="B1", steps=steps)
    state = BeliefState("u", "go", "go", None, ())
    return Rollout(prompt, ids, [1] * len(ids), logprobs, [0] * len(ids), (state,), episode)


def task_of(i: int) -> Task:
    fields = {"user_id": "u", "type": "search", "timestamp": 1, "instruction": "go", "target": "B1"}
    return Task(task_id=f"t{i}", review=Review(rating=5), **fields)


def text_of(tokens: int) -> str:
    return " ".join(["the"] * tokens)


def operations(config: Any, length: int) -> float:
    """Operations a token that training an adapter asks for: the weights themselves get no gradient.

    Attention looks at half of the sequence on average, and its backward pass costs twice its forward pass.
    """
    network = without_storage(config)
    weights = network.num_parameters() - network.get_input_embeddings().weight.numel()
    return 4 * weights + 6 * config.num_hidden_layers * length * config.hidden_size


def matmul_tflops(size: int = 8192) -> float:
    """What a product of two large matrices in bfloat16 reaches, the best of ten."""
    left, right = torch.randn(2, size, size, device="cuda", dtype=torch.bfloat16)
    seconds = []
    for _ in range(10):
        begin = now()
        left @ right
        seconds.append(now() - begin)
    return 2 * size**3 / min(seconds) / 1e12


def memory(config: Any, plan: Plan) -> dict[str, float]:
    """Peak and forecast in GiB; the forecast has a reserve."""
    return peak() | {"forecast, GiB": needed(without_storage(config), plan, find_device()) / GIB}


def peak() -> Mapping[str, float]:
    return {"peak of tensors, GiB": torch.cuda.max_memory_allocated() / GIB}


def forget_peak() -> None:
    gc.collect()  # trainer and model refer to each other: without this the last model stays in memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def now() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def main() -> int:
    from transformers import LlamaConfig, Qwen2Config

    if not torch.cuda.is_available():
        print("No GPU was found: this measures trainings on one.", file=sys.stderr)
        return 1
    reached = matmul_tflops()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: products at {reached:,.0f} TFLOP/s")
    llama, qwen, rows = LlamaConfig(**LLAMA), Qwen2Config(**QWEN), {}
    with tempfile.TemporaryDirectory() as made:
        out, texts = Path(made), {"prompt": text_of(1000), "chosen": text_of(40), "rejected": text_of(50)}
        ids = [{"input_ids": [*range(4096)], "labels": [-100, *range(1, 4096)]}] * 4
        base = save_random(llama, out / "llama")
        sft, dpo = Plan(PUMA_SFT, 1280), Plan(PUMA_DPO, 1024)
        short = [{"prompt": text_of(900), "completion": text_of(40)}] * 4

        def fine_tune_puma():
            fine_tune(base, short, PUMA_SFT, out / "sft", pad_counts=True)

        rows["PUMA, SFT"] = measure(fine_tune_puma, llama, sft)
        rows["PUMA, DPO"] = measure(lambda: prefer(base, [texts] * 4, PUMA_DPO, out / "dpo"), llama, dpo, 2)
        rows["PUMA, candidates"] = measure_candidates(base)
        base = save_random(qwen, out / "qwen")
        orion = Plan(ORION_SFT, 4096)
        rows["Orion, SFT"] = measure(lambda: fine_tune(base, ids, ORION_SFT, out / "orion"), qwen, orion)
        rows["Orion, GRPO"] = measure_grpo(qwen)
    frame = pd.DataFrame(rows).T
    print(frame.assign(MFU=frame["TFLOP/s"] / reached).round(2).T.to_string(na_rep=""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
