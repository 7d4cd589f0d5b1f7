"""The dynamic profile update (DPU): how a contextual profile follows a session (Orion, section 4.2).

P_ctx,t follows from P_ctx,t-1 and the last action and observation. Departure: an update also sees the
instruction and the steps before, since "none of these" means nothing without what was shown.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pwagents.profiles.catalogue import TOPIC
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import Step, Usage

_SEVERAL = ("feature", "mention")  # one may state a second value of these without taking back the first


class Update(NamedTuple):
    """The next contextual profile, and what it cost where a language model made it."""

    profile: ContextualProfile
    usage: Usage | None = None


class Updater(Protocol):
    """G_update: :class:`pwagents.profiles.offline_update.OfflineUpdater` or
    :class:`pwagents.profiles.llm.LlmUpdater`."""

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """P_ctx,t, given P_ctx,t-1 and the session so far, whose last step is the new one."""


def settle(profile: ContextualProfile, new: Sequence[ProfileLine]) -> ContextualProfile:
    """The profile with new lines before the old ones, less the old ones that they override.

    A value of an attribute stands once, as the last word on it was. A stated wish overrides all other wishes
    about its attribute, whether from history, inferred, or stated earlier (but for attributes of which one
    may want several values). Nothing overrides what was stated but another statement.
    """
    stated = {_key(old) for old in profile.lines if old.provenance == "stated"}
    new = [line for line in new if line.provenance == "stated" or _key(line) not in stated]
    kept = [old for old in profile.lines if not any(_overrides(line, old) for line in new)]
    return profile.model_copy(update={"lines": (*new, *kept)})


def last_shown(session: Sequence[Step]) -> tuple[str, ...]:
    """The ids that the shop showed last, before the session's last step."""
    shown = [step.observation.products for step in session[:-1] if step.observation.products]
    return shown[-1] if shown else ()


def _overrides(new: ProfileLine, old: ProfileLine) -> bool:
    """Whether a new line takes the place of an old one."""
    if _key(new) == _key(old):
        return True
    both_wanted = new.provenance == "stated" and new.positive and old.positive
    if not both_wanted or new.about != old.about or new.about in ("", TOPIC):
        return False
    return old.provenance != "stated" or new.about not in _SEVERAL


def _key(line: ProfileLine) -> tuple[str, str]:
    """The attribute and value that a line is about, wanted or not."""
    return line.about, line.value.lower()
