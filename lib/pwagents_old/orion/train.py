"""Orion's trainings from study to model folder, each made once and found again by what it was made from.

    models = OrionModels(make_study(settings))
    base = models.base()
    sft = models.sft(base, models.role_play(400).kept)
    grpo = models.reinforced(sft, settings.rl.grpo, settings.paid, settings.rl.log_tasks)

A run of reinforcement learning is a folder with the log, for :func:`pwagents_old.rl.log.read_curves`, and the
trained policy in ``model``.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from pwagents.data.splits import sample_tasks
from pwagents.errors import DataError, NotEvaluableError
from pwagents.profiles.contextual import Update
from pwagents.results.tables import format_intervals
from pwagents.schema import Action, Split, Task
from pwagents.settings import plain
from pwagents.shop.environment import BeliefState, Environment, UserReply
from pwagents.code import hash_of
from pwagents.store import KEY, made
from pwagents.llm.folder import dropped_by_template, read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.base_model.pretrain import base_model
from pwagents.lm.card import write_card
from pwagents.base_model.dialogues import DialogueText, dialogue_tokenizer
from pwagents.base_model.exercises import ids_and_titles
from pwagents.lm.gpu_memory import Plan
from pwagents.lm.launch import launch, side_by_side
from pwagents.settings import SftSettings, deciding
from pwagents.lm.train import fine_tune
from pwagents_old.orion.agent import PURCHASES, RULES, belief_states, orion_messages
from pwagents_old.orion.judge import prompts
from pwagents_old.orion.play import orion_example, play_rollouts
from pwagents_old.orion.references import play_ladder
from pwagents_old.orion.reward import Rewards, RewardSettings
from pwagents_old.orion.role_play import Played, RolePlay, play_roles
from pwagents_old.orion.runs import OrionRuns
from pwagents_old.orion.settings import OrionSettings
from pwagents_old.orion.study import EPISODE, Study, make_study, role_facts
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.update import OfflineUpdater
from pwagents_old.project import code_hash
from pwagents_old.rl.rollout import Evaluate, Play, Rollout, play_batch, summarize
from pwagents_old.rl.settings import GrpoSettings, PpoSettings, RlSettings
from pwagents_old.rl.train import train_policy

if TYPE_CHECKING:
    from transformers import PretrainedConfig


U = TypeVar("U")
R = TypeVar("R")
_WHAT = {
    "orion-sft": "Orion's agent after supervised fine-tuning on role-play: a thought, then one call.",
    "orion-grpo": "Orion's agent after GRPO on whole episodes, from the fine-tuned one.",
    "orion-ppo": "Orion's agent after PPO on whole episodes, from the fine-tuned one: the paper's baseline.",
}
_USE = """
from pwagents_old.orion.agent import OrionAgent
from pwagents.llm.local_model import LocalModel

agent = OrionAgent(LocalModel("path/to/this/folder"), shown={shown})  # belief state -> action
"""


def write_orion_card(
    folder: Path, name: str, parts: Mapping[str, Any], results: pd.DataFrame | None = None
) -> None:
    """Write the card of a model that :class:`pwagents_old.orion.train.OrionModels` made.

    Args:
        folder: of the model, or of the run that holds it.
        name: of its stage, such as "orion-sft".
        parts: what it was made from: ``start``, ``facts``, ``settings``.
    """
    base, tags = parts["start"].partition("@")[0], ("orion", name.rpartition("-")[2])
    facts, policy = parts["facts"], OrionRuns.folder(folder)
    use = _USE.format(**facts.get("decoding", facts))
    told = (name, _WHAT[name], facts, parts["settings"], results)
    write_card(policy, *told, base=base, tags=tags, use=use)


def add_results(folder: Path, measured: pd.DataFrame) -> None:
    """Write a trained model's card anew, with measured numbers: a row for each comparison.

    Args:
        measured: ``method, type, mean, low, high, n_tasks`` of the result accuracy, as from
            :func:`pwagents.results.statistics.by_type_and_mean`.
    """
    parts = json.loads((folder / KEY).read_text("utf-8"))
    rows = measured.assign(**{"result accuracy": format_intervals(measured), "tasks": measured["n_tasks"]})
    results = rows[["method", "type", "result accuracy", "tasks"]]
    write_orion_card(folder, folder.name.rpartition("-")[0], parts, results)


def reinforce(
    start: Path,
    settings: OrionSettings,
    config: GrpoSettings | PpoSettings,
    reward: RewardSettings,
    log_tasks: int,
    folder: Path,
) -> None:
    """Train by GRPO or PPO, in this process or in each that :func:`pwagents.lm.launch.launch` starts.

    Args:
        start: a folder; the tokenizer is in it, too.
        settings: what the study is made of.
        log_tasks: tasks of validation users, drawn at random, that the evaluations of the log are on; 0: all.
    """
    study, tokenizer = make_study(settings), read_tokenizer(start)
    play, rewards = player(study, tokenizer, config), Rewards(study.judge, reward)
    evaluate = evaluator(study, tokenizer, config, rewards, log_tasks)
    train_policy(start, tokenizer, study.train_tasks, play, rewards, config, folder, evaluate)


def player(study: Study, tokenizer: Any, config: RlSettings, greedy: bool = False) -> Play:
    """How episodes are played to learn from, or greedily, to see what was learned.

    Turns are sampled at the temperatures of the training. An episode goes on where a model behind a role
    refuses.
    """
    heat = {"temperature": config.temperature, "review_temperature": config.review_temperature}
    decoding = study.settings.decoding.greedy if greedy else study.settings.decoding.changed(**heat)

    def start(task: Task) -> Environment:
        episode = study.start(task)
        episode.user = episode.user and _answering(episode.user, lambda *_: UserReply("..."))
        episode.update = episode.update and _answering(episode.update, lambda profile, *_: Update(profile))
        return episode

    def play(model: Any, tasks: Sequence[Task], seed: int) -> list[Rollout]:
        return play_rollouts(model, tokenizer, tasks, start, decoding, seed)

    return play


def _answering(role: Callable[..., R], otherwise: Callable[..., R]) -> Callable[..., R]:
    """The role; what it refuses, ``otherwise`` answers."""

    def answer(*given: Any) -> R:
        try:
            return role(*given)
        except NotEvaluableError:
            return otherwise(*given)

    return answer


def evaluator(study: Study, tokenizer: Any, config: RlSettings, rewards: Rewards, log_tasks: int) -> Evaluate:
    """How the log's evaluations are made, greedily; ``log_tasks`` as of :func:`reinforce`."""
    play = player(study, tokenizer, config, greedy=True)
    tested = sample_tasks(study.validation_tasks, log_tasks, study.seed)

    def evaluate(model: Any) -> dict[str, float]:
        played = play_batch(model, tested, play, rewards, seed=0)
        means = summarize(played)
        measured = {"return": sum(map(sum, played.parts.values())) / len(tested)}
        return measured | {k: means[k] for k in ("result_final", "function_accuracy", "turns", "asks")}

    return evaluate


