"""What an agent can recall of a user, and the offline reader that says what records show.

Recalled are the records that a question finds, the latest ones, or a stated profile, which says the same
things outright, a record each: what it gains is what implicit histories cost. Searched is "type: object"
alone, as AgentOccam's published retriever does; a record's website and time are shown with it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import PositiveInt

from pwagents.persona2web.world.domains import domains, facet_of
from pwagents.persona2web.world.history import NOW, History
from pwagents.persona2web.world.types import WEBSITE, BrowsingEvent, Domain, Preference, Value, value_text
from pwagents.seeds import rng
from pwagents.settings import Group, S, Share, project_path
from pwagents.shop.search import Bm25Engine

Recall = Callable[[str], Sequence[BrowsingEvent]]  # what a user's history holds on a question
Memory = Literal["implicit", "recency", "explicit"]
PROFILE_HOST = "profile.test"
USUAL = "usual {} for {}: "  # how a profile states a preference: of what, for which item
NEGATIVES = 2  # records of the sub-domain that show something else, for each that shows a value
LEAST = 1.0  # records: the weight that must point to a value


class RetrievalSettings(Group):
    """What of a history an access to it finds."""

    retriever: str = S("minilm", "minilm, bm25 (by words), or the folder of a sentence-transformers model.")
    top: PositiveInt = S(20, "Records that are found, at most. Persona2Web: 20.")
    least: Share = S(0.5, "Cosine that a record must reach. Persona2Web's code: .5.")


class Embeds(Protocol):
    """A model of sentence embeddings."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return a unit vector for each text."""


@cache
class SentenceModel:
    """A model of sentence-transformers, such as the paper's stella_en_1.5B_v5; each process has one a folder.

    As in the published code, neither records nor questions get a prompt. Each text is embedded once.
    """

    def __init__(self, folder: str):
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(project_path(folder)))
        self._vectors: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return a unit vector for each text."""
        if missing := sorted({*texts} - self._vectors.keys()):
            made = self._model.encode(missing, normalize_embeddings=True, show_progress_bar=False)
            self._vectors.update(zip(missing, made, strict=True))
        return np.stack([self._vectors[text] for text in texts])


def question_for(domain: Domain, facet: str) -> str:
    """Return a question about a facet (or "website"): it is like a record of the kind that would tell."""
    if facet == WEBSITE:
        return f"booking: {domain.item}"
    return f"{domain.item}, {facet_of(domain.name, facet).labels[0]}"


def record_text(record: BrowsingEvent) -> str:
    """Return what a record is found by."""
    return f"{record.type}: {record.object}"


class HistoryIndex:
    """One user's records, searchable. Exact: a flat index of two thousand vectors takes a millisecond."""

    def __init__(self, records: Sequence[BrowsingEvent], embedder: Embeds):
        self.records, self._embedder = records, embedder

    def search(self, question: str, settings: RetrievalSettings) -> list[BrowsingEvent]:
        """Return the records that go with a question, best first; of equal ones the latest comes first."""
        if settings.retriever == "bm25":
            found = self._words.search(question, settings.top)
            return [self.records[-1 - int(place)] for place, _ in found]
        if not self.records:
            return []
        # Rounded: in the last bits, vectors of equal texts differ with the place in a matrix product.
        cosines = np.round(self._vectors @ self._embedder.encode([question])[0], 6)
        best = np.lexsort((-np.arange(len(cosines)), -cosines))[: settings.top]
        return [self.records[i] for i in best if cosines[i] >= settings.least]

    @cached_property
    def _vectors(self) -> np.ndarray:
        return self._embedder.encode([record_text(record) for record in self.records])

    @cached_property
    def _words(self) -> Bm25Engine:
        # The engine orders equal scores by id: places are counted from the latest record.
        texts = map(record_text, reversed(self.records))
        return Bm25Engine({f"{place:09d}": text for place, text in enumerate(texts)})


def search_of(records: Sequence[BrowsingEvent], settings: RetrievalSettings, embedder: Embeds) -> Recall:
    """Return the search in some records, by the embedder or by the model that the settings name."""
    if settings.retriever not in ("minilm", "bm25"):
        embedder = SentenceModel(settings.retriever)
    index = HistoryIndex(records, embedder)
    return lambda question: index.search(question, settings)


def recall_of(history: History, memory: Memory, settings: RetrievalSettings, embedder: Embeds) -> Recall:
    """Return the access to a user's records (implicit), the latest (recency), or the profile (explicit)."""
    if memory == "recency":
        latest = tuple(reversed(history.events[-settings.top :]))
        return lambda _: latest
    if memory == "explicit":  # a profile is short: what comes nearest is shown, however far
        return search_of(profile_records(history.preferences), settings.changed(least=0.0), embedder)
    return search_of(history.events, settings, embedder)


# --- a stated profile ---------------------------------------------------------------------------------------


def profile_records(preferences: Sequence[Preference]) -> tuple[BrowsingEvent, ...]:
    """Return each preference as a record that says it: "usual shoe size for sneakers: in US 9"."""
    records = []
    for preference in preferences:
        item, is_site = domains()[preference.domain].item, preference.facet == WEBSITE
        value = value_text(preference.value)
        stated = value if is_site else facet_of(preference.domain, preference.facet).state(preference.value)
        about = {"object": USUAL.format(preference.facet, item) + stated, "type": "web visit"}
        about["website"] = value if is_site else PROFILE_HOST
        records.append(BrowsingEvent(event_id=_profile_id(preference), timestamp=NOW - 1, **about))
    return tuple(records)


