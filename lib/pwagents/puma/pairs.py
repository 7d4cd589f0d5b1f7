"""Preferences that PUMA learns from: pairs of its own parameters, scored in the shop (PersonalWAB, 5.2).

For each train task the fine-tuned model samples a beam of parameters at a high temperature
(``generate_param_dpo.sh``: 10 beams, temperature 1.5). Each is carried out in the shop to learn in, and its
result accuracy goes into a dict by its text, so that equal texts count once (``test.py --evaluate_dpo``).
Every task makes a pair (``prepare_dpo_data.py``): the first of the best texts is chosen, the last of the
worst is rejected. Where all do equally well these are ties, and where all are one text it is both.

Departures: 1. A candidate is graded as everywhere here: a target at rank r is worth 1 - (r - 1) / 10, a
review at least 0, a malformed call 0. 2. Leak-free, it is scored by a recommender that has not seen the
answers. 3. Candidates are prompted with the function that the task asks for; ``test_llama.py`` takes the one
that step 1 named.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pwagents.code import hash_of
from pwagents.data.splits import sample_tasks
from pwagents.files import write_aside
from pwagents.lm.complete import complete, draws_alone
from pwagents.puma.agent import CODE as AGENT
from pwagents.puma.agent import read_parameter
from pwagents.puma.labels import Begun, StartEpisode
from pwagents.puma.memory import REVIEW
from pwagents.puma.methods import Method
from pwagents.schema import Action
from pwagents.settings import PreferenceSettings
from pwagents.shop.environment import Environment
from pwagents.shop.score import attempts

if TYPE_CHECKING:
    from pwagents.puma.study import Study

CODE = (*AGENT, "data.splits", "shop.score", "puma.pairs")
SCORES = "scores.json"
PairOutcome = Literal["differs", "tie", "one text"]  # of a pair: what it teaches


class Pair(NamedTuple):
    """The chosen and the rejected text of a task, and the result accuracy (0 to 1) of both."""

    begun: Begun
    chosen: str
    rejected: str
    best: float
    worst: float

    @property
    def outcome(self) -> PairOutcome:
        """Say what the pair teaches: something, nothing sure, nothing at all."""
        if self.best > self.worst:
            return "differs"
        return "one text" if self.chosen == self.rejected else "tie"


def carry_out(begun: Begun, action: Action, start: StartEpisode) -> float:
    """Return the result accuracy of one call in an episode of its own; a malformed one is worth 0."""
    environment = start(begun.task)
    environment.step(action)
    return max(attempts(environment.trajectory), default=0.0)


def choose_pair(begun: Begun, scores: Mapping[str, float]) -> Pair:
    """Take the first of the best and the last of the worst texts.

    Args:
        scores: text -> result accuracy, in the order of the beam.
    """
    chosen, rejected = max(scores, key=scores.get), min(reversed(scores), key=scores.get)
    return Pair(begun, chosen, rejected, scores[chosen], scores[rejected])


def split_pairs(pairs: Sequence[Pair], preferences: PreferenceSettings) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into those to train on and those to judge by, which are the same for all settings.

    The last share of the tasks is held out. If none is, all pairs are for both. A pair whose texts do equally
    well says nothing about a preference, so it judges nothing.
    """
    n = round(len(pairs) * (1 - preferences.held_out))
    learned, held_out = pairs[:n], pairs[n:] if preferences.held_out else pairs
    differing = [pair for pair in learned if pair.outcome == "differs"]
    judges = [pair for pair in held_out if pair.outcome == "differs"]
    return list(learned) if preferences.pairs == "every_task" else differing, judges


def sample_pairs(
    study: "Study", writer: Path, whole: Path, method: Method, preferences: PreferenceSettings
) -> list[Pair]:
    """Sample a model's parameters for train tasks, score them in the shop to learn in, and pair them.

    Which tasks these are, the study's seed says: they are the same with every seed of the trainings.

    Args:
        writer: the folder of the fine-tuned model, by which the samples are found again.
        whole: the folder of the same model without an adapter, of which DPO starts: vLLM takes no adapter
            with embeddings of its own.
    """
    config, protocol = study.settings.study, study.protocol
    begun = sample_tasks(study.begun, preferences.train_tasks, study.seed)
    # test_llama.py, which samples, leaves out the product of a review.
    told, recalls = protocol == "leak_free", [study.recall(each, method) for each in begun]
    prompts = [
        study.prompts.parameter(each.state, each.function, recall, with_product=told)
        for each, recall in zip(begun, recalls, strict=True)
    ]
    sampling = {"temperature": preferences.temperature, "beams": preferences.candidates}
    sampling |= {"seed": preferences.seed, "max_new_tokens": config.max_new_tokens}
    sampling["batch_size"] = config.batch_size
    shop = study.learning_shop
    start = partial(Environment, shop, protocol=protocol, split="train")

    def make(folder: Path) -> None:
        store = folder / "completions.jsonl"
        sampled = complete(whole, prompts, store=store, **sampling)
        beams = [*zip(begun, recalls, sampled, strict=True)]
        reviews = {text for each, _, texts in beams if each.function == REVIEW for text in texts}
        shop.embedder.encode(sorted(reviews), show_progress=True)  # in one go
        scores = []
        for each, recall, texts in beams:
            read = partial(read_parameter, recall=recall, method=method, protocol=protocol)
            calls = {text: read(each.function, text) for text in map(str.strip, texts)}  # equal ones once
            scores.append({text: carry_out(each, call, start) for text, call in calls.items()})
        write_aside(folder / SCORES, json.dumps(scores))

    facts = {"writer": study.name_of(writer), "prompts": hash_of(prompts), "ids": method.ids}
    facts |= {"sampling": sampling, "independent": draws_alone(), "code": CODE}
    facts |= {"data": study.worlds.learned.content_hash, "shop": study.settings.shop.model_dump()}
    facts |= {"protocol": protocol, "seed": study.seed, "read": shop.embedder.max_tokens}
    facts |= shop.facts(protocol)
    folder = study.made("puma-samples", facts, make)
    scores = json.loads((folder / SCORES).read_text("utf-8"))
    return [choose_pair(each, own) for each, own in zip(begun, scores, strict=True)]
