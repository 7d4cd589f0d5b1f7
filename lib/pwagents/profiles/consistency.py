"""How well profiles agree with what their users do: PersonalWAB's consistency evaluation (4.2, A.1).

Two kinds of questions, as in the paper. *Behavior*: whose profile is it? Five users, described by their
behaviors, one of them the profile's; top-1 accuracy. *Product*: what suits it? Ten products, three of them
the user's own, are ranked; NDCG@5 and Recall@5.

Departure: the paper's behaviors and products are those that its profiles were made of. Ours are held out:
profiles are made from what precedes the user's first test task, behaviors and products follow it, and the
user had bought none of these products before.

A profile is one text or several, so that profiles of every kind can be compared (:func:`describe_profiles`).
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.clusters import item_text
from pwagents.profiles.llm import PROMPTS, messages_of
from pwagents.profiles.offline import most_common
from pwagents.profiles.types import UserProfiles
from pwagents.schema import Behavior, Benchmark, Product
from pwagents.seeds import rng
from pwagents.words import content_words

ProfileTexts = Mapping[str, Sequence[str]]  # user_id -> the texts of the profile

AVERAGE, ORION = "averaged", "global + micro (Orion)"  # kinds of profiles
OTHERS = 4  # wrong users of a question (A.1)
POSITIVES, NEGATIVES = 3, 7  # products of a question (A.1)
TOP = 5
TOP1, NDCG, RECALL = "profile-behavior top-1", f"profile-product NDCG@{TOP}", f"profile-product Recall@{TOP}"
_GAINS = 1 / np.log2(np.arange(2, TOP + 2))  # of a hit at rank 1, 2, ...
_KEYWORDS = 20
_SAMPLING = {"temperature": 0.0, "max_tokens": 100}
_NUMBERS = re.compile(r"[\d\s,;.>()\[\]]+")  # a reply of numbers alone


class Question(NamedTuple):
    """One question about one user's profile."""

    user_id: str
    kind: Literal["behavior", "product"]
    names: Sequence[str]  # user ids, or product ids, in random order
    candidates: Sequence[Sequence[str]]  # the texts of each: a user's behaviors, or one of a product
    truth: Sequence[bool]  # which of them are the user's