# Code that decides, beside data and settings, what comes out of a training.
SFT = (*EPISODE, "lm")
RL = (*SFT, "rl")


class OrionModels:
    """Makes the models of a study, or finds them in ``<output_dir>/models``; likewise what they learn from.

    Args:
        seed: of the base model and of the order of tasks in the role-play; None: the study's, which has
            decided on data, users and teacher.

    Where the settings say ``stored_runs_only``, nothing is trained or played, and what is missing is a
    DataError.
    """

    def __init__(self, study: Study, seed: int | None = None):
        self.study, self.seed = study, study.seed if seed is None else seed

    @property
    def base_text(self) -> DialogueText:
        """What the small base model is pre-trained on: no product of the study, and profiles of its shop."""
        products = self.study.benchmark.products
        update, taken = OfflineUpdater(Catalogue(products)), ids_and_titles(products)
        return DialogueText(update, taken, self.seed, orion_messages, RULES, PURCHASES)

    def base(self) -> Path:
        """The model that all trainings start from: the small one, made here, or the folder of another."""
        settings, folder = self.study.settings, self.study.output_dir / "models"
        text, only = lambda: self.base_text, settings.stored_runs_only
        return base_model(settings.base, folder, text, self.seed, stored_only=only)

    def role_play(self, n: int) -> RolePlay:
        """``n`` trajectories to learn from; fewer are the first of more.

        Raises:
            DataError: see :func:`play_roles`.
        """
        study, settings = self.study, self.study.settings
        store, questions = study.output_dir / "runs" / "role_play.jsonl", self.questions
        teacher = role_facts(settings.players, "teacher")

        def nobody(state: BeliefState) -> Action:
            expected = "all of them stored; run once with stored_runs_only=False, same settings, same data"
            raise DataError(store, f"user {state.user_id}", "role-play", "an episode missing", expected)

        return play_roles(
            study.benchmark,
            study.train_tasks,
            study.start,
            (lambda _: nobody) if settings.stored_runs_only else partial(study.teacher, questions=questions),
            store,
            success=settings.success,
            params={**study.facts, "teacher": teacher, "questions": questions},
            n=n,
            seed=self.seed,
            workers=settings.players.workers,
        )

    @property
    def are_questions_tried(self) -> bool:
        """Whether the ladder says how many questions the teacher asks: it is rules, and no number is set."""
        settings = self.study.settings
        return settings.role_play.questions is None and settings.players.teacher == "offline"

    @cached_property
    def questions(self) -> int:
        """How many questions the teacher by rules asks, at most: fixed before any test task is played."""
        if not self.are_questions_tried:
            return self.study.settings.role_play.questions or 0
        returns = self.ladder("train").groupby(["questions", "type"])["return"].mean()
        return int(returns.groupby("questions").mean().idxmax())  # the fewest of those that are as good

    def ladder(self, split: Split) -> pd.DataFrame:
        """Episodes of the teacher by rules with each number of questions (:func:`play_ladder`)."""
        study, played = self.study, self.study.settings.role_play
        tasks = study.train_tasks if split == "train" else study.test_tasks
        tried = sample_tasks(tasks, played.ladder_tasks, study.seed)
        runs = OrionRuns(study, tasks=tried, file="runs/orion_ladder.jsonl")
        return play_ladder(runs, sorted(played.ladder))

    def sft(self, start: Path, played: Sequence[Played], config: SftSettings | None = None) -> Path:
        """Fine-tune the model in ``start`` on trajectories of the role-play.

        Args:
            config: in place of the study's own settings.
        """
        config = config or self.study.settings.sft
        benchmark, shown = self.study.benchmark, self.study.settings.players.shown
        tokenizer = read_tokenizer(start)
        if dropped := dropped_by_template(tokenizer):
            wrong, expected = ", ".join(dropped), "one that tells functions, calls and results"
            raise DataError(start, "tokenizer", "chat template", f"one that drops {wrong}", expected)
        # Stored are steps alone: the belief states are made again.
        tasks = {task.task_id: task for task in self.study.train_tasks}
        firsts = [self.study.start(tasks[each.task_id]).state for each in played]
        pairs = zip(firsts, played, strict=True)
        ends = [belief_states(first, each.trajectory)[-1] for first, each in pairs]
        examples = [orion_example(tokenizer, state, shown) for state in ends]
        rows = [{"input_ids": each.input_ids, "labels": each.labels} for each in examples]

        facts = {
            "data": f"{benchmark.name}, {benchmark.content_hash}",
            "trajectories": len(played),
            "shown": shown,
            "examples": hash_of(examples),
        }
        return self._cached("orion-sft", start, facts, config, SFT, partial(fine_tune, start, rows, config))

    def reinforced(self, start: Path, config: RlSettings, reward: RewardSettings, log_tasks: int) -> Path:
        """Train the policy in ``start`` by GRPO or PPO, as ``config`` has it; the folder of the run.

        The trained policy is in ``<folder>/model``, the log is read by
        :func:`pwagents_old.rl.log.read_curves`.

        Args:
            log_tasks: as of :func:`reinforce`.
        """
        study, stage = self.study, "ppo" if isinstance(config, PpoSettings) else "grpo"
        given = {"reward": plain(reward), "log_tasks": log_tasks}

        def make(folder: Path) -> None:
            job = {"start": start, "settings": study.settings, "config": config, "reward": reward}
            job |= {"log_tasks": log_tasks, "folder": folder}
            if not launch(reinforce, job, config.n_gpus, config.sharding):
                reinforce(**job)
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)

        tasks = [task.task_id for task in (*study.train_tasks, *study.test_tasks)]
        judge = role_facts(study.settings.players, "judge")
        if judge != "offline":
            judge |= {"prompt": hash_of(prompts())}
        aside = {"workers", "temperature", "review_temperature"}  # the temperatures are those of ``config``
        decoding = {k: v for k, v in plain(study.settings.decoding).items() if k not in aside}
        facts = {"study": study.facts, "judge": judge, "decoding": decoding, "tasks": hash_of(tasks)}
        return self._cached(f"orion-{stage}", start, facts | given, config, RL, make)

    def side_by_side(self, train: Callable[[U], R], units: Sequence[U]) -> list[R]:
        """What ``train`` gives for each unit (a seed, say), in their order.

        Those of the small model run beside each other (:func:`pwagents.lm.launch.side_by_side`).
        """
        settings = self.study.settings

        # The study, unused, goes along when this is pickled: one that asks a language model cannot, and so
        # keeps its trainings in this process.
        def train_with(unit: U, study: Study = self.study) -> R:
            return train(unit)

        return side_by_side(train_with, units, settings.base, stored_only=settings.stored_runs_only)

    def _cached(
        self,
        name: str,
        start: Path,
        facts: Mapping[str, Any],
        config: SftSettings | RlSettings,
        code: Sequence[str],
        make: Callable[[Path], None],
    ) -> Path:
        def make_with_card(folder: Path) -> None:
            make(folder)
            write_orion_card(folder, name, parts)

        parts = {"start": LocalModel(start).name, "facts": facts}
        parts |= {"settings": deciding(config), "code": code_hash(*code)}
        folder, only = self.study.output_dir / "models", self.study.settings.stored_runs_only
        return made(folder, name, parts, make_with_card, stored_only=only)


_PROMPT_TOKENS = 1536  # of rules, functions, task and profile, and of the answer before the last turn


def base_size(settings: OrionSettings) -> "PretrainedConfig | Path":
    """What says how large the base model is, also before the small one is made."""
    if not settings.base.is_small:
        models, only = settings.output_dir / "models", settings.stored_runs_only
        return base_model(settings.base, models, None, 0, stored_only=only)
    from pwagents.base_model.small import make_small_model, with_copying_layers

    model = make_small_model(dialogue_tokenizer(RULES), settings.seed)
    return with_copying_layers(model, settings.seed).config


def episode_plan(settings: OrionSettings, config: RlSettings) -> Plan:
    """A training by rewards, for :func:`pwagents.lm.gpu_memory.require_fit`."""
    length = settings.play.episode_tokens + settings.play.turn_tokens + _PROMPT_TOKENS
    return Plan(config, length, episodes=min(settings.play.batch_size, config.episodes // config.n_gpus))
