"""Episodes a second of the batched decoder, and seconds of a GRPO step, beside transformers and TRL alone.

    .venv/bin/python benchmarks/rollouts.py [--episodes 128]

About two minutes on two cores. A small model learns Orion's calls from the offline teacher, then plays
search tasks of the embedded world greedily: by the decoder, many episodes at once, and by ``generate`` of
transformers, one episode after another, with a key-value cache that lasts the whole episode. Weights, tasks,
environment and tokens are the same: how many episodes came out alike is printed, too. Expect the decoder to
play at least eight times as many a second. Then GRPO takes a few steps, with equally many episodes, by our
trainer and by the loop of TRL itself with an environment a rollout. Seconds are those of the clock, with
all cores for each way: run it on a machine that does nothing else.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from trl_environment import (
    EpisodeLoop,
    OrionEnvironment,
    prompt_rows,
    with_response_template,
)

from pwagents.agents.replies import read_turn
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.llm.chat import Reply
from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import fine_tune
from pwagents.lm.small import make_small_model
from pwagents.orion.agent import orion_messages, orion_tools
from pwagents.orion.base import base_tokenizer
from pwagents.orion.judge import OfflineJudge
from pwagents.orion.play import orion_answers, orion_prompt, play_rollouts
from pwagents.orion.reward import Rewards, RewardSettings
from pwagents.orion.settings import Decoding
from pwagents.orion.wishes import WishReader
from pwagents.profiles.catalogue import Catalogue
from pwagents.rl.grpo import train_grpo
from pwagents.rl.rollout import StartEpisode, StepRewards
from pwagents.rl.settings import GrpoSettings
from pwagents.schema import Task, Trajectory, Usage
from pwagents.web.environment import MAX_STEPS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.orion.world import make_setting, make_teacher  # noqa: E402

DEMAND = 8.0  # times as many episodes a second as one at a time
ALONE = 32  # episodes that are played one at a time
ROUNDS = 4
BATCHES = (64, 128)  # as many as a step of training plays, and an evaluation
SAMPLED = Decoding(turn_tokens=64, shown=2)
GREEDY = SAMPLED.greedy
STEPS = 3  # of GRPO that are timed but for the first, which warms up
PROMPTS, GENERATIONS, MICRO_BATCH = 4, 8, 16


class Stage(NamedTuple):
    """What is played, with what it is paid."""

    tasks: list[Task]
    start: StartEpisode
    rewards: StepRewards
    tokenizer: Any
    model: Any


def make_stage(folder: Path, episodes: int, sft_steps: int = 400) -> Stage:
    """A world, and a model that has learned to make calls from the teacher's episodes in it."""
    benchmark = make_world(WorldConfig(n_users=max(12, episodes), n_products=400), seed=0).benchmark
    catalogue = Catalogue(benchmark.products)
    setting = make_setting(benchmark, catalogue)
    tasks = [task for task in benchmark.tasks["train"] if task.type == "search"][:episodes]
    tokenizer, teacher = with_response_template(base_tokenizer()), make_teacher(setting, catalogue)
    model = make_small_model(tokenizer, seed=0)
    told = []
    for task in tasks:
        episode = setting.start(task)
        while not episode.done:
            episode.step(teacher(episode.state))
        told.append(orion_messages(episode.state, GREEDY.shown))
    config = SftSettings(max_steps=sft_steps, learning_rate=5e-3)
    fine_tune(model, tokenizer, told, config, folder, orion_tools())
    judge = OfflineJudge(WishReader(catalogue, setting.update))
    rewards = Rewards(judge, RewardSettings(alignment_weight=0.5))
    return Stage(tasks, setting.start, rewards, tokenizer, model.eval())


def measure_rollouts(stage: Stage) -> tuple[pd.DataFrame, float]:
    """Episodes a second of each way (the fastest of ROUNDS rounds, which take turns), and the share of
    episodes that both ways played alike."""
    alone = stage.tasks[:ALONE]
    ways = {"generate, one at a time": lambda: [play_alone(stage, task) for task in alone]}
    for size in BATCHES:
        decoding = replace(GREEDY, batch_size=size)
        ways[f"decoder, {size} at once"] = lambda decoding=decoding: play_at_once(stage, decoding)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    played: dict[str, list[Trajectory]] = {}
    for _ in range(ROUNDS):
        for name, play in ways.items():
            begin = time.perf_counter()
            played[name] = play()
            seconds[name].append((time.perf_counter() - begin) / len(played[name]))
    first, *rest = ways
    alike = [a == b for name in rest for a, b in zip(played[first], played[name], strict=False)]
    frame = pd.DataFrame({"episodes_per_s": {name: 1 / min(each) for name, each in seconds.items()}})
    ratio = frame["episodes_per_s"] / frame.loc[first, "episodes_per_s"]
    return frame.assign(ratio=ratio), sum(alike) / len(alike)


