"""What an agent can recall of a user: records found by a question, the latest ones, or a stated profile.

The profile says the same things outright, a record each, and is searched in the same way: what it gains is
what implicit histories cost.
"""

from collections.abc import Sequence
from typing import Literal

from pwagents.embedding import Embedder
from pwagents.persona2web.agent import Recall
from pwagents.persona2web.domains import domains, facet_of, value_text
from pwagents.persona2web.history import NOW, History
from pwagents.persona2web.people import WEBSITE
from pwagents.persona2web.reader import USUAL
from pwagents.persona2web.retrieval import HistoryIndex, RetrievalSettings
from pwagents.persona2web.types import BrowsingEvent, Preference

Memory = Literal["implicit", "recency", "explicit"]
PROFILE_HOST = "profile.test"


def recall_of(history: History, memory: Memory, settings: RetrievalSettings, embedder: Embedder) -> Recall:
    """The access to one user's history or profile.

    Args:
        memory: "implicit" searches the records; "recency" gives the latest, whatever is asked; "explicit"
            searches the profile.
    """
    if memory == "recency":
        latest = tuple(reversed(history.events[-settings.top :]))
        return lambda _: latest
    records = history.events
    if memory == "explicit":  # a profile is short: what comes nearest is shown, however far
        records, settings = profile_records(history.preferences), settings.changed(least=0.0)
    index = HistoryIndex(records, embedder)
    return lambda question: index.search(question, settings)


def profile_records(preferences: Sequence[Preference]) -> tuple[BrowsingEvent, ...]:
    """Each preference as a record that says it: "usual shoe size for sneakers: in US 9"."""
    return tuple(
        BrowsingEvent(
            event_id=_profile_id(preference),
            timestamp=NOW - 1,
            type="web visit",
            object=_said(preference),
            website=str(preference.value) if preference.facet == WEBSITE else PROFILE_HOST,
        )
        for preference in preferences
    )


def profile_preferences(preferences: Sequence[Preference]) -> tuple[Preference, ...]:
    """The same preferences, supported by their profile records: the truth of the explicit variant."""
    return tuple(p.model_copy(update={"support": (_profile_id(p),)}) for p in preferences)


def _profile_id(preference: Preference) -> str:
    return f"{preference.user_id}-profile-{preference.domain}-{preference.facet}"


def _said(preference: Preference) -> str:
    item = domains()[preference.domain].item
    if preference.facet == WEBSITE:
        return f"{USUAL.format(WEBSITE, item)}{preference.value}"
    facet = facet_of(preference.domain, preference.facet)
    return f"{USUAL.format(facet.name, item)}{facet.stated.format(value_text(preference.value))}"