def describe_profiles(
    histories: Mapping[str, Sequence[Behavior]],
    profiles: Mapping[str, UserProfiles],
    products: Mapping[str, Product],
) -> dict[str, ProfileTexts]:
    """Return the profiles of each kind as texts (kind -> user_id -> texts), for the users of ``histories``.

    - :data:`AVERAGE`: one profile over all interests: the categories, stores and title words bought most;
    - "Apollonion (stand-in)": keywords (tf-idf) of the user's reviews. Apollonion profiles users from their
      dialogues, to which reviews are most similar; PersonalWAB gives no more detail;
    - "facts (PersonalWAB)": one text for each fact;
    - :data:`ORION`: the facts, one text of the global preferences, and one for each micro-profile. Avoidances
      are left out: an embedding would take them for wishes;
    - "raw history": one text for each product bought.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    def review_words(history: Sequence[Behavior]) -> list[str]:
        words = [w for b in history for w in content_words(f"{b.review.title}. {b.review.text}")]
        return words or ["-"]

    vectorizer = TfidfVectorizer(analyzer=review_words)
    weights = vectorizer.fit_transform(histories.values())
    weights.sort_indices()  # alphabetical order, for ties
    keywords = vectorizer.get_feature_names_out()

    texts: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for (user, history), row in zip(histories.items(), weights, strict=True):
        bought = [products[behavior.parent_asin] for behavior in history]
        values = most_common((product.category for product in bought), 3)
        values += most_common((product.store for product in bought if product.store), 5)
        values += most_common((word for product in bought for word in content_words(product.title)), 10)
        texts[AVERAGE][user] = [", ".join(values)]

        best = np.argsort(-np.round(row.data, 9), kind="stable")[:_KEYWORDS]
        texts["Apollonion (stand-in)"][user] = [", ".join(keywords[row.indices[best]])]

        own = profiles[user]
        facts = [f"{name}: {value}" for name, value in own.whole.facts.model_dump(by_alias=True).items()]
        whole = ["; ".join(own.whole.positive)] if own.whole.positive else []
        interests = zip(own.clusters, own.micro, strict=True)
        micro = [f"{cluster.name}: {'; '.join(profile.recommendations)}" for cluster, profile in interests]
        texts["facts (PersonalWAB)"][user] = facts
        texts[ORION][user] = [*facts, *whole, *micro]
        texts["raw history"][user] = [item_text(product) for product in bought]
    return dict(texts)


def make_questions(benchmark: Benchmark, seed: int) -> list[Question]:
    """Make a behavior and a product question for each user with enough held-out behaviors.

    A behavior question needs one held-out behavior, a product question three held-out products. Negatives are
    drawn for each user: other such users, and products that the user never bought. With fewer than five users
    there are no questions.
    """
    products = benchmark.products
    past = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    held_out = {user: every[len(past[user]) :] for user, every in benchmark.behaviors.items()}
    # A behavior is described by the product and the user's rating and review.
    pages = {asin: item_text(product) for asin, product in products.items()}
    texts = {
        user: [f"{pages[b.parent_asin]} {b.review.rating:g} stars. {b.review.text}" for b in behaviors]
        for user, behaviors in held_out.items()
        if behaviors
    }

    questions: list[Question] = []
    for user in texts if len(texts) > OTHERS else ():
        draw = rng(seed, "consistency", user).choice
        others = draw([other for other in texts if other != user], OTHERS, replace=False)
        names = draw([user, *others], 1 + OTHERS, replace=False).tolist()
        truth = [name == user for name in names]
        questions.append(Question(user, "behavior", names, [texts[name] for name in names], truth))
        # Each product once, and none that the profile may have been made of.
        before = {b.parent_asin for b in past[user]}
        own = list(dict.fromkeys(b.parent_asin for b in held_out[user] if b.parent_asin not in before))
        bought = {b.parent_asin for b in benchmark.behaviors[user]}
        foreign = [asin for asin in products if asin not in bought]
        if len(own) >= POSITIVES and len(foreign) >= NEGATIVES:
            chosen = draw(own, POSITIVES, replace=False), draw(foreign, NEGATIVES, replace=False)
            names = draw(np.concatenate(chosen), POSITIVES + NEGATIVES, replace=False).tolist()
            candidates = [[pages[name]] for name in names]
            questions.append(Question(user, "product", names, candidates, [name in own for name in names]))
    return questions


def judge_by_embedding(
    profiles: Mapping[str, ProfileTexts], questions: Sequence[Question], embedder: Embedder
) -> pd.DataFrame:
    """Answer the questions by MiniLM cosine and return the scores.

    A text's agreement with a profile is its cosine with the profile's nearest text, a candidate's the mean
    over its texts. Ties keep the order of the (shuffled) candidates.

    Args:
        profiles: name of the method -> its profiles, of each user in the questions.

    Returns:
        One row for each method, question and measure: ``method, judge, evaluation, task_id, user_id,
        value, malformed``.
    """
    # Each text is embedded once, even if several methods and questions have it.
    texts = [text for each in questions for candidate in each.candidates for text in candidate]
    texts += [text for made in profiles.values() for each in questions for text in made[each.user_id]]
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    vectors = embedder.encode(list(place), show_progress=True)
    rows = []
    for method, made in profiles.items():
        for question in questions:
            profile = vectors[[place[text] for text in made[question.user_id]]]
            agreement = [
                (vectors[[place[text] for text in candidate]] @ profile.T).max(axis=1).mean()
                for candidate in question.candidates
            ]
            # Rounded, so that the last bits of an embedding cannot decide a tie.
            order = np.argsort(-np.round(agreement, 6), kind="stable").tolist()
            rows += _score(method, "embedding", question, order)
    return pd.DataFrame(rows)


def judge_by_model(
    profiles: Mapping[str, ProfileTexts], questions: Sequence[Question], model: ChatModel
) -> pd.DataFrame:
    """Return the scores of a language model's answers, as in the paper; see :func:`judge_by_embedding`.

    A reply that is not the number of a candidate, or not an order of all of them, is ``malformed`` and scores
    0. A question that the model refuses has no value.

    Raises:
        InfrastructureError: the model cannot be reached.
    """
    prompts, rows = PROMPTS["judge"], []
    for method, made in profiles.items():
        requests = []
        for question in questions:
            numbered = "\n".join(f"{i}. " + "\n".join(c) for i, c in enumerate(question.candidates, start=1))
            profile = fence("\n".join(made[question.user_id]))
            content = f"The profile:\n{profile}\n\nThe candidates:\n{fence(numbered)}"
            role = f"{prompts['role']} {FENCE_NOTE}\n\n{prompts[question.kind]}"
            requests.append(Request(messages=messages_of(role, content), sampling=_SAMPLING))
        for question, reply in zip(questions, ask_all(model, requests, f"judge: {method}"), strict=True):
            rows += _score(method, model.name, question, reply and _read_order(reply, question))
    return pd.DataFrame(rows)


def chance() -> dict[str, float]:
    """Return the mean score of a random order, by evaluation."""
    n = POSITIVES + NEGATIVES
    ndcg = POSITIVES / n * _GAINS.sum() / _GAINS[:POSITIVES].sum()
    return {TOP1: 1 / (1 + OTHERS), NDCG: float(ndcg), RECALL: TOP / n}


def _read_order(reply: Reply, question: Question) -> list[int]:
    """Return the candidates that a model names, best first; none for a malformed or cut reply."""
    place = {str(i + 1): i for i in range(len(question.names))}
    order = [place.get(number, -1) for number in re.findall(r"\d+", reply.text)]
    is_valid = len(order) == 1 if question.kind == "behavior" else sorted(order) == sorted(place.values())
    is_valid = is_valid and not reply.is_cut and _NUMBERS.fullmatch(reply.text)
    return order if is_valid and min(order) >= 0 else []


def _score(method: str, judge: str, question: Question, order: list[int] | None) -> list[dict]:
    """Return the rows of one answer: top-1, or NDCG with binary gains and recall, both of the first five.

    Args:
        order: empty for a malformed answer; None if the judge refused to answer.
    """
    hits = np.array([question.truth[i] for i in order or ()][:TOP], dtype=float)
    n_right = sum(question.truth)
    if question.kind == "behavior":
        values = {TOP1: float(hits[:1].sum())}
    else:
        ndcg = float(hits @ _GAINS[: len(hits)] / _GAINS[:n_right].sum())
        values = {NDCG: ndcg, RECALL: float(hits.sum() / n_right)}
    task = {"task_id": f"{question.user_id}-{question.kind}", "user_id": question.user_id}
    return [
        {"method": method, "judge": judge, "evaluation": name, **task}
        | {"value": np.nan if order is None else value, "malformed": order == []}
        for name, value in values.items()
    ]
