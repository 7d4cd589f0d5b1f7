"""What trains on a GPU, and how well the forecast of memory (pwagents.lm.fit) holds: one command, no network.

    .venv/bin/python benchmarks/gpu_proof.py

The two large trainings take two minutes on an H200 (torch 2.11, 787 TFLOP/s in a product).
Measured there:

- SFT: .52 s a step, 7,905 tokens a second, MFU .31, 17.0 GiB in tensors where 17.6 were forecast;
- GRPO: 22.2 s a step, 613 tokens written a second, MFU .17, 17.5 GiB in tensors where 18.8 were forecast.

The small model was not measured on a GPU. Qwen2.5-7B has random weights here, which cost as much as trained
ones:

- supervised fine-tuning of an adapter on sequences of 4,096 random tokens;
- GRPO of an adapter: 32 episodes a step, of 1,024 tokens that are read and 256 that are written, played by
  our own decoder;
- the small model's trainings, as notebooks 05 and 06 do them at smoke.

MFU is the share of what a large matrix product reaches here in the same minute. Counted are the operations
that the training asks for, not those that checkpointing does twice.
"""

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pwagents.lm.decode import BatchDecoder
from pwagents.lm.dialogues import dialogue_tokenizer
from pwagents.lm.fit import GIB, Plan, find_device, needed, without_storage
from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import fine_tune
from pwagents.orion.agent import RULES
from pwagents.rl.grpo import train_grpo
from pwagents.rl.log import read_rows
from pwagents.rl.rollout import Rollout
from pwagents.rl.settings import GrpoSettings
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory
from pwagents.seeds import rng
from pwagents.web.environment import BeliefState

