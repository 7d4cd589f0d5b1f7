"""PUMA's trainings (PersonalWAB, 5.2), from labels to weights; each is made once and found again by its key.

    identifier = fine_tuned(study, "puma-function", function_rows(study), settings.identify)  # step 1
    writer = fine_tuned(study, "puma-sft", parameter_rows(study, method), settings.sft)       # step 2
    pairs = candidate_pairs(study, writer, method, settings.dpo)         # its own parameters, best and worst
    writer = preferred(study, writer, pair_rows(study, pairs, method), settings.dpo)          # DPO

For each train task the fine-tuned model samples a beam of parameters at a high temperature
(``generate_param_dpo.sh``: 10 beams, temperature 1.5). Each is carried out in the shop to learn in, and its
result accuracy goes into a dict by its text, so that equal texts count once (``test.py --evaluate_dpo``).
Every task makes a pair (``prepare_dpo_data.py``): the first of the best texts is chosen, the last of the
worst is rejected. Where all do equally well these are ties, and where all are one text it is both.

Departures from ``PUMA/scripts``: 1. bfloat16 in place of float16, whose loss has to be scaled; the merged
model that DPO starts from is rounded to it. 2. Fine-tuning: one GPU with 64 passes a step in place of four
with 16; DPO has 16 on one, where the script takes all GPUs that it finds. 3. A step weighs all learned tokens
alike (TRL), the script all examples. 4. A candidate is graded as everywhere here: a target at rank r is worth
1 - (r - 1) / 10, a review at least 0, a malformed call 0. 5. Leak-free, it is scored by a recommender that
has not seen the answers. 6. Candidates are prompted with the function that the task asks for;
``test_llama.py`` takes the one that step 1 named.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pandas as pd

from pwagents.code import hash_of
from pwagents.data.splits import sample_tasks
from pwagents.files import write_aside
from pwagents.llm.folder import ADAPTER
from pwagents.lm.complete import complete
from pwagents.lm.load import merge
from pwagents.lm.train import CODE as TRAINING
from pwagents.lm.train import evaluate_pairs, fine_tune, prefer
from pwagents.puma.agent import CODE as AGENT
from pwagents.puma.agent import read_parameter
from pwagents.puma.labels import Begun, completion_of
from pwagents.puma.memory import REVIEW, Method
from pwagents.schema import Action, Task
from pwagents.settings import PreferenceSettings, SftSettings, deciding
from pwagents.shop.environment import Environment
from pwagents.shop.score import attempts

if TYPE_CHECKING:
    from pwagents.puma.study import Study

# The modules that decide the samples of a trained model and their scores, for their key.
CODE = tuple(dict.fromkeys((*AGENT, *TRAINING, "data.splits", "shop.score", "puma.train")))
SCORES = "scores.json"
Row = dict[str, str]


class Trained(NamedTuple):
    """The models of one variant: of its two steps, and of step 2 before preferences."""

    identifier: Path
    writer: Path
    before_dpo: Path


class Pair(NamedTuple):
    """The chosen and the rejected text of a task, and the result accuracy (0 to 1) of both."""

    begun: Begun
    chosen: str
    rejected: str
    best: float
    worst: float

    @property
    def outcome(self) -> Literal["differs", "tie", "one text"]:
        """Say what the pair teaches: something, nothing sure, nothing at all."""
        if self.best > self.worst:
            return "differs"
        return "one text" if self.chosen == self.rejected else "tie"


def function_rows(study: "Study") -> list[Row]:
    """Write what step 1 learns: instruction -> function."""
    prompts = study.prompts
    return [
        {"prompt": prompts.identify(begun.state.instruction), "completion": begun.function}
        for begun in study.begun
    ]


def parameter_rows(study: "Study", method: Method) -> list[Row]:
    """Write the labels as prompts and completions; labels that a method cannot say are left out."""
    rows = []
    for begun, parameter in study.labels(method.labels)[0]:
        recall = study.recall(begun, method)
        completion = completion_of(parameter, recall, method)
        if completion.strip():
            prompt = study.prompts.parameter(begun.state, begun.function, recall)
            rows.append({"prompt": prompt, "completion": completion})
    return rows


def pair_rows(study: "Study", pairs: Sequence[Pair], method: Method) -> list[Row]:
    """Write pairs as TRL takes them; a review's prompt tells its product, as published."""
    return [
        {"prompt": study.prompt(pair.begun, method), "chosen": pair.chosen, "rejected": pair.rejected}
        for pair in pairs
    ]


