"""Reinforcement learning of Orion's policy from JSON values, so that every process of it makes the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.evaluation.metrics import grade
from pwagents.llm.folder import read_tokenizer
from pwagents.orion.people import has_answer
from pwagents.orion.play import play_rollouts
from pwagents.orion.reward import Rewards, RewardSettings
from pwagents.orion.settings import Decoding
from pwagents.orion.study import Study, study_of
from pwagents.rl.rollout import Evaluate, Play, count_asks
from pwagents.rl.settings import GrpoSettings, PpoSettings, RlSettings
from pwagents.rl.train import train_policy

Stage = Literal["grpo", "ppo"]


def reinforce(
    stage: Stage,
    model: str,
    settings: str,
    config: Mapping[str, Any],
    reward: Mapping[str, Any],
    log_tasks: int,
    out_folder: str,
) -> None:
    """Train by GRPO or PPO, for :func:`pwagents.lm.launch.launch`.

    Args:
        model: a folder; the tokenizer is in it, too.
        settings: what the study is made of (:func:`pwagents.orion.study.as_json`).
        config: the fields of :class:`GrpoSettings` or :class:`PpoSettings`.
        reward: the fields of :class:`RewardSettings`.
        log_tasks: test tasks, drawn at random, that the evaluations of the log are on; 0 takes all that can
            be scored.
    """
    study, checked = study_of(settings), (GrpoSettings if stage == "grpo" else PpoSettings)(**config)
    tokenizer = read_tokenizer(model)
    play = player(study, tokenizer, checked)
    evaluate = evaluator(study, tokenizer, checked, log_tasks)
    rewards = Rewards(study.judge, RewardSettings(**reward))
    train_policy(model, tokenizer, study.train_tasks, play, rewards, checked, out_folder, evaluate)


def player(study: Study, tokenizer: Any, config: RlSettings) -> Play:
    """How episodes are played to be learned from."""
    decoding = _sampled(study, config)

    def play(model, tasks, seed):
        return play_rollouts(model, tokenizer, tasks, study.start, decoding, seed)

    return play


def evaluator(study: Study, tokenizer: Any, config: RlSettings, log_tasks: int) -> Evaluate:
    """How the log's evaluations are made, greedily; ``log_tasks`` as of :func:`reinforce`."""
    decoding = _sampled(study, config).greedy
    tested = sample_tasks([task for task in study.test_tasks if has_answer(task)], log_tasks, study.seed)

    def evaluate(model) -> dict[str, float]:
        rollouts = play_rollouts(model, tokenizer, tested, study.start, decoding)
        grades = [grade(rollout.trajectory) for rollout in rollouts]
        asks = [count_asks(rollout.trajectory) for rollout in rollouts]
        return {
            "result_final": float(np.mean([each.result_final for each in grades])),
            "function_accuracy": float(np.mean([each.function_accuracy for each in grades])),
            "turns": float(np.mean([each.steps for each in grades])),
            "asks": float(np.mean(asks)),
        }

    return evaluate


def _sampled(study: Study, config: RlSettings) -> Decoding:
    """The study's decoding at the temperatures of the training."""
    hot = {"temperature": config.temperature, "review_temperature": config.review_temperature}
    return replace(study.settings.decoding, **hot)
