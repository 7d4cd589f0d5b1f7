"""Orion's trainings (Orion, 4.3), from conversations to a policy.

    study = make_study(settings)
    kept = make_conversations(study, settings.role_play.n_trajectories).kept  # those that succeeded
    tuned = fine_tuned(study, base, kept, settings.sft)  # a model's folder
    run = reinforced(settings, tuned, "GRPO")  # a folder with the log and, in "model", the policy

Each is made once and found again by its key.
"""

import warnings
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.code import hash_of
from pwagents.data.splits import sample_tasks
from pwagents.errors import DataError
from pwagents.llm.folder import dropped_by_template, read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.lm.base import base_folder
from pwagents.lm.gpu_memory import Plan
from pwagents.lm.train import CODE as SFT
from pwagents.lm.train import fine_tune
from pwagents.orion.agent import belief_states
from pwagents.orion.experiment import OrionRuns
from pwagents.orion.game import OrionGame
from pwagents.orion.judge import prompts
from pwagents.orion.play import CODE as PLAY
from pwagents.orion.play import orion_example
from pwagents.orion.reward import episode_returns
from pwagents.orion.role_play import Played, RolePlay, play_roles
from pwagents.orion.study import Study, make_study, role_facts
from pwagents.orion.teacher import for_every_task, make_teacher, rule_teacher
from pwagents.orion.variations import train_starts
from pwagents.rl.log import LOG, read_rows
from pwagents.rl.train import train_policy
from pwagents.schema import Action, Split
from pwagents.settings import OrionSettings, ReinforcedNotebook, RlSettings, SftSettings, deciding, plain
from pwagents.shop.environment import BeliefState
from pwagents.store import Episode, made

# The modules that decide a conversation of the role-play, and a training by rewards, for keys.
TEACHER = ("orion.teacher",)
TALK = (*PLAY, *(f"orion.{name}" for name in ("role_play", "judge", "reward", "teacher")))
RL = (
    *dict.fromkeys((*PLAY, *SFT)),
    "data.splits",
    *(f"orion.{name}" for name in ("game", "judge", "reward", "teacher")),
    *(f"rl.{name}" for name in ("advantages", "draw", "learner", "log", "loss", "train")),
)