def profile_preferences(preferences: Sequence[Preference]) -> tuple[Preference, ...]:
    """Return the same preferences, supported by their profile records: the truth of the explicit variant."""
    return tuple(p.model_copy(update={"support": (_profile_id(p),)}) for p in preferences)


def _profile_id(preference: Preference) -> str:
    return f"{preference.user_id}-profile-{preference.domain}-{preference.facet}"


# --- the offline reader -----------------------------------------------------------------------------------


class Reader:
    """Reads values and websites out of records, as it was trained on users with their truth.

    For each facet a logistic regression on MiniLM features of a record says which value the record points to,
    if any; what most of a user's records point to is the answer. Texts in ``without`` are not learned from.
    """

    def __init__(self, histories: Sequence[History], embedder: Embeds, seed=0, without: Collection[str] = ()):
        self._embedder = embedder
        # By sub-domain: text of a record -> facet and value that it shows, empty for none.
        seen: dict[str, dict[str, tuple[str, str]]] = {}
        for history in histories:
            for event in history.events:
                shown, text = history.shown[event.event_id], record_text(event)
                facet, value = ("", "") if shown.noise else (shown.facet, value_text(shown.value))
                if text not in without:
                    seen.setdefault(shown.domain, {})[text] = (facet, value)
        self._models = {
            (domain, facet.name): _fit(embedder, texts, facet.name, rng(seed, "reader", domain, facet.name))
            for domain, texts in sorted(seen.items())
            for facet in sorted(domains()[domain].facets, key=lambda each: each.name)
        }

    def value(self, records: Sequence[BrowsingEvent], domain: str, facet: str) -> Value | None:
        """Return the value that most of the records' weight points to; None if next to none points to any.

        A record that words a value as queries do ("sneakers in US 9") counts wholly; a profile decides.
        """
        item, asked = domains()[domain].item, facet_of(domain, facet)
        said = {value: asked.state(value) for value in asked.values}
        texts = [record.object for record in records]
        for value, wording in said.items():
            if USUAL.format(facet, item) + wording in texts:
                return value
        model, weights = self._models.get((domain, facet)), {}
        if model is not None and records:  # how many records point to each value: a sum of shares
            shares = model.predict_proba(self._embedder.encode([record_text(each) for each in records]))
            weights = dict(zip(map(str, model.classes_), map(float, shares.sum(0)), strict=True))
        votes = {
            value: weights.get(value_text(value), 0.0) + sum(text == f"{item} {wording}" for text in texts)
            for value, wording in said.items()
        }
        best = max(votes, key=lambda value: round(votes[value], 6))  # of equal ones the first that is listed
        return best if votes[best] >= LEAST else None

    def website(self, records: Sequence[BrowsingEvent], domain: str) -> str | None:
        """Return the site of the domain that most records are of (the first at a tie); a profile decides."""
        hosts = domains()[domain].hosts
        said = USUAL.format(WEBSITE, domains()[domain].item)
        for record in records:
            if record.object.startswith(said) and record.website in hosts:
                return record.website
        counts = [sum(record.website == host for record in records) for host in hosts]
        return hosts[int(np.argmax(counts))] if any(counts) else None


def _fit(
    embedder: Embeds, texts: Mapping[str, tuple[str, str]], facet: str, generator: np.random.Generator
) -> Any:
    """Return a classifier of a facet's values; None if the texts show fewer than two classes."""
    from sklearn.linear_model import LogisticRegression

    shows = {text: value for text, (name, value) in texts.items() if name == facet}
    other = sorted(text for text, (name, _) in texts.items() if name != facet)
    picked = [other[i] for i in generator.permutation(len(other))[: NEGATIVES * len(shows)]]
    labels = [shows[text] for text in sorted(shows)] + [""] * len(picked)
    if len(set(labels)) < 2:
        return None
    return LogisticRegression(C=10.0, max_iter=500).fit(embedder.encode([*sorted(shows), *picked]), labels)


def train_readers(
    histories: Mapping[str, History], embedder: Embeds, seed: int = 0, shared_phrases: bool = True
) -> dict[str, Reader]:
    """Return by user a reader that was trained on the users of the other group of phrases.

    Without ``shared_phrases`` it learns from no record that stands, word for word, in the histories of the
    users it is used on. Two of three phrases are common to both groups.
    """
    group_of = {user: history.person.group for user, history in histories.items()}
    trained = {}
    for group in sorted({*group_of.values()}):
        others = [histories[user] for user in group_of if group_of[user] != group]
        own = [histories[user] for user in group_of if group_of[user] == group and not shared_phrases]
        without = frozenset(telling_texts(own))
        trained[group] = Reader(others, embedder, seed, without)
    return {user: trained[group] for user, group in group_of.items()}


def telling_texts(histories: Sequence[History]) -> list[str]:
    """Return the texts of the records that show a value, one a record."""
    shown = ((event, history.shown[event.event_id]) for history in histories for event in history.events)
    return [record_text(event) for event, truth in shown if truth.facet and not truth.noise]
