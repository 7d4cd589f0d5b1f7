"""GRPO on whole episodes, by TRL (Orion, 4.3 and Algorithm 1; Guo et al. 2025).

TRL's trainer asks for episodes and gets them from ``play``, as tokens: what the policy sampled is never
decoded and tokenised again. Each task is played several times; what its episodes earned is compared within
this group (:mod:`pwagents.rl.advantages`).

Departures: the loss is the mean over all sampled tokens of a step, not over episodes (``loss_type``); each
step's episodes are used for one update, so the clipping never acts unless vLLM sampled them.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pwagents.lm.load import load_model, with_adapter
from pwagents.lm.trainer import quiet
from pwagents.rl.rollout import Evaluate, Play, StepRewards
from pwagents.rl.run import open_run, save_policy
from pwagents.rl.settings import GrpoSettings
from pwagents.schema import Task


def train_grpo(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[Task],
    play: Play,
    rewards: StepRewards,
    config: GrpoSettings,
    folder: Path | str,
    evaluate: Evaluate | None = None,
) -> Path:
    """Train a policy by GRPO; a run that was killed goes on from its last checkpoint.

    Args:
        model: a folder, or a model, which is then trained in place (peft's adapters may be on it).
        tokenizer: the model's; it only pads here, and is saved with the model.
        play: plays one episode of each task it is given, with ``config``'s temperatures; a task comes
            ``num_generations`` times in a row. Its chance must come from its seed alone.
        rewards: R_t of each step of an episode.
        folder: of this run alone; holds its log, its checkpoints and the result.
        evaluate: every ``eval_steps``, its numbers join the log as ``eval_<name>``.

    Returns:
        ``folder/model``, the trained model and its tokenizer. Where it stands already, nothing is trained.

    Raises:
        DataError: the folder holds a run with other settings.
        ImportError: the tracker is not installed.
        RuntimeError: training diverged.
        ValueError: settings that do not go together, or a rollout that contradicts itself.
    """
    folder = Path(folder).resolve()
    checkpoint, log = open_run(folder, "grpo", config, tasks)
    if (folder / "model").exists():
        return folder / "model"
    from pwagents.rl.grpo_trainer import EpisodeTrainer

    policy = with_adapter(load_model(model, config), config)
    if config.beta and not policy.config._name_or_path:  # TRL loads the reference itself
        raise ValueError("beta needs the model it starts from once more: give it as a folder")
    with quiet():
        trainer = EpisodeTrainer(policy, tokenizer, tasks, play, rewards, config, log, evaluate)
        trainer.train(resume_from_checkpoint=checkpoint)
    save_policy(trainer.accelerator, trainer.model_wrapped, tokenizer, folder / "model")
    return folder / "model"


def use_vllm(wanted: bool | None) -> bool:
    """Whether vLLM plays the episodes, on the GPU that the training is on.

    Args:
        wanted: None takes it where the package is installed and there is a GPU; True insists on it.

    Raises:
        ValueError: it is insisted on, but it is not there.
    """
    if wanted is False:
        return False
    import torch

    there = find_spec("vllm") is not None and torch.cuda.is_available()
    if wanted and not there:
        raise ValueError("the package vllm and a GPU; none goes without them where they are missing")
    return there