def fine_tuned(
    study: "Study", name: str, rows: Sequence[Row], settings: SftSettings, pad_counts: bool = False
) -> Path:
    """Return the folder of the base model fine-tuned on rows (:func:`pwagents.lm.train.fine_tune`)."""
    facts = {"base": study.base_name, "rows": hash_of(rows), "settings": deciding(settings)}
    facts |= {"pad_counts": pad_counts, "code": TRAINING}
    make = partial(fine_tune, study.base, rows, settings, pad_counts=pad_counts)
    return study.made(name, facts, make)


def merged(study: "Study", writer: Path) -> Path:
    """Put an adapter into its base's weights: what DPO starts from, and its reference."""
    if not (writer / ADAPTER).exists():
        return writer
    facts = {"adapter": study.name_of(writer), "code": TRAINING}
    return study.made("puma-merged", facts, partial(merge, writer))


def carry_out(begun: Begun, action: Action, start: Callable[[Task], Environment]) -> float:
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


def candidate_pairs(
    study: "Study", writer: Path, method: Method, preferences: PreferenceSettings
) -> list[Pair]:
    """Sample a model's parameters for train tasks, score them in the shop to learn in, and pair them.

    Which tasks these are, the study's seed says: they are the same with every seed of the trainings.

    Args:
        writer: the folder of the fine-tuned model, by which the samples are found again.
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
    sampling |= {"batch_size": config.batch_size, "independent": preferences.independent}
    # vLLM takes no adapter with embeddings of its own.
    shop, whole = study.learning_shop, merged(study, writer)
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
    facts |= {"sampling": sampling, "code": CODE}
    facts |= {"data": study.worlds.learned.content_hash, "shop": study.settings.shop.model_dump()}
    facts |= {"protocol": protocol, "seed": study.seed, "read": shop.embedder.max_tokens}
    facts |= shop.facts(protocol)
    folder = study.made("puma-samples", facts, make)
    scores = json.loads((folder / SCORES).read_text("utf-8"))
    return [choose_pair(each, own) for each, own in zip(begun, scores, strict=True)]


def preferred(study: "Study", writer: Path, rows: Sequence[Row], preferences: PreferenceSettings) -> Path:
    """Train step 2 by DPO from the merged model, with a new adapter; without rows it stays as it is."""
    if not rows:
        return writer
    settings = preferences.training
    facts = {"writer": study.name_of(writer), "pairs": hash_of(rows), "settings": deciding(settings)}
    make = partial(prefer, merged(study, writer), rows, settings)
    return study.made("puma-dpo", facts | {"code": TRAINING}, make)


def choose_preferences(study: "Study", writer: Path, method: Method) -> tuple[str, pd.DataFrame]:
    """Choose among the settings of DPO by the same pairs of held-out train tasks.

    Args:
        writer: the fine-tuned model of step 2.

    Returns:
        The name of the setting that prefers the better text most often there (of equally good ones the
        first), and a table of all: pairs trained on and judged, accuracy and margin on the latter.
    """
    measured = []
    for name, preferences in study.settings.dpo.varied.items():
        learned, judges = split_pairs(candidate_pairs(study, writer, method, preferences), preferences)
        model = preferred(study, writer, pair_rows(study, learned, method), preferences)
        row = {"preferences": name, "pairs trained on": len(learned), "pairs judged": len(judges)}
        row |= {"accuracy": float("nan"), "margin": float("nan")}
        if judges and model != writer:
            on_judges = evaluate_pairs(model, pair_rows(study, judges, method), preferences.training)
            row |= {measure: on_judges[measure] for measure in ("accuracy", "margin")}
        measured.append(row)
    table = pd.DataFrame(measured)
    return table.loc[table["accuracy"].fillna(-1).idxmax(), "preferences"], table


def train(study: "Study", method: Method, preferences: str) -> Trained:
    """Train all that a variant needs; what was trained for another one is found again."""
    settings = study.settings
    identifier = fine_tuned(
        study, "puma-function", function_rows(study), settings.identify, settings.study.pad_counts
    )
    writer = study.base  # without fine-tuning
    if method.sft:
        rows = parameter_rows(study, method)
        writer = fine_tuned(study, "puma-sft", rows, settings.sft, method.pad_counts)
    if not method.dpo:
        return Trained(identifier, writer, writer)
    config = settings.dpo.varied[preferences]
    learned, _ = split_pairs(candidate_pairs(study, writer, method, config), config)
    return Trained(identifier, preferred(study, writer, pair_rows(study, learned, method), config), writer)
