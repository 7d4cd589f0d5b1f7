"""PersonalWAB's leaderboard: its scorer, rule by rule, and a run as the file that its ``run.py`` writes.

Of the file's ``run_args`` are filled: env, task_split, start_index, end_index, num_trials, user_mode,
max_steps, and what the caller says (``evaluate``: model, agent_strategy, user_model, max_concurrency, seed).

The published scorer differs from ours (:mod:`pwagents.shop.score`) by the rules below. Each can be
switched on by itself: with none of them the scores are ours, with all of them those of the published code.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pwagents.agents.messages import call_messages, user
from pwagents.files import write_aside
from pwagents.schema import FUNCTION_OF, TASK_TYPES, Action, Protocol, Task, TaskType, Trajectory
from pwagents.shop.environment import MAX_STEPS, Environment, Shop, Track
from pwagents.shop.score import rank_accuracy
from pwagents.shop.search import RESULTS, product_text
from pwagents.store import Episode

MALFORMED, NUMBER, TEXTS = "malformed calls count", "ranks by the number of results", "ids within texts"
NEGATIVE, BEST, REFUSED = "cosines below 0", "the best attempt", "what came before a refusal"
RULES = {
    MALFORMED: "An empty query, an empty review (compared as 'No review provided.') or a text in the place "
    "of ids is a call of the function; ours wants well-formed parameters.",
    NUMBER: "A target at rank r of n results is worth 1 - (r - 1) / n; ours divides by ten (equation 1).",
    TEXTS: "A target is found by its id in the text of a result, maybe another product's; ours compares ids.",
    NEGATIVE: "A review is worth its cosine with the real one, below 0 too; ours is clipped to 0.",
    BEST: "The best attempt of an episode counts; of ours, the last.",
    REFUSED: "Attempts count although the policy's model then refused to go on; ours is 0.",
}
# The arguments of the published ``run.py``, in its order.
ARGUMENTS = """num_trials env model user_mode user_model agent_strategy temperature task_split agent_memory
memory_length max_steps start_index end_index resume_from verbose log_dir num_gpus max_concurrency seed
shuffle interec_memory_file puma_param_file puma_function_file puma_generate puma_model_path
mem_token_length"""
PARAMETER: dict[TaskType, str] = {"search": "query", "recommend": "product_sequence", "review": "review"}


class Score(NamedTuple):
    """Function and result accuracy of a call or an episode."""

    function: float
    result: float


def score_calls(
    shop: Shop,
    task: Task,
    trajectory: Trajectory,
    rules: Collection[str] = tuple(RULES),
    protocol: Protocol = "leak_free",
) -> list[Score]:
    """Score each call of one of the three functions, in order.

    A call of another function than the task asks for scores 0 in both.
    """
    scores, similarities = [], iter(trajectory.similarities)
    for step in trajectory.steps:
        if step.action.name not in FUNCTION_OF.values():
            continue
        score = Score(0.0, 0.0)
        if step.error and MALFORMED in rules:
            score = _score_malformed(shop, task, step.action, rules, protocol)
        elif trajectory.is_attempt(step) and task.type == "review":
            score = Score(1.0, _cosine(next(similarities), rules))
        elif trajectory.is_attempt(step):
            score = Score(1.0, _rank(shop, task, step.observation.products, rules))
        scores.append(score)
    return scores


def score_episode(
    shop: Shop,
    task: Task,
    trajectory: Trajectory,
    rules: Collection[str] = tuple(RULES),
    protocol: Protocol = "leak_free",
) -> Score:
    """Score an episode, among the attempts with the right function; without one it is 0 in both."""
    if trajectory.end in ("refused", "error") and REFUSED not in rules:
        return Score(0.0, 0.0)
    scores = score_calls(shop, task, trajectory, rules, protocol)
    results = [score.result for score in scores if score.function]
    if not results:
        return Score(0.0, 0.0)
    return Score(1.0, max(results) if BEST in rules else results[-1])


def score_rules(
    shop: Shop, tasks: Sequence[Task], runs: Mapping[str, Sequence[Episode]], protocol: Protocol = "leak_free"
) -> pd.DataFrame:
    """Score the same episodes by our rules, with each published rule alone, and with all of them.

    Args:
        runs: of the tasks, in their order; all are averaged together.

    Returns:
        A row each: ``rule``, mean function and result accuracy, how many ``episodes`` it changes, and what it
        ``says``.
    """
    played = [
        (task, record.trajectory)
        for records in runs.values()
        for task, record in zip(tasks, records, strict=True)
        if record.trajectory
    ]
    # One by one, so that what a rule changes does not depend on the others.
    ways = {"ours": (), **{rule: (rule,) for rule in RULES}, "all, as the published code": tuple(RULES)}
    scores = {
        name: np.array([score_episode(shop, *each, rules, protocol) for each in played])
        for name, rules in ways.items()
    }
    rows = [
        (name, *score.mean(axis=0), (score != scores["ours"]).any(axis=1).sum(), RULES.get(name, ""))
        for name, score in scores.items()
        if played
    ]
    columns = ["rule", "function accuracy", "result accuracy", "episodes", "says"]
    return pd.DataFrame(rows, columns=columns)


def export_results(
    shop: Shop,
    tasks: Sequence[Task],
    records: Sequence[Episode],
    make_agent: Callable[[Episode], Any] | None,
    path: Path | str,
    *,
    track: Track = "multi_turn",
    protocol: Protocol = "leak_free",
    arguments: Mapping[str, Any] = {},
) -> Path:
    """Write a run as the file that the published ``run.py`` writes, which its scorer reads.

    First its arguments, cost and statistics, then results: each holds the number of the test task, both
    accuracies of each call, the task and the actions, tokens of each call, the conversation, the trial.
    Episodes that were not scored are left out.

    Args:
        records: of the tasks, in their order, one trial after the other.
        make_agent: episode -> the prompting method that played it, for its ``messages``; None for any other
            agent, of which the conversation is the task, its calls and what came back.
        arguments: of ``run.py``, which do not follow from the others.
    """
    results, scored = [], []
    numbers = {task.task_id: number for number, task in enumerate(shop.benchmark.tasks["test"])}
    n_trials = len(records) // max(1, len(tasks))
    for place, (task, record) in enumerate(zip([*tasks] * n_trials, records, strict=True)):
        if not (played := record.trajectory):
            continue
        scores = score_calls(shop, task, played, protocol=protocol)
        state = Environment(shop, task, track, protocol).state
        talk = [user(state.observation), *(x for i in enumerate(played.steps) for x in call_messages(*i))]
        if make_agent:
            talk = make_agent(record).messages(replace(state, session=played.steps))
        best = max((score for score in scores if score.function), default=Score(0.0, 0.0))
        scored.append((task.type, len(played.steps), *best))
        result = {
            "task_id": numbers[task.task_id],
            "action_acc": [int(score.function) for score in scores],
            "res_acc": [score.result for score in scores],
            "info": _info(task, played),
            "traj": talk,
            "trial": place // len(tasks),
        }
        results.append(result)
    steps, mode = (-1, "no") if track == "single_turn" else (MAX_STEPS, "naive")
    known = {"env": "pwab", "task_split": "test", "start_index": 0, "end_index": -1, "num_trials": n_trials}
    known |= {"max_steps": steps, "user_mode": mode, **arguments}
    first = {
        "run_args": dict.fromkeys(ARGUMENTS.split()) | known,
        "total cost": sum(each["info"]["usage"]["total_price"] for each in results),
        "results": _statistics(scored),
    }
    write_aside(Path(path), json.dumps([first, *results], indent=2))
    return Path(path)


def _statistics(scored: Sequence[tuple]) -> dict[str, dict[str, float]]:
    """Return what the published ``calculate_statistics`` does of (type, steps, function, result), by type."""
    statistics, names = {}, ("avg_interaction_times", "avg_action_acc", "avg_res_acc")
    for name in (*TASK_TYPES, "overall"):
        rows = [numbers for kind, *numbers in scored if name in (kind, "overall")]
        means = np.mean(rows or [[0.0, 0.0, 0.0]], axis=0).tolist()
        statistics[name] = {"total_count": len(rows), **dict(zip(names, means, strict=True))}
    return statistics


def _info(task: Task, played: Trajectory) -> dict[str, Any]:
    """Return what the published environment and agents report of an episode."""
    facts = {"user_id": task.user_id, "task": task.instruction, "type": task.type}
    calls = [step.action for step in played.steps]
    tokens = {
        name: [getattr(action.usage, name, 0) for action in calls]
        for name in ("completion_tokens", "prompt_tokens")
    }
    total = [sum(pair) for pair in zip(*tokens.values(), strict=True)]
    return {
        "task": facts | {"timestamp": task.timestamp, "target": task.target},
        "actions": [
            {"name": action.name, "arguments": action.arguments}
            for action in calls
            if action.name != "respond"
        ],
        "user_cost": sum(step.user_usage.usd for step in played.steps if step.user_usage),
        "usage": {**tokens, "total_tokens": total, "total_price": played.usage.usd},
    }


def _score_malformed(
    shop: Shop, task: Task, action: Action, rules: Collection[str], protocol: Protocol
) -> Score:
    """Score a call that our functions refuse; 0 where the published function itself fails."""
    argument = action.arguments.get(PARAMETER[task.type])
    if action.problem or action.name != FUNCTION_OF[task.type] or len(action.arguments) != 1:
        return Score(0.0, 0.0)
    if not isinstance(argument, str | list if task.type == "recommend" else str):
        return Score(0.0, 0.0)
    if task.type == "review":
        cosine = shop.embedder.cosine(argument or "No review provided.", task.review.text)
        return Score(1.0, _cosine(cosine, rules))
    if task.type == "search":
        products = [asin for asin, _ in shop.search_engine.search(argument, RESULTS)]
    else:  # of a text, its letters
        ids = [each for each in argument if isinstance(each, str)]
        products = shop.recommender(task, protocol).recommend(ids, RESULTS)
    return Score(1.0, _rank(shop, task, products, rules))


def _cosine(cosine: float, rules: Collection[str]) -> float:
    return cosine if NEGATIVE in rules else min(max(cosine, 0.0), 1.0)


def _rank(shop: Shop, task: Task, products: Sequence[str], rules: Collection[str]) -> float:
    """Score a list of results."""
    if TEXTS in rules:
        texts = [product_text(shop.benchmark.products[asin]) for asin in products]
        products = [task.target if task.target in text else "" for text in texts]
    if NUMBER in rules:
        return 1 - products.index(task.target) / len(products) if task.target in products else 0.0
    return rank_accuracy(products, task.target)
