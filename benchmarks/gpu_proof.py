"""What the papers' trainings take on one GPU, beside the forecast of memory: a JSON line a part, no network.
(Of several GPUs make one visible: CUDA_VISIBLE_DEVICES=0.)

    .venv/bin/python benchmarks/gpu_proof.py [orion_grpo orion_sft_full ...] [--tiny]  # none: 4 minutes

Weights are random, settings preset paper's with an adapter (`_full`, on 141 GB: without), for two steps. MFU
is the share of a large product; work done twice for checkpoints counts once. --tiny, or no GPU: sizes / 16.
"""

import gc
import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.benchmark import Timer
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from pwagents.llm.folder import read_config, read_tokenizer
from pwagents.lm import complete, load, train
from pwagents.lm.base import SHIPPED
from pwagents.lm.decode import BatchDecoder
from pwagents.lm.gpu_memory import GIB, Plan, find_device, needed, without_storage
from pwagents.rl.rollout import Rollout
from pwagents.rl.train import train_policy
from pwagents.schema import Action, Observation, Step, Task, Trajectory
from pwagents.settings import DpoSettings, GrpoSettings, PpoSettings, SftSettings

ON_GPU = torch.cuda.is_available()
LESS = 1 if ON_GPU and "--tiny" not in sys.argv else 16
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
SQUARE = {"a": torch.randn(8192 // LESS, 8192 // LESS, device=DEVICE, dtype=DTYPE)}
REACHED = 2 * (8192 // LESS) ** 3 / Timer("a @ a", globals=SQUARE).blocked_autorange().median
QWEN = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064}
LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "vocab_size": 32000}
QWEN, LLAMA = ({name: n // LESS for name, n in shape.items()} for shape in (QWEN, LLAMA))
QWEN = Qwen2Config(**QWEN, num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False)
LLAMA = LlamaConfig(**LLAMA, tie_word_embeddings=False)
FIELDS = {"max_steps": 2, "per_device_train_batch_size": 1, "bf16": True}
TRL = FIELDS | {"gradient_accumulation_steps": 4, "activation_checkpointing": True, "save_strategy": "no"}
RL = FIELDS | {"prompts_per_step": 4, "save_steps": 0, "lora": (16, 32)}
WHOLE = ("embed_tokens", "lm_head", "input_layernorm", "post_attention_layernorm", "norm")
SFT, DPO, ORION = 1280 // LESS, 1024 // LESS, 4096 // LESS  # tokens of a row
PUMA_SFT = Plan(SftSettings(lora=(16, 32), modules_to_save=WHOLE, trainer=TRL | {"max_length": SFT}), SFT)
PUMA_DPO = Plan(DpoSettings(modules_to_save=WHOLE, trainer=TRL | {"max_length": DPO}), DPO)
ORION_SFT = Plan(SftSettings(lora=(16, 32), trainer=TRL | {"max_length": ORION}), ORION)
ORION_FULL = Plan(SftSettings(trainer=TRL | {"max_length": ORION}), ORION)
SHORT = {"prompt": "the " * (SFT // 2), "completion": "the " * (SFT // 16)}  # filled up with end tokens
PAIR = {"prompt": "the " * (DPO * 7 // 8), "chosen": "the " * (DPO // 8 - 1), "rejected": "the the"}
TURN = {"input_ids": [*range(ORION)], "labels": [-100, *range(1, ORION)]}
READ, WRITTEN = 1024 // LESS, 256 // LESS  # tokens of an episode; half as many are written of a candidate
BEGUN: list[float] = []  # when forward passes of the part began


def note(module: Any, _: Any) -> None:  # embeddings see a pass once, also where layers run again
    if isinstance(module, torch.nn.Embedding):
        torch.get_device_module(DEVICE).synchronize()
        BEGUN.append(time.perf_counter())


def random_model(folder: Any, dtype: Any, **_: Any) -> Any:
    """Make weights where they compute, in the place of ``read_model``: files of 15 GB take longer."""
    with torch.device(DEVICE):
        config, dtype = read_config(folder), dtype if dtype == "float32" else DTYPE
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def by_trl(train: Any, config: Any, plan: Plan, row: dict, again: int, base: Path, out: Path) -> dict:
    """Train by TRL: the median pass; the first two warm up."""
    train(base, [row] * 4, plan.settings, out)
    seconds = torch.tensor(BEGUN[:: 1 + again], dtype=torch.float64).diff()[2:].median().item()
    return {"s/pass": seconds} | rates(config, plan, seconds, plan.max_length * (1 + again), again)


def by_rewards(settings: Any, again: int, base: Path, out: Path) -> dict[str, float]:
    """Train by GRPO or PPO, every other episode paid: the second step, playing and training apart."""
    tasks = [Task.model_construct(task_id=f"t{i}", type="search") for i in range(settings.prompts_per_step)]
    train_policy(base, read_tokenizer(SHIPPED / "orion"), Talking(tasks), settings, out)
    row = json.loads((out / "log.jsonl").read_text().splitlines()[-1])
    playing, plan = row["rollout_seconds"], Plan(settings, READ + WRITTEN, settings.episodes)
    row = {"s/step": row["seconds"], "tokens written/s": plan.episodes * WRITTEN / playing}
    return row | rates(QWEN, plan, row["s/step"] - playing, plan.episodes * plan.max_length, again)


@dataclass(frozen=True)
class Talking:
    """A game of one turn."""

    tasks: list[Task]

    def play(self, model: Any, tokenizer: Any, tasks: list[Task], seed: int) -> list[Rollout]:
        """Play a turn of random text, as long as can be (no token ends it), by our own decoder."""
        chance = torch.Generator().manual_seed(seed)
        prompts = torch.randint(QWEN.vocab_size, (len(tasks), READ), generator=chance).tolist()
        with torch.inference_mode():
            turns = BatchDecoder(model, len(tasks)).write(prompts, [1.0] * len(tasks), WRITTEN, -1, chance)
        action = Action(name="respond", arguments={"content": "."})
        steps = (Step(action=action, observation=Observation(text=".")),)
        rest = [0] * WRITTEN, (), Trajectory(task_id="t", user_id="u", type="search", target="B", steps=steps)
        return [Rollout(prompts[i], ids, [1] * WRITTEN, own, *rest) for i, (ids, own) in enumerate(turns)]

    def rewards(self, episodes: Any) -> dict[str, list[list[float]]]:
        """Pay every other episode."""
        return {"half": [[i % 2.0] for i in range(len(episodes))]}


def candidates(base: Path, out: Path) -> dict[str, float]:
    """Sample beams by transformers; reading prompts counts, making the model does not."""
    rest = {"temperature": 1.5, "beams": 10, "max_new_tokens": WRITTEN // 2}
    complete.complete(base, ["the " * READ] * 8, batch_size=8, **rest)
    return {"tokens written/s": 8 * 10 * (len(BEGUN) - 1) / (BEGUN[-1] - BEGUN[0])}


def rates(config: Any, plan: Plan, seconds: float, tokens: int, again: int) -> dict[str, float]:
    """Return tokens a second, MFU and the forecast; ``again``: passes that go forward alone."""
    # Two operations a weight forward, two backward to the inputs, two to the weights where no adapter is.
    # Attention looks at half of a sequence on average; its backward pass costs twice the forward one.
    network = without_storage(config)
    weights = network.num_parameters() - network.get_input_embeddings().weight.numel()
    attention = config.num_hidden_layers * plan.max_length * config.hidden_size
    work = tokens * (2 * (2 + again + (plan.settings.lora is None)) * weights + 2 * (3 + again) * attention)
    memory, rate = needed(network, plan, find_device()) / GIB, work / seconds / REACHED
    return {"tokens/s": tokens / seconds, "MFU": rate, "forecast, GiB": memory}


PARTS = {
    "puma_sft": partial(by_trl, partial(train.fine_tune, pad_counts=True), LLAMA, PUMA_SFT, SHORT, 0),
    "puma_dpo": partial(by_trl, train.prefer, LLAMA, PUMA_DPO, PAIR, 1),  # and the reference
    "puma_candidates": candidates,
    "orion_sft": partial(by_trl, train.fine_tune, QWEN, ORION_SFT, TURN, 0),
    "orion_grpo": partial(by_rewards, GrpoSettings(**RL), 0),
    "orion_ppo": partial(by_rewards, PpoSettings(**RL), 1),  # looks back, for the critic
    "orion_sft_full": partial(by_trl, train.fine_tune, QWEN, ORION_FULL, TURN, 0),
    "orion_grpo_full": partial(by_rewards, GrpoSettings(**RL | {"lora": None}), 0),
}

if __name__ == "__main__":
    print(json.dumps({"device": find_device().name, "product, TFLOP/s": REACHED / 1e12}), flush=True)
    load.read_model = train.read_model = complete.read_model = random_model
    sys.stdout = sys.stderr  # no bars
    torch.nn.modules.module.register_module_forward_pre_hook(note)
    for name in [each for each in sys.argv[1:] if each != "--tiny"] or list(PARTS)[:-2]:
        BEGUN.clear()
        gc.collect()  # trainer and model refer to each other: else the last model stays in memory
        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
        try:
            with TemporaryDirectory() as made:
                (LLAMA if name.startswith("puma") else QWEN).save_pretrained(made)
                read_tokenizer(SHIPPED / "orion").save_pretrained(made)
                row = PARTS[name](Path(made), Path(made) / "run")
            row["peak, GiB"] = torch.cuda.max_memory_allocated() / GIB
            row = {key: float(f"{value:.4g}") for key, value in row.items()}
        except Exception as error:  # costs no other part
            row = {"error": repr(error)}
        print(json.dumps({"part": name} | row), file=sys.__stdout__, flush=True)
