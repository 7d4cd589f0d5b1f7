"""How well profiles agree with what their users do: PersonalWAB's consistency evaluation (4.2, A.1).

Two kinds of questions, as in the paper. *Behavior*: whose profile is it? Five users, described by their
behaviours, one of them the profile's; top-1 accuracy. *Product*: what suits it? Ten products, three of them
the user's own, put in order; NDCG@5 and Recall@5.

Departure: the paper's behaviours and products are those that its profiles were made of. Ours are held out:
profiles know what lies before the user's first test task, behaviours and products lie after it, and no
product is one that the user had bought before.

A profile is one text or several, so that profiles of every make can be compared; the functions
``describe_...`` write them.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.global_micro import item_text
from pwagents.profiles.types import UserProfiles
from pwagents.schema import Behavior, Benchmark, Product, UserProfile
from pwagents.seeds import rng
from pwagents.words import content_words

Kind = Literal["behavior", "product"]
Histories = Mapping[str, Sequence[Behavior]]  # user_id -> what a profile may know, oldest first
ProfileTexts = Mapping[str, Sequence[str]]  # user_id -> the texts of the profile

OTHERS = 4  # users beside the right one (A.1)
POSITIVES, NEGATIVES = 3, 7  # products of a question (A.1)
TOP = 5
TOP1, NDCG, RECALL = "profile-behavior top-1", f"profile-product NDCG@{TOP}", f"profile-product Recall@{TOP}"
_GAINS = 1 / np.log2(np.arange(2, TOP + 2))  # of a hit at rank 1, 2, ...
_KEYWORDS = 20
_MOST = {"categories": 3, "stores": 5, "words": 10}  # of an averaged profile
_SAMPLING = {"temperature": 0.0, "max_tokens": 100}
_NUMBERS = re.compile(r"[\d\s,;.>()\[\]]+")  # a reply of numbers alone
_ROLE = f"You are given the profile of a customer of an online shop. {FENCE_NOTE}"
_QUESTIONS: dict[Kind, str] = {
    "behavior": "Each of the numbered customers is told by what they bought and wrote. Whom does the profile "
    "describe? Reply with the one number alone.",
    "product": "Put the numbered products in order, from the one that this customer is most likely to buy to "
    "the one least likely. Reply with all the numbers, separated by commas, and nothing else.",
}


class Question(NamedTuple):
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


def describe_facts(profiles: Mapping[str, UserProfile]) -> ProfileTexts:
    """Write PersonalWAB's profiles: a text a fact."""
    return {
        user: [f"{name}: {value}" for name, value in profile.model_dump(by_alias=True).items()]
        for user, profile in profiles.items()
    }


def describe_profiles(profiles: Mapping[str, UserProfiles]) -> ProfileTexts:
    """Write Orion's profiles: a text a fact, one for the global preferences, one for each micro-profile.

    Without what is to be avoided: an embedding takes it for what is wanted.
    """
    facts = describe_facts({user: own.whole.facts for user, own in profiles.items()})
    texts = {}
    for user, own in profiles.items():
        whole = ["; ".join(own.whole.positive)] if own.whole.positive else []
        interests = zip(own.clusters, own.micro, strict=True)
        micro = [f"{cluster.name}: {'; '.join(profile.recommendations)}" for cluster, profile in interests]
        texts[user] = [*facts[user], *whole, *micro]
    return texts


def describe_history(histories: Histories, products: Mapping[str, Product]) -> ProfileTexts:
    """Write the raw history: each product bought is a text of its own."""
    return {
        user: [item_text(products[b.parent_asin]) for b in history] for user, history in histories.items()
    }


def describe_average(histories: Histories, products: Mapping[str, Product]) -> ProfileTexts:
    """Write a single profile over all interests: the categories, stores and title words bought most."""
    texts = {}
    for user, history in histories.items():
        bought = [products[b.parent_asin] for b in history]
        counts = {
            "categories": Counter(product.category for product in bought),
            "stores": Counter(product.store for product in bought if product.store),
            "words": Counter(word for product in bought for word in content_words(product.title)),
        }
        parts: list[str] = []
        for name, values in counts.items():
            parts += sorted(values, key=lambda value, n=values: (-n[value], value))[: _MOST[name]]
        texts[user] = [", ".join(parts)]
    return texts


