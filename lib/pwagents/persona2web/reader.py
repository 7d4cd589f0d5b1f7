"""The offline reader: what browsing records say about one preference of one user.

It is trained on other users, whose ways of saying things are only in part those of the users it is used on.
For each facet a logistic regression on MiniLM features of a record says which value the record points to, if
any; what most of a user's records point to is the answer.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from pwagents.embedding import Embedder
from pwagents.persona2web.domains import domains, facet_of, value_text
from pwagents.persona2web.history import History
from pwagents.persona2web.retrieval import record_text
from pwagents.persona2web.types import BrowsingEvent, Value
from pwagents.seeds import rng

NEGATIVES = 2  # records of the sub-domain that show something else, for each that shows a value
USUAL = "usual {} for {}: "  # how a profile states a preference: of what, for which item
LEAST = 1.0  # records: the weight that must point to a value


class Reader:
    """Reads values and websites out of records. Safe to use from several threads.

    Args:
        histories: of the training users, with their truth.
        embedder: of record texts; the retriever's, so that each is embedded once.
    """

    def __init__(self, histories: Sequence[History], embedder: Embedder, seed: int = 0):
        self._embedder = embedder
        self._models = {
            facet: _fit(embedder, examples, rng(seed, "reader", *facet))
            for facet, examples in sorted(_examples(histories).items())
        }

    def value(self, records: Sequence[BrowsingEvent], domain: str, facet: str) -> Value | None:
        """The value that most of the records' weight points to; None where next to none points to any.

        A record that words a value as queries do ("sneakers in US 9") counts wholly; a profile decides.
        """
        item, asked = domains()[domain].item, facet_of(domain, facet)
        said = {value: asked.stated.format(value_text(value)) for value in asked.values}
        texts = [record.object for record in records]
        for value, wording in said.items():
            if USUAL.format(facet, item) + wording in texts:
                return value
        weights = self._weights(records, domain, facet)
        votes = {
            value: weights.get(value_text(value), 0.0) + sum(text == f"{item} {wording}" for text in texts)
            for value, wording in said.items()
        }
        best = max(votes, key=lambda value: round(votes[value], 6))  # of equal ones the first that is listed
        return best if votes[best] >= LEAST else None

    def _weights(self, records: Sequence[BrowsingEvent], domain: str, facet: str) -> dict[str, float]:
        """By value as text: how many of the records point to it, as a sum of the classifier's shares."""
        model = self._models.get((domain, facet))
        if model is None or not records:
            return {}
        shares = model.predict_proba(self._embedder.encode([record_text(record) for record in records]))
        return dict(zip(map(str, model.classes_), map(float, shares.sum(0)), strict=True))

    def website(self, records: Sequence[BrowsingEvent], domain: str) -> str | None:
        """The site of the domain that most records are of (the first at a tie); a profile decides."""
        hosts = domains()[domain].hosts
        said = USUAL.format("website", domains()[domain].item)
        for record in records:
            if record.object.startswith(said) and record.website in hosts:
                return record.website
        counts = [sum(record.website == host for record in records) for host in hosts]
        return hosts[int(np.argmax(counts))] if any(counts) else None


def train_readers(histories: Mapping[str, History], embedder: Embedder, seed: int = 0) -> dict[str, Reader]:
    """By user, a reader that was trained on the users of the other group of phrases."""
    group_of = {user: history.person.group for user, history in histories.items()}
    trained = {
        group: Reader([histories[user] for user in group_of if group_of[user] != group], embedder, seed)
        for group in sorted({*group_of.values()})
    }
    return {user: trained[group] for user, group in group_of.items()}


def _examples(histories: Sequence[History]) -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """By sub-domain and facet: texts of records with the value each shows, and those that show none of it."""
    seen: dict[str, dict[str, tuple[str, str]]] = {}
    for history in histories:
        for event in history.events:
            shown = history.shown[event.event_id]
            facet, value = ("", "") if shown.noise else (shown.facet, value_text(shown.value))
            seen.setdefault(shown.domain, {})[record_text(event)] = (facet, value)
    return {
        (domain, facet.name): {
            "shows": {text: value for text, (name, value) in texts.items() if name == facet.name},
            "other": {text: "" for text, (name, _) in texts.items() if name != facet.name},
        }
        for domain, texts in seen.items()
        for facet in domains()[domain].facets
    }


def _fit(embedder: Embedder, examples: dict[str, dict[str, str]], generator: np.random.Generator):
    from sklearn.linear_model import LogisticRegression

    shows, other = examples["shows"], sorted(examples["other"])
    picked = [other[i] for i in generator.permutation(len(other))[: NEGATIVES * len(shows)]]
    texts, labels = [*sorted(shows), *picked], [shows[text] for text in sorted(shows)] + [""] * len(picked)
    if len(set(labels)) < 2:
        return None
    return LogisticRegression(C=10.0, max_iter=500).fit(embedder.encode(texts), labels)
