"""Preference pairs for PUMA's DPO (PersonalWAB, 5.2): sampled parameters, scored by what they achieve.

For each train task the fine-tuned model writes several parameters at a high temperature. Each is carried
out in the web environment; the best and the worst result make a pair. Where all do equally well there is
nothing to prefer.

Departure: the paper samples with temperature 1.5 and a beam of 10 at once. Here as many independent samples
are drawn as the beam is wide: members of a beam resemble each other, and any model that answers will do.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pwagents.agents.replies import read_turn
from pwagents.embedding import Embedder
from pwagents.evaluation.metrics import attempts
from pwagents.llm.chat import ChatModel, Message, Reply, Request, ask_all
from pwagents.lm.tokens import for_template
from pwagents.progress import progress
from pwagents.puma.agent import (
    REVIEW,
    call_message,
    ids_for_numbers,
    numbers_for_ids,
    parameter_tools,
)
from pwagents.puma.labels import PumaTask
from pwagents.puma.settings import PreferenceSettings
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import Action


class Candidate(NamedTuple):
    """Sampled parameters, and the result accuracy (0 to 1) that they reach on their task."""

    arguments: dict[str, Any]
    score: float


class Pair(NamedTuple):
    """The best and the worst candidate of a task, whose scores differ."""

    item: PumaTask
    best: Candidate
    worst: Candidate

    def conversation(self, candidate: Candidate) -> list[Message]:
        """The task's input, answered with the candidate."""
        told = numbers_for_ids(candidate.arguments, self.item.entries)
        return [*self.item.messages, call_message(self.item.function, told)]


def sample_parameters(
    model: ChatModel, items: Sequence[PumaTask], config: PreferenceSettings, max_tokens: int
) -> list[list[dict[str, Any]]]:
    """For each task the distinct parameters that the model wrote, in the order of their first sample.

    Replies that hold no call of the task's function are left out: a pair compares parameters.

    Args:
        max_tokens: of a call.
    """
    n = config.candidates
    sampling = {"temperature": config.temperature, "max_tokens": max_tokens, "seed": config.seed}
    requests = [
        Request(
            messages=tuple(item.messages),
            tools=parameter_tools(item.function),
            sampling=sampling,
            sample=sample,
        )
        for item in items
        for sample in range(n)
    ]
    replies = ask_all(model, requests, "sample parameters")
    return [_distinct(item, replies[i * n : (i + 1) * n]) for i, item in enumerate(items)]


def _distinct(item: PumaTask, replies: Sequence[Reply | None]) -> list[dict[str, Any]]:
    actions = [read_turn(reply) for reply in replies if reply]
    called = [
        ids_for_numbers(a.arguments, item.entries)
        for a in actions
        if not a.problem and a.name == item.function
    ]
    return list({json.dumps(arguments): arguments for arguments in called}.values())


def score_parameters(
    items: Sequence[PumaTask],
    sampled: Sequence[Sequence[dict[str, Any]]],
    start: StartEpisode,
    embedder: Embedder,
) -> list[list[Candidate]]:
    """Carry out all parameters, each in an episode of its own; those that are malformed are left out.

    Args:
        embedder: the shop's; the sampled reviews are embedded in one go.
    """
    reviews = [
        arguments.get("review")
        for item, many in zip(items, sampled, strict=True)
        for arguments in many
        if item.function == REVIEW
    ]
    embedder.encode(sorted({text for text in reviews if isinstance(text, str)}), show_progress=True)
    bar = progress(zip(items, sampled, strict=True), total=len(items), desc="score parameters", unit="task")
    return [_carry_out(item, many, start) for item, many in bar]


def _carry_out(item: PumaTask, sampled: Sequence[dict], start: StartEpisode) -> list[Candidate]:
    candidates = []
    for arguments in sampled:
        environment = start(item.task)
        environment.step(Action(name=item.function, arguments=arguments))
        candidates += [Candidate(arguments, result) for result in attempts(environment.trajectory)]
    return candidates


def make_pairs(
    items: Sequence[PumaTask], candidates: Sequence[Sequence[Candidate]]
) -> tuple[list[Pair], Counter]:
    """Best and worst candidate of each task; of equally good ones the first sampled.

    Returns:
        The pairs, and counts of tasks by ``(type, outcome)``. The outcomes are "pair"; "equal", all
        candidates do equally well (one candidate, too); "no call", nothing well-formed was sampled.
    """
    pairs, counts = [], Counter()
    for item, many in zip(items, candidates, strict=True):
        if not many:
            outcome = "no call"
        else:
            best = max(many, key=lambda candidate: candidate.score)
            worst = min(many, key=lambda candidate: candidate.score)
            outcome = "pair" if best.score > worst.score else "equal"
            if outcome == "pair":
                pairs.append(Pair(item, best, worst))
        counts[item.task.type, outcome] += 1
    return pairs, counts


def pair_rows(tokenizer: Any, pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """Return the pairs as plain texts in the model's chat template (:func:`pwagents.lm.dpo.prefer`)."""
    rows = []
    for pair in pairs:
        tools = parameter_tools(pair.item.function)

        def told(messages: list[Message], goes_on: bool = False, tools=tools) -> str:
            return tokenizer.apply_chat_template(
                for_template(tokenizer, messages), tools=tools, tokenize=False, add_generation_prompt=goes_on
            )

        prompt = told(pair.item.messages, goes_on=True)
        answers = [told(pair.conversation(each))[len(prompt) :] for each in (pair.best, pair.worst)]
        chosen, rejected = (answer.partition(tokenizer.eos_token)[0] for answer in answers)
        rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return rows