QWEN = {  # Qwen2.5-7B-Instruct, as its config.json has it
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
LORA, FIELDS = (16, 32), {"bf16": True, "per_device_train_batch_size": 1, "learning_rate": 2e-5}
WHOLE = {"max_steps": 20, "save_steps": 1000, "max_length": None, "activation_checkpointing": True}

SFT = SftSettings(lora=LORA, trainer=FIELDS | WHOLE)
GRPO = GrpoSettings(max_steps=3, prompts_per_step=4, save_steps=0, lora=LORA, **FIELDS)


@dataclass(frozen=True)
class Work:
    """What is trained.

    Args:
        shape: of the model.
        length: tokens of a sequence to imitate.
        read, written: tokens of an episode.
    """

    shape: Mapping[str, Any]
    length: int = 4096
    read: int = 1024
    written: int = 256
    sft: SftSettings = SFT
    grpo: GrpoSettings = GRPO


def random_model(shape: Mapping[str, Any], tuning: SftSettings | GrpoSettings):
    """A Qwen2 with random weights, of the type in which the training holds them, where they are to be."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, tuning.weights))
    try:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            torch.manual_seed(0)
            return Qwen2ForCausalLM(Qwen2Config(**shape))
    finally:
        torch.set_default_dtype(default)


def measure_sft(work: Work) -> dict[str, float]:
    """Seconds of a step, tokens a second, operations a second, and memory against the forecast."""
    draws = rng(0, "tokens")
    tokenizer, vocabulary = dialogue_tokenizer(RULES), work.shape["vocab_size"]
    sequences = [draws.integers(vocabulary, size=work.length).tolist() for _ in range(4)]
    rows = [{"input_ids": ids, "labels": [-100, *ids[1:]]} for ids in sequences]
    begun = []
    noted = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: begun.append(_now()) if isinstance(module, torch.nn.Embedding) else None
    )  # once a step
    with tempfile.TemporaryDirectory() as folder:
        random_model(work.shape, work.sft).save_pretrained(Path(folder) / "base")
        tokenizer.save_pretrained(Path(folder) / "base")
        _forget_peak()
        log = fine_tune(Path(folder) / "base", rows, work.sft, Path(folder) / "run")
    noted.remove()
    assert np.isfinite(log["loss"]).all()
    seconds = float(np.median(np.diff(begun)[1:]))
    return {
        "seconds_per_step": seconds,
        "tokens_per_s": work.length / seconds,
        "tflops": work.length * operations(work.shape, work.length) / seconds / 1e12,
        **_memory(work.shape, Plan(work.sft, work.length)),
    }


def measure_grpo(work: Work) -> dict[str, float]:
    """The same of GRPO, playing and training apart."""
    settings, length = work.grpo, work.read + work.written
    tasks = [_task(i) for i in range(settings.prompts_per_step)]
    _forget_peak()
    with tempfile.TemporaryDirectory() as folder:
        train_grpo(
            random_model(work.shape, settings),
            dialogue_tokenizer(RULES),
            tasks,
            lambda model, played, seed: play(model, played, seed, work),
            lambda states, trajectory: [float(len(trajectory.steps[0].action.thought) % 2)],
            settings,
            Path(folder) / "run",
        )
        rows = read_rows(Path(folder) / "run" / "log.jsonl")
    playing = float(np.median([row["rollout_seconds"] for row in rows[1:]]))
    training = float(np.median([row["seconds"] for row in rows[1:]])) - playing
    read = settings.episodes * length
    return {
        "seconds_per_step": playing + training,
        "tokens_per_s": read / training,
        "tflops": read * operations(work.shape, length) / training / 1e12,
        "tokens_written_per_s": settings.episodes * work.written / playing,
        **_memory(work.shape, Plan(settings, length, settings.episodes)),
    }


def play(model: Any, tasks: Sequence[Task], seed: int, work: Work) -> list[Rollout]:
    """One turn each, of random text; the reward is chance, too."""
    draws = rng(seed, "prompts")
    prompts = [draws.integers(work.shape["vocab_size"], size=work.read).tolist() for _ in tasks]
    decoder = BatchDecoder(model, len(tasks))
    chance, never = torch.Generator().manual_seed(seed), -1  # no token ends a turn: all are equally long
    with torch.inference_mode():
        turns = decoder.write(prompts, [1.0] * len(tasks), work.written, never, chance)
    return [
        _rollout(task, prompt, *turn, draws.integers(2))
        for task, prompt, turn in zip(tasks, prompts, turns, strict=True)
    ]


def operations(shape: Mapping[str, Any], length: int) -> float:
    """Floating-point operations a token that training an adapter asks for.

    Two a weight forward and two backward, to the inputs; the weights themselves get no gradient. Attention
    looks at half of the sequence on average, and its backward pass costs twice its forward pass.
    """
    network = without_storage(_config(shape))
    weights = network.num_parameters() - network.get_input_embeddings().weight.numel()
    return 4 * weights + 6 * shape["num_hidden_layers"] * length * shape["hidden_size"]


def matmul_tflops(size: int = 8192) -> float:
    """What a product of two large matrices in bfloat16 reaches, the best of ten."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    left, right = torch.randn(2, size, size, device=device, dtype=torch.bfloat16)
    seconds = []
    for _ in range(10):
        begin = _now()
        left @ right
        seconds.append(_now() - begin)
    return 2 * size**3 / min(seconds) / 1e12


def small_model(folder: Path) -> dict[str, float]:
    """Seconds of notebooks 05 and 06 at smoke, each in a process of its own."""
    seconds = {}
    for notebook in ("05_orion_sft", "06_orion_grpo"):
        command = [sys.executable, "-m", "pwagents.notebook.execute", "--preset", "smoke"]
        begin = time.perf_counter()
        subprocess.run([*command, "--output-dir", str(folder), notebook], check=True)
        seconds[notebook] = time.perf_counter() - begin
    return seconds


def _config(shape: Mapping[str, Any]):
    from transformers import Qwen2Config

    return Qwen2Config(**shape)


def _memory(shape: Mapping[str, Any], plan: Plan) -> dict[str, float]:
    """Peak and forecast in GiB; the forecast has a reserve."""
    device, network = find_device(), without_storage(_config(shape))
    gpu = torch.cuda.is_available()
    return {
        "peak_tensors_gib": torch.cuda.max_memory_allocated() / GIB if gpu else float("nan"),
        "peak_gib": torch.cuda.max_memory_reserved() / GIB if gpu else float("nan"),
        "forecast_gib": needed(network, plan, device) / GIB,
    }


def _forget_peak() -> None:
    gc.collect()  # trainer and model refer to each other: without this the last model stays in memory
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _task(i: int) -> Task:
    fields = {"user_id": "u", "type": "search", "timestamp": 1, "instruction": "go", "target": "B1"}
    return Task(task_id=f"t{i}", review=Review(rating=5), **fields)


def _rollout(task: Task, prompt: list[int], ids: list[int], logprobs: list[float], luck: int) -> Rollout:
    action = Action(name="respond", arguments={"content": "."}, thought="!" * int(luck))
    steps = (Step(action=action, observation=Observation(text=".")),)
    trajectory = Trajectory(task_id=task.task_id, user_id="u", type="search", target="B1", steps=steps)
    state = BeliefState("u", "go", "go", None, ())
    return Rollout(prompt, ids, [1] * len(ids), logprobs, [0] * len(ids), (state,), trajectory)


def main() -> int:
    if not torch.cuda.is_available():
        print("No GPU was found: this measures trainings on one.", file=sys.stderr)
        return 1
    reached = matmul_tflops()
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}: a matrix product at {reached:,.0f} TFLOP/s")
    work = Work(QWEN)
    frame = pd.DataFrame({"SFT": measure_sft(work), "GRPO": measure_grpo(work)}).T
    print(frame.assign(mfu=frame["tflops"] / reached).round(2).T.to_string(na_rep=""), "\n")
    with tempfile.TemporaryDirectory() as folder:
        print("small model, seconds")
        print(pd.Series(small_model(Path(folder))).round(1).to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