def describe_keywords(histories: Histories) -> ProfileTexts:
    """Write the keywords (tf-idf) of each user's reviews. Show it as "Apollonion (stand-in)".

    PersonalWAB compares with the profile generator of Apollonion, an agent that profiles its users from what
    they say in a dialogue, and describes it no further. Reviews are what comes nearest to a dialogue here.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    def review_words(history: Sequence[Behavior]) -> list[str]:
        words = [w for b in history for w in content_words(f"{b.review.title}. {b.review.text}")]
        return words or ["-"]

    vectorizer = TfidfVectorizer(analyzer=review_words)
    weights = vectorizer.fit_transform(histories.values())
    weights.sort_indices()  # alphabetical order, which settles ties
    words = vectorizer.get_feature_names_out()
    texts = {}
    for user, row in zip(histories, weights, strict=True):
        best = np.argsort(-np.round(row.data, 9), kind="stable")[:_KEYWORDS]
        texts[user] = [", ".join(words[row.indices[best]])]
    return texts


def make_questions(benchmark: Benchmark, seed: int) -> tuple[Question, ...]:
    """Make a behavior and a product question for each user whose behaviours allow it.

    A behavior question needs something held out, a product question three different products held out.
    Negatives are drawn for each user: other such users, and products of the catalogue that the user never
    bought. Fewer than five users make no question.
    """
    products, questions = benchmark.products, []
    known = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    held_out = {user: every[len(known[user]) :] for user, every in benchmark.behaviors.items()}
    texts = {
        user: tuple(
            f"{item_text(products[b.parent_asin])} {b.review.rating:g} stars. {b.review.text}"
            for b in history
        )
        for user, history in held_out.items()
        if history
    }
    if len(texts) <= OTHERS:
        return ()
    for user in texts:
        generator = rng(seed, "consistency", user)
        others = _draw([other for other in texts if other != user], OTHERS, generator)
        questions.append(_question(user, "behavior", [user], others, texts, generator))
        # Each product once, and none that the profile may have been made of.
        before = {b.parent_asin for b in known[user]}
        own = list(dict.fromkeys(b.parent_asin for b in held_out[user] if b.parent_asin not in before))
        bought = {b.parent_asin for b in benchmark.behaviors[user]}
        foreign = [asin for asin in products if asin not in bought]
        if len(own) >= POSITIVES and len(foreign) >= NEGATIVES:
            own, foreign = _draw(own, POSITIVES, generator), _draw(foreign, NEGATIVES, generator)
            pages = {asin: (item_text(products[asin]),) for asin in [*own, *foreign]}
            questions.append(_question(user, "product", own, foreign, pages, generator))
    return tuple(questions)


def judge_by_embedding(
    profiles: Mapping[str, ProfileTexts], questions: Sequence[Question], embedder: Embedder
) -> pd.DataFrame:
    """Answer the questions by MiniLM cosine.

    A text agrees with a profile as well as with the profile's nearest text; a candidate, as well as its texts
    do on average. Ties fall as the candidates were shuffled.

    Args:
        profiles: name of the method -> its profiles, of each user asked about.

    Returns:
        One row a method, question and measure: ``method, judge, evaluation, task_id, user_id, value,
        malformed``, for :func:`pwagents.evaluation.statistics.summarise` by method, judge and evaluation.

    Raises:
        ValueError: a method has no profile of a user asked about.
    """
    _require_texts(profiles, questions)
    texts = {text: None for each in questions for candidate in each.candidates for text in candidate}
    texts |= {text: None for made in profiles.values() for each in questions for text in made[each.user_id]}
    place = {text: i for i, text in enumerate(texts)}
    vectors = embedder.encode(list(texts), show_progress=True)
    rows = []
    for method, made in profiles.items():
        for question in questions:
            profile = vectors[[place[text] for text in made[question.user_id]]]
            agreement = [
                (vectors[[place[text] for text in candidate]] @ profile.T).max(axis=1).mean()
                for candidate in question.candidates
            ]
            order = np.argsort(-np.round(agreement, 6), kind="stable").tolist()
            rows += _score(method, "embedding", question, order)
    return pd.DataFrame(rows)


def judge_by_model(
    profiles: Mapping[str, ProfileTexts], questions: Sequence[Question], model: ChatModel
) -> pd.DataFrame:
    """Let a language model answer the questions, as in the paper.

    A reply that is not the number of a candidate, or not an order of all of them, is ``malformed`` and scores
    0. What the model refuses to read has no value.

    Args and returns as :func:`judge_by_embedding`; ``judge`` is the model's name.
    """
    _require_texts(profiles, questions)
    rows = []
    for method, made in profiles.items():
        requests = [_request(made[question.user_id], question) for question in questions]
        for question, reply in zip(questions, ask_all(model, requests, f"judge: {method}"), strict=True):
            order = None if reply is None else read_order(reply.text, question)
            rows += _score(method, model.name, question, order, is_refused=reply is None)
    return pd.DataFrame(rows)


def chance() -> dict[str, float]:
    """What a random order scores on average, by evaluation."""
    n = POSITIVES + NEGATIVES
    ndcg = POSITIVES / n * _GAINS.sum() / _GAINS[:POSITIVES].sum()
    return {TOP1: 1 / (1 + OTHERS), NDCG: float(ndcg), RECALL: TOP / n}


def read_order(reply: str, question: Question) -> list[int] | None:
    """Read the candidates that a model names, best first; None for a malformed reply.

    A behavior question takes one number, a product question each number once.
    """
    if not _NUMBERS.fullmatch(reply):
        return None
    place = {str(i + 1): i for i in range(len(question.names))}
    order = [place.get(number, -1) for number in re.findall(r"\d+", reply)]
    if question.kind == "behavior":
        return order if len(order) == 1 and order[0] >= 0 else None
    return order if sorted(order) == sorted(place.values()) else None


def _describe(behavior: Behavior, product: Product) -> str:
    """What stands for a behaviour: the product and what the user thought of it."""
    return f"{item_text(product)} {behavior.review.rating:g} stars. {behavior.review.text}"


def _question(
    user: str,
    kind: Kind,
    own: Sequence[str],
    others: Sequence[str],
    texts: Mapping[str, tuple[str, ...]],
    generator: np.random.Generator,
) -> Question:
    """The question with ``own`` and ``others`` shuffled together."""
    names = _draw([*own, *others], len(own) + len(others), generator)
    return Question(user, kind, tuple(names), tuple(texts[n] for n in names), tuple(n in own for n in names))


def _draw(options: Sequence[str], n: int, generator: np.random.Generator) -> list[str]:
    return [options[i] for i in generator.choice(len(options), n, replace=False)]


def _require_texts(profiles: Mapping[str, ProfileTexts], questions: Sequence[Question]) -> None:
    """Raise ValueError unless every method has a profile of every user asked about."""
    for method, made in profiles.items():
        for question in questions:
            if not made.get(question.user_id):
                raise ValueError(f"profiles {method!r} have no text for user {question.user_id}")


def _score(
    method: str, judge: str, question: Question, order: list[int] | None, is_refused: bool = False
) -> list[dict]:
    """The measures of one answer: whether the first is right, or NDCG (binary gains) and recall of the first
    five. ``order`` None is a malformed answer."""
    hits = np.array([question.truth[i] for i in order or ()][:TOP], dtype=float)
    if question.kind == "behavior":
        values = {TOP1: float(hits[:1].sum())}
    else:
        best = _GAINS[: sum(question.truth)].sum()
        values = {
            NDCG: float(hits @ _GAINS[: len(hits)] / best),
            RECALL: float(hits.sum() / sum(question.truth)),
        }
    task = {"task_id": f"{question.user_id}-{question.kind}", "user_id": question.user_id}
    malformed = order is None and not is_refused
    return [
        {"method": method, "judge": judge, "evaluation": name, **task}
        | {"value": np.nan if is_refused else value, "malformed": malformed}
        for name, value in values.items()
    ]


def _request(profile: Sequence[str], question: Question) -> Request:
    numbered = "\n".join(f"{i}. " + "\n".join(texts) for i, texts in enumerate(question.candidates, start=1))
    content = f"The profile:\n{fence(chr(10).join(profile))}\n\nThe candidates:\n{fence(numbered)}"
    messages = (
        {"role": "system", "content": f"{_ROLE}\n\n{_QUESTIONS[question.kind]}"},
        {"role": "user", "content": content},
    )
    return Request(messages=messages, sampling=_SAMPLING)
