"""What GRPO's groups teach a policy before it learns anything: which of them weigh how much, and what their
advantages say of a question.

A group is the episodes of one task. Where all of them succeed, or none, only the alignment reward tells them
apart. Divided by the group's deviation (:func:`pwagents.rl.advantages.group_advantages`), this small reward
weighs as much as success does elsewhere.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from pwagents.llm.local_model import LocalModel
from pwagents.orion.reinforce import player
from pwagents.orion.reward import Rewards, RewardSettings
from pwagents.orion.settings import GROUP_STEPS
from pwagents.orion.study import Study
from pwagents.rl.advantages import step_advantages
from pwagents.rl.rollout import count_asks, play_batch, tasks_in_order
from pwagents.rl.settings import GrpoSettings
from pwagents.seeds import derive_seed

SCALES = {"none": "not divided", "group": "divided"}  # GrpoSettings.scale_rewards -> in words


def play_groups(study: Study, folder: Path, config: GrpoSettings, reward: RewardSettings) -> pd.DataFrame:
    """The groups of a training's first :data:`GROUP_STEPS` steps, played by the policy that it starts from.

    Args:
        folder: of that policy.

    Returns:
        One row an episode: ``group, type, success`` (whether it is paid for), ``asks``, ``tokens`` (those
        sampled) and its advantage under either scale: ``not divided, divided``.
    """
    policy, rewards = LocalModel(folder).loaded, Rewards(study.judge, reward)
    play, size = player(study, policy.tokenizer, config), config.num_generations
    scaled = {told: replace(config, credit="episode", scale_rewards=scale) for scale, told in SCALES.items()}
    in_order, rows = tasks_in_order(study.train_tasks, config), []
    for step in range(min(GROUP_STEPS, config.max_steps)):
        prompts = in_order[step * config.prompts_per_step :][: config.prompts_per_step]
        tasks = [task for task in prompts for _ in range(size)]
        played = play_batch(policy.model, tasks, play, rewards, derive_seed(config.seed, "groups", str(step)))
        advantages = {told: step_advantages(played, each) for told, each in scaled.items()}
        for i, (rollout, steps) in enumerate(zip(played.rollouts, played.rewards, strict=True)):
            row = {"group": f"{step}, {i // size}", "type": rollout.trajectory.type}
            row["success"] = rewards.parts(rollout.trajectory, steps)["task"]
            row |= {"asks": count_asks(rollout.trajectory), "tokens": sum(rollout.mask)}
            rows.append(row | {told: float(values[i][0]) for told, values in advantages.items()})
    return pd.DataFrame(rows)


def weight_of_groups(episodes: pd.DataFrame) -> pd.DataFrame:
    """What the groups of :func:`play_groups` weigh, by how many of their episodes succeed.

    Returns:
        One row a kind of group, the rarest success first: ``kind``, ``groups`` (share of them), and under
        either scale ``weight`` (share of the absolute advantages of all tokens) and ``a question``, how much
        one question more moves an episode's advantage: the slope within groups, NaN where all ask the same.
    """
    share = episodes.groupby("group")["success"].transform("mean")
    kinds = share.map(lambda s: "all succeed" if s == 1 else "some succeed" if s else "none succeeds")
    more = episodes["asks"] - episodes.groupby("group")["asks"].transform("mean")
    table = pd.DataFrame({"groups": kinds.value_counts(normalize=True)})
    for told in SCALES.values():
        weight = episodes[told].abs() * episodes["tokens"]
        table[f"weight, {told}"] = weight.groupby(kinds).sum() / weight.sum()
        slope = (episodes[told] * more).groupby(kinds).sum() / (more**2).groupby(kinds).sum()
        table[f"a question, {told}"] = slope
    order = [kind for kind in ("none succeeds", "some succeed", "all succeed") if kind in table.index]
    return table.loc[order].rename_axis("kind").reset_index()
