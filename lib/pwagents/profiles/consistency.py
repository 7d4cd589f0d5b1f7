"""How well profiles agree with what their users do: PersonalWAB's consistency evaluation (4.2, A.1).

Two tasks, as in the paper. *Behavior*: whose profile is it? Five users, told by their behaviours, one of them
the profile's; top-1 accuracy. *Product*: what suits it? Ten products, three of them the user's own, put in
order; NDCG@5 and Recall@5.

Departure: the paper's behaviours and products are those that its profiles were made of. Ours are held out
(``leak_free``): profiles know what lies before the user's first test task, behaviours and products lie after
it, and no product is one that the user had bought before. ``as_published`` does as the paper does.

A profile is one text or several, so that profiles of every make can be compared
(:mod:`pwagents.profiles.texts`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.clusters import item_text
from pwagents.profiles.texts import Texts
from pwagents.schema import Behavior, Benchmark, Product, Protocol
from pwagents.seeds import rng

Kind = Literal["behavior", "product"]
History = Sequence[Behavior]  # oldest first

OTHERS = 4  # users beside the right one (A.1)
POSITIVES, NEGATIVES = 3, 7  # products of a trial (A.1)
TOP = 5
TOP1, NDCG, RECALL = "profile-behavior top-1", f"profile-product NDCG@{TOP}", f"profile-product Recall@{TOP}"
_GAINS = 1 / np.log2(np.arange(2, TOP + 2))  # of a hit at rank 1, 2, ...
_SAMPLING = {"temperature": 0.0, "max_tokens": 100}
_NUMBERS = re.compile(r"[\d\s,;.>()\[\]]+")  # a reply of numbers alone
_ROLE = f"You are given the profile of a customer of an online shop. {FENCE_NOTE}"
_QUESTIONS: dict[Kind, str] = {
    "behavior": "Each of the numbered customers is told by what they bought and wrote. Whom does the profile "
    "describe? Reply with the one number alone.",
    "product": "Put the numbered products in order, from the one that this customer is most likely to buy to "
    "the one least likely. Reply with all the numbers, separated by commas, and nothing else.",
}


class Trial(NamedTuple):
    """One question about one user's profile.

    Args:
        names: user ids, or product ids, in random order.
        candidates: the texts of each: a user's behaviours, or the one text of a product.
        truth: which of them are the user's.
    """

    user_id: str
    kind: Kind
    names: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    truth: tuple[bool, ...]


def make_trials(benchmark: Benchmark, seed: int, protocol: Protocol = "leak_free") -> tuple[Trial, ...]:
    """A behavior and a product trial for each user whose behaviours allow it; none of fewer than five users.

    A behavior trial needs something held out, a product trial three different products held out. Negatives
    are drawn for each user: other such users, and products of the catalogue that the user never bought.
    """
    products, trials = benchmark.products, []
    held = {user: _held_out(benchmark, user, protocol) for user in benchmark.behaviors}
    texts = {
        user: tuple(_told(b, products[b.parent_asin]) for b in history)
        for user, history in held.items()
        if history
    }
    if len(texts) <= OTHERS:
        return ()
    for user in texts:
        generator = rng(seed, "consistency", user)
        others = _draw([other for other in texts if other != user], OTHERS, generator)
        trials.append(_trial(user, "behavior", [user], others, texts, generator))
        own = _own_products(benchmark, user, held[user], protocol)
        bought = {b.parent_asin for b in benchmark.behaviors[user]}
        foreign = [asin for asin in products if asin not in bought]
        if len(own) >= POSITIVES and len(foreign) >= NEGATIVES:
            own, foreign = _draw(own, POSITIVES, generator), _draw(foreign, NEGATIVES, generator)
            shown = {asin: (item_text(products[asin]),) for asin in [*own, *foreign]}
            trials.append(_trial(user, "product", own, foreign, shown, generator))
    return tuple(trials)


def consistency_by_embedding(
    profiles: Mapping[str, Texts], trials: Sequence[Trial], embedder: Embedder
) -> pd.DataFrame:
    """The trials answered by MiniLM cosine.

    A text agrees with a profile as well as with the profile's nearest text; a candidate, as well as its texts
    do on average. Ties fall as the candidates were shuffled.

    Args:
        profiles: name of the method -> its profiles, of each user on trial.

    Returns:
        One row a method, trial and measure: ``method, judge, evaluation, task_id, user_id, value,
        malformed``, for :func:`pwagents.evaluation.statistics.summarise` by method, judge and evaluation.

    Raises:
        ValueError: a method has no profile of a user on trial.
    """
    _require_texts(profiles, trials)
    texts = {text: None for trial in trials for candidate in trial.candidates for text in candidate}
    texts |= {text: None for made in profiles.values() for trial in trials for text in made[trial.user_id]}
    row = {text: i for i, text in enumerate(texts)}
    vectors = embedder.encode(list(texts), show_progress=True)
    rows = []
    for method, made in profiles.items():
        for trial in trials:
            profile = vectors[[row[text] for text in made[trial.user_id]]]
            agreement = [
                (vectors[[row[text] for text in candidate]] @ profile.T).max(axis=1).mean()
                for candidate in trial.candidates
            ]
            order = np.argsort(-np.round(agreement, 6), kind="stable").tolist()
            rows += _rows(method, "embedding", trial, order)
    return pd.DataFrame(rows)


def consistency_by_model(
    profiles: Mapping[str, Texts], trials: Sequence[Trial], model: ChatModel
) -> pd.DataFrame:
    """The trials answered by a language model, as in the paper.

    A reply that is not the number of a candidate, or not an order of all of them, is ``malformed`` and scores
    0. What the model refuses to read has no value.

    Args and returns as :func:`consistency_by_embedding`; ``judge`` is the model's name.
    """
    _require_texts(profiles, trials)
    rows = []
    for method, made in profiles.items():
        requests = [_request(made[trial.user_id], trial) for trial in trials]
        for trial, reply in zip(trials, ask_all(model, requests, f"judge: {method}"), strict=True):
            order = None if reply is None else read_order(reply.text, trial)
            rows += _rows(method, model.name, trial, order, refused=reply is None)
    return pd.DataFrame(rows)


def chance() -> dict[str, float]:
    """What a random order scores on average, by evaluation."""
    n = POSITIVES + NEGATIVES
    ndcg = POSITIVES / n * _GAINS.sum() / _GAINS[:POSITIVES].sum()
    return {TOP1: 1 / (1 + OTHERS), NDCG: float(ndcg), RECALL: TOP / n}


def read_order(reply: str, trial: Trial) -> list[int] | None:
    """The candidates that a model names, best first; None for a malformed reply.

    A behavior trial takes one number, a product trial each number once.
    """
    if not _NUMBERS.fullmatch(reply):
        return None
    place = {str(i + 1): i for i in range(len(trial.names))}
    order = [place.get(number, -1) for number in re.findall(r"\d+", reply)]
    if trial.kind == "behavior":
        return order if len(order) == 1 and order[0] >= 0 else None
    return order if sorted(order) == sorted(place.values()) else None


def _held_out(benchmark: Benchmark, user: str, protocol: Protocol) -> tuple[Behavior, ...]:
    """The behaviours that a user is told by."""
    behaviors = benchmark.behaviors[user]
    return behaviors if protocol == "as_published" else behaviors[len(benchmark.train_period(user)) :]


def _own_products(benchmark: Benchmark, user: str, held: History, protocol: Protocol) -> list[str]:
    """What the user bought and, where it is held out, had not bought before; each product once."""
    before = () if protocol == "as_published" else benchmark.train_period(user)
    known = {b.parent_asin for b in before}
    return list(dict.fromkeys(b.parent_asin for b in held if b.parent_asin not in known))


def _trial(
    user: str,
    kind: Kind,
    own: Sequence[str],
    others: Sequence[str],
    texts: Mapping[str, tuple[str, ...]],
    generator: np.random.Generator,
) -> Trial:
    """The trial with ``own`` and ``others`` shuffled together."""
    names = _draw([*own, *others], len(own) + len(others), generator)
    return Trial(user, kind, tuple(names), tuple(texts[n] for n in names), tuple(n in own for n in names))


def _draw(options: Sequence[str], n: int, generator: np.random.Generator) -> list[str]:
    return [options[i] for i in generator.choice(len(options), n, replace=False)]


def _require_texts(profiles: Mapping[str, Texts], trials: Sequence[Trial]) -> None:
    """Do nothing where every method has a profile of every user on trial; else raise ValueError."""
    for method, made in profiles.items():
        for trial in trials:
            if not made.get(trial.user_id):
                raise ValueError(f"profiles {method!r} have no text for user {trial.user_id}")


def _rows(
    method: str, judge: str, trial: Trial, order: list[int] | None, refused: bool = False
) -> list[dict]:
    """The measures of one answer: whether the first is right, or NDCG (binary gains) and recall of the first
    five. ``order`` None is a malformed answer."""
    hits = np.array([trial.truth[i] for i in order or ()][:TOP], dtype=float)
    if trial.kind == "behavior":
        values = {TOP1: float(hits[:1].sum())}
    else:
        best = _GAINS[: sum(trial.truth)].sum()
        values = {
            NDCG: float(hits @ _GAINS[: len(hits)] / best),
            RECALL: float(hits.sum() / sum(trial.truth)),
        }
    place = {"method": method, "judge": judge}
    task = {"task_id": f"{trial.user_id}-{trial.kind}", "user_id": trial.user_id}
    malformed = order is None and not refused
    return [
        {**place, "evaluation": name, **task, "value": np.nan if refused else value, "malformed": malformed}
        for name, value in values.items()
    ]


def _request(profile: Sequence[str], trial: Trial) -> Request:
    described = "\n".join(profile)
    numbered = "\n".join(f"{i}. " + "\n".join(texts) for i, texts in enumerate(trial.candidates, start=1))
    told = f"The profile:\n{fence(described)}\n\nThe candidates:\n{fence(numbered)}"
    messages = (
        {"role": "system", "content": f"{_ROLE}\n\n{_QUESTIONS[trial.kind]}"},
        {"role": "user", "content": told},
    )
    return Request(messages=messages, sampling=_SAMPLING)


def _told(behavior: Behavior, product: Product) -> str:
    """What stands for a behaviour: the product and what the user thought of it."""
    return f"{item_text(product)} {behavior.review.rating:g} stars. {behavior.review.text}"
