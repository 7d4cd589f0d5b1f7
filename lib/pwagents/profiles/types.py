"""Types of a user's profiles (Orion, section 4.1; PersonalWAB, Figures 10 and 11).

A preference is a line of text, as in :mod:`pwagents.profiles.contextual`.
"""

from dataclasses import dataclass

from pwagents.profiles.clusters import Cluster
from pwagents.schema import Record, Text, UserProfile

OTHER = "Other"  # a fact about a user that is unknown or that no option fits


class GlobalProfile(Record):
    """The profile of a user over all interests: p_global of Orion, section 4.1."""

    facts: UserProfile  # PersonalWAB's three groups of fields, with its options
    positive: tuple[Text, ...] = ()  # rho+_global: what the user likes everywhere
    negative: tuple[Text, ...] = ()  # rho-_global: what the user avoids everywhere


class MicroProfile(Record):
    """The profile of a user within one interest: p_micro,i of Orion, section 4.1."""

    recommendations: tuple[Text, ...] = ()  # rho+_micro,i
    avoidances: tuple[Text, ...] = ()  # rho-_micro,i


@dataclass(frozen=True)
class UserProfiles:
    """All profiles of one user (P_u): ``micro[i]`` is of ``clusters[i]``. Short histories have neither."""

    whole: GlobalProfile
    clusters: tuple[Cluster, ...] = ()
    micro: tuple[MicroProfile, ...] = ()