def play_at_once(stage: Stage, decoding: Decoding) -> list[Trajectory]:
    rollouts = play_rollouts(stage.model, stage.tokenizer, stage.tasks, stage.start, decoding)
    return [rollout.trajectory for rollout in rollouts]


def play_alone(stage: Stage, task: Task, decoding: Decoding = GREEDY) -> Trajectory:
    """One greedy episode by transformers' ``generate``; nothing that was read is read again."""
    from transformers import DynamicCache

    model, tokenizer, episode = stage.model, stage.tokenizer, stage.start(task)
    ids, cache = orion_prompt(tokenizer, episode.state), DynamicCache(config=model.config)
    prompt = len(ids)
    while True:
        told = torch.tensor([ids])
        options = {"past_key_values": cache, "attention_mask": torch.ones_like(told), "do_sample": False}
        with torch.inference_mode():
            said = model.generate(told, max_new_tokens=decoding.turn_tokens, **options)[0].tolist()
        usage = Usage(calls=1, prompt_tokens=len(ids), completion_tokens=len(said) - len(ids))
        turn, ids = said[len(ids) :], said
        ended = turn[-1] == tokenizer.eos_token_id
        text = tokenizer.decode(turn[: len(turn) - ended], skip_special_tokens=False)
        reply = Reply(text=text, finish_reason="stop" if ended else "length", usage=usage)
        episode.step(read_turn(reply))
        if episode.done or len(ids) - prompt >= decoding.episode_tokens:
            return episode.trajectory
        (answer,) = orion_answers(tokenizer, [episode.state], decoding.shown)
        ids += [tokenizer.eos_token_id] * (not ended) + answer


def measure_steps(stage: Stage, folder: Path) -> pd.DataFrame:
    """Seconds of a step of GRPO (the fastest), of as many sampled episodes, by our trainer and by TRL's."""
    seconds = {"EpisodeTrainer": _our_step(stage, folder / "ours"), "TRL alone": _trl_step(stage, folder)}
    frame = pd.DataFrame({"s_per_step": seconds})
    return frame.assign(ratio=frame["s_per_step"] / seconds["EpisodeTrainer"])


def _our_step(stage: Stage, folder: Path) -> float:
    begun = []

    def play(model, tasks, seed):
        begun.append(time.perf_counter())
        return play_rollouts(model, stage.tokenizer, tasks, stage.start, SAMPLED, seed)

    config = GrpoSettings(
        max_steps=STEPS + 1,
        prompts_per_step=PROMPTS,
        num_generations=GENERATIONS,
        learning_rate=1e-6,
        per_device_train_batch_size=MICRO_BATCH,
        save_steps=0,
    )
    train_grpo(_copy(stage), stage.tokenizer, stage.tasks, play, stage.rewards, config, folder)
    return _fastest(begun)


def _trl_step(stage: Stage, folder: Path) -> float:
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    begun = []

    class Trainer(EpisodeLoop, GRPOTrainer):
        def _send_telemetry(self):
            pass

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            begun.append(time.perf_counter())

    arguments = GRPOConfig(
        output_dir=str(folder / "trl"),
        max_steps=STEPS + 1,
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=PROMPTS * GENERATIONS // MICRO_BATCH,
        num_generations=GENERATIONS,
        learning_rate=1e-6,
        max_completion_length=GREEDY.episode_tokens,
        max_tool_calling_iterations=MAX_STEPS,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    by_id = {task.task_id: task for task in stage.tasks}
    trainer = Trainer(
        _copy(stage),
        environment_factory=lambda: OrionEnvironment(
            by_id, stage.start, stage.rewards, stage.tokenizer, GREEDY.shown
        ),
        train_dataset=Dataset.from_list(prompt_rows(stage.tasks)),
        processing_class=stage.tokenizer,
        args=arguments,
        callbacks=[Clock()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return _fastest(begun)


def _fastest(begun: list[float]) -> float:
    """Seconds of a step: the least time from one beginning to the next, but for the first."""
    return min(later - earlier for earlier, later in pairwise(begun[1:]))


def _copy(stage: Stage) -> Any:
    model = make_small_model(stage.tokenizer, seed=0)
    model.load_state_dict(stage.model.state_dict())
    return model


def verdict(frame: pd.DataFrame) -> str:
    """Of each batch, whether it plays DEMAND times as fast as one episode at a time: "OK" or "FAIL"."""
    lines = [
        f"{'OK' if ratio >= DEMAND else 'FAIL'}: {name} is {ratio:.2f} times as fast; {DEMAND:g} are expected"
        for name, ratio in frame["ratio"].iloc[1:].items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=128, help="that the decoder plays")
    with tempfile.TemporaryDirectory() as folder:
        stage = make_stage(Path(folder) / "model", parser.parse_args().episodes)
        frame, alike = measure_rollouts(stage)
        print(frame.round(2).to_string())
        print(f"{alike:.0%} of the episodes came out alike\n{verdict(frame)}\n", flush=True)
        print(measure_steps(stage, Path(folder)).round(2).to_string())


if __name__ == "__main__":
    main()