@lru_cache(maxsize=4)  # what the ladder earns takes a minute to compute
def count_questions(study: Study) -> int:
    """Return how many questions the teacher by rules asks, at most, fixed before any test task is played.

    It is the number of ``role_play.ladder`` with the highest return on train tasks, in the mean of the types
    of tasks; of those that are as good the fewest. A language model asks as it likes: 0.
    """
    if study.settings.players.teacher != "offline":
        return 0
    runs, rungs = play_ladder(study, "train")
    rows = [
        (n, record.type, value)
        for n, records in rungs.items()
        for record, value in zip(records, episode_returns(runs, records), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["questions", "type", "return"])
    returns = frame.groupby(["questions", "type"])["return"].mean()
    return int(returns.groupby("questions").mean().idxmax())


def play_ladder(study: Study, split: Split) -> tuple[OrionRuns, dict[int, list[Episode]]]:
    """Let the teacher by rules play with each number of questions at most: what plays, and the episodes."""
    played = study.settings.role_play
    tasks = study.train_tasks if split == "train" else study.test_tasks
    tried = sample_tasks(tasks, played.ladder_tasks, study.seed)
    runs, rungs = OrionRuns(study, tasks=tried, file="runs/orion_ladder.jsonl"), {}
    for n in sorted(played.ladder):
        teacher = for_every_task(rule_teacher(study, 0, n))
        rungs[n] = runs.agent(f"{n} questions", teacher, {"questions": n}, TEACHER)
    return runs, rungs


def make_conversations(study: Study, n: int, seed: int | None = None, variation: str = "") -> RolePlay:
    """Play ``n`` conversations to learn from; fewer are the first of more.

    Args:
        seed: of the order of tasks; None: the study's, which has decided on data, users and teacher.
        variation: of how episodes begin (:func:`pwagents.orion.variations.train_starts`).

    Raises:
        DataError: see :func:`pwagents.orion.role_play.play_roles`; or, with ``stored_runs_only``, an episode
            is missing.
    """
    settings, questions = study.settings, count_questions(study)
    store = study.output_dir / "runs" / "role_play.jsonl"

    def nobody(state: BeliefState) -> Action:
        expected = "all of them stored; run once with stored_runs_only=False, same settings, same data"
        raise DataError(store, f"user {state.user_id}", "role-play", "an episode missing", expected)

    teacher_of = partial(make_teacher, study, questions=questions)
    teacher = {"teacher": role_facts(settings.players, "teacher"), "questions": questions}
    teacher |= {"variation": variation, "not_updated": settings.role_play.not_updated} if variation else {}
    return play_roles(
        study.benchmark,
        study.train_tasks,
        train_starts(study, variation),
        (lambda _: nobody) if settings.stored_runs_only else teacher_of,
        store,
        success=settings.success,
        params={**study.facts, **teacher, "code": (*TALK, "orion.variations") if variation else TALK},
        n=n,
        seed=study.seed if seed is None else seed,
        workers=settings.players.workers,
    )


def fine_tuned(
    study: Study, start: Path, kept: Sequence[Played], settings: SftSettings, variation: str = ""
) -> Path:
    """Return the folder of the model in ``start`` fine-tuned on conversations of the role-play.

    Args:
        variation: as these were made (:func:`make_conversations`).

    Raises:
        DataError: the tokenizer's template drops functions, calls or results.
    """
    shown, tokenizer = study.settings.players.shown, read_tokenizer(start)
    if dropped := dropped_by_template(tokenizer):
        wrong, expected = ", ".join(dropped), "one that tells functions, calls and results"
        raise DataError(start, "tokenizer", "chat template", f"one that drops {wrong}", expected)
    # Stored are steps alone: the belief states are made again.
    tasks = {task.task_id: task for task in study.train_tasks}
    begin = train_starts(study, variation)
    firsts = [begin(tasks[each.task_id]).state for each in kept]
    ends = [belief_states(first, each.trajectory)[-1] for first, each in zip(firsts, kept, strict=True)]
    examples = [orion_example(tokenizer, state, shown) for state in ends]
    rows = [{"input_ids": each.input_ids, "labels": each.labels} for each in examples]
    facts = {"base": LocalModel(start).name, "rows": hash_of(rows), "settings": deciding(settings)}
    make = partial(fine_tune, start, rows, settings)
    models, only = study.output_dir / "models", study.settings.stored_runs_only
    return made(models, "orion-sft", facts | {"code": SFT}, make, stored_only=only)


def game_of(settings: ReinforcedNotebook, config: RlSettings) -> OrionGame:
    """Return what a policy is trained on."""
    return OrionGame(settings, settings.paid, settings.rl.log_tasks, config.temperature)


def reinforced(
    settings: ReinforcedNotebook, start: Path, method: str = "GRPO", seed: int | None = None
) -> Path:
    """Return the folder of a training by rewards from the model in ``start``, with log and policy.

    Args:
        settings: those of the study too, which is made of them.
        method: GRPO or PPO, which plays as many episodes as GRPO did, whose training it waits for.
        seed: of the training; None: that of the settings.
    """
    study, config = make_study(settings), settings.rl.configs[method]
    config = config if seed is None else config.changed(seed=seed)
    if method == "PPO":
        # As many episodes as GRPO sampled, those of groups that were drawn anew among them.
        rows = read_rows(reinforced(settings, start, "GRPO", seed) / LOG)
        sampled = np.mean([row["sampled"] for row in rows if "sampled" in row])
        parts = config.n_gpus * config.minibatches
        config = config.changed(prompts_per_step=max(round(sampled / parts), 1) * parts)
    judge = role_facts(settings.players, "judge")
    if judge != "offline":
        judge |= {"prompt": hash_of(prompts())}
    aside = {"workers", "temperature"}  # the temperature is that of ``config``
    facts = {
        "start": LocalModel(start).name,
        "study": study.facts,
        "judge": judge,
        "decoding": {name: value for name, value in plain(settings.decoding).items() if name not in aside},
        "tasks": hash_of([task.task_id for task in (*study.train_tasks, *study.validation_tasks)]),
        "reward": plain(settings.paid),
        "log_tasks": settings.rl.log_tasks,
        "method": method,
        "settings": deciding(config),
        "code": RL,
    }
    make = partial(train_policy, start, read_tokenizer(start), game_of(settings, config), config)
    models, only = study.output_dir / "models", settings.stored_runs_only
    with warnings.catch_warnings():
        # Where the groups of the first step teach nothing, the schedule moves before the optimizer does.
        warnings.filterwarnings("ignore", ".*lr_scheduler.step", UserWarning)
        return made(models, f"orion-{method.lower()}", facts, make, stored_only=only)


def train_all(settings: ReinforcedNotebook) -> dict[str, Path]:
    """Return the policies of a whole pipeline by name: Base, SFT, and each of ``rl.methods``."""
    study, models = make_study(settings), settings.output_dir / "models"
    base = base_folder(settings.base, "orion", models, stored_only=settings.stored_runs_only)
    kept = make_conversations(study, settings.role_play.n_trajectories).kept
    tuned = fine_tuned(study, base, kept, settings.sft)
    trained = {method: reinforced(settings, tuned, method) for method in settings.rl.methods}
    return {"Base": base, "SFT": tuned, **trained}


_PROMPT_TOKENS = 1536  # of rules, functions, task and profile, and of the answer before the last turn


def episode_plan(settings: OrionSettings, config: RlSettings) -> Plan:
    """Return a training by rewards, for :func:`pwagents.lm.gpu_memory.require_fit`."""
    length = settings.play.episode_tokens + settings.play.turn_tokens + _PROMPT_TOKENS
    return Plan(config, length, episodes=min(settings.play.batch_size, config.episodes // config.n_gpus))
