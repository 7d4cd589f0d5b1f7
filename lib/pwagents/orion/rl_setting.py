"""Reinforcement learning of Orion's policy from JSON values, so that every process builds the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.evaluation.metrics import grade
from pwagents.orion.play import Decoding, play_rollouts
from pwagents.orion.reward import RewardConfig, make_rewards
from pwagents.orion.study import has_answer, make_study
from pwagents.rl.grpo import train_grpo
from pwagents.rl.ppo import train_ppo
from pwagents.rl.rollout import Evaluate, Play, StepRewards, count_asks
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.schema import Task


def reinforce(
    stage: str, model: str, config: dict[str, Any], params: Mapping[str, Any], out_folder: str
) -> None:
    """Train by GRPO or PPO, for :func:`pwagents.lm.launch.launch`.

    Args:
        stage: grpo or ppo.
        model: a folder; the tokenizer is in it, too.
        config: the fields of :class:`GrpoSettings` or :class:`PpoSettings`.
        params: the arguments of :func:`rl_setting`.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    tasks, play, rewards, evaluate = rl_setting(tokenizer, **params)
    train, config_type = (train_grpo, GrpoSettings) if stage == "grpo" else (train_ppo, PpoSettings)
    train(model, tokenizer, tasks, play, rewards, config_type(**config), out_folder, evaluate)


def rl_setting(
    tokenizer: Any,
    study: Mapping[str, Any],
    rewards: Mapping[str, Any],
    decoding: Mapping[str, Any],
    eval_tasks: int,
) -> tuple[list[Task], Play, StepRewards, Evaluate]:
    """Tasks, play, rewards and evaluate, as :func:`train_grpo` takes them.

    Args:
        study: arguments of :func:`pwagents.orion.study.make_study`.
        rewards, decoding: fields of :class:`RewardConfig` and :class:`Decoding`.
        eval_tasks: test tasks, drawn at random, that the evaluations of the log are on; 0 takes all that can
            be scored.
    """
    made, sampled = make_study(**study), Decoding(**decoding)
    greedy = replace(sampled, temperature=0.0, review_temperature=None)
    checked = sample_tasks([task for task in made.test_tasks if has_answer(task)], eval_tasks, made.seed)

    def play(model, tasks, seed):
        return play_rollouts(model, tokenizer, tasks, made.start, sampled, seed)

    def evaluate(model) -> dict[str, float]:
        rollouts = play_rollouts(model, tokenizer, checked, made.start, greedy)
        grades = [grade(rollout.trajectory) for rollout in rollouts]
        asks = [count_asks(rollout.trajectory) for rollout in rollouts]
        return {
            "result_final": float(np.mean([each.result_final for each in grades])),
            "function_accuracy": float(np.mean([each.function_accuracy for each in grades])),
            "turns": float(np.mean([each.steps for each in grades])),
            "asks": float(np.mean(asks)),
        }

    return list(made.train_tasks), play, make_rewards(made.judge, RewardConfig(**rewards)), evaluate
