"""The contextual profile at the start: global negatives and the nearest cluster's positives."""

from dataclasses import replace

import numpy as np
import pytest

from pwagents.profiles.global_micro import contextual_profile, contextual_profiles, nearest_clusters
from pwagents.profiles.types import (
    Cluster,
    ContextualProfile,
    GlobalProfile,
    MicroProfile,
    ProfileLine,
    UserProfiles,
)
from pwagents.schema import UserProfile

FACTS = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
AXES = {"lamp": (1.0, 0.0), "tea": (0.0, 1.0), "both": (0.8, 0.6)}


class Axes:
    """Embeds a few known words."""

    calls = 0

    def encode(self, texts, show_progress=False):
        self.calls += 1
        return np.array([AXES[text] for text in texts], np.float32).reshape(len(texts), 2)


def cluster(name, *centre):
    return Cluster(name, (0,), np.array(centre, np.float32))


@pytest.fixture
def ann():
    whole = GlobalProfile(facts=FACTS, positive=("brand: Lumo",), negative=("color: red", "material: wool"))
    return UserProfiles(
        "ann",
        whole,
        (cluster("lamps", 1, 0), cluster("drinks", 0, 1)),
        (
            MicroProfile(recommendations=("color: navy", "style: retro"), avoidances=("style: bold",)),
            MicroProfile(recommendations=("flavor: mint", "style: retro"), avoidances=("flavor: rose",)),
        ),
    )


def wanted(profile):
    return [line.text for line in profile.lines if line.positive]


def avoided(profile):
    return [line.text for line in profile.lines if not line.positive]


def test_global_negatives_and_the_positives_of_the_nearest_cluster(ann):
    profile = contextual_profile("tea", ann, Axes())
    assert wanted(profile) == ["flavor: mint", "style: retro"]
    assert avoided(profile) == ["color: red", "material: wool"]
    assert {line.provenance for line in profile.lines} == {"history"}
    assert [line.about for line in profile.lines] == ["flavor", "style", "color", "material"]


def test_users_without_clusters_fall_back_to_the_global_profile(ann):
    short = replace(ann, clusters=(), micro=())
    embedder = Axes()
    profile = contextual_profile("tea", short, embedder)
    assert wanted(profile) == ["brand: Lumo"] and avoided(profile) == ["color: red", "material: wool"]


def test_what_is_avoided_everywhere_is_not_wanted_here(ann):
    whole = ann.whole.model_copy(update={"negative": ("flavor: mint",)})
    profile = contextual_profile("tea", replace(ann, whole=whole), Axes())
    assert wanted(profile) == ["style: retro"] and avoided(profile) == ["flavor: mint"]


def test_several_clusters_order_lines_by_weight(ann):
    profile = contextual_profile("both", ann, Axes(), m=2)
    assert wanted(profile) == ["style: retro", "color: navy", "flavor: mint"]
    near = nearest_clusters(["both"], [ann], Axes(), m=2)[0]
    assert [n.cluster for n in near] == [0, 1] and near[0].weight > near[1].weight
    assert sum(n.weight for n in near) == pytest.approx(1)


def test_more_clusters_than_there_are(ann):
    assert len(nearest_clusters(["both"], [ann], Axes(), m=9)[0]) == 2


def test_equally_near_clusters_the_earlier_one(ann):
    tied = replace(ann, clusters=(cluster("x", 0, 1), cluster("y", 0, 1)))
    assert nearest_clusters(["tea"], [tied], Axes())[0][0].cluster == 0


def test_many_instructions_are_embedded_at_once(ann):
    short = replace(ann, clusters=(), micro=())
    embedder = Axes()
    users = [ann, short, ann]
    many = contextual_profiles(users, nearest_clusters(["tea", "lamp", "tea"], users, embedder))
    assert embedder.calls == 1
    assert many == [
        contextual_profile(i, u, Axes()) for i, u in (("tea", ann), ("lamp", short), ("tea", ann))
    ]


def test_no_cluster_asked_for(ann):
    with pytest.raises(ValueError, match="m is 0; expected at least one cluster"):
        contextual_profile("tea", ann, Axes(), m=0)


def test_told_with_wishes_first_and_the_source_of_each_line(ann):
    assert contextual_profile("tea", ann, Axes()).describe().splitlines() == [
        "Wants:",
        "- [history] flavor: mint",
        "- [history] style: retro",
        "Avoids:",
        "- [history] not color: red",
        "- [history] not material: wool",
        "Wanted: mint retro",
    ]


def test_in_short_known_values_alone_each_once_and_none_that_is_avoided():
    lines = [
        ("color: Navy", True, "stated"),
        ("price: around 20 dollars", True, "stated"),
        ("price: budget", True, "history"),
        ("size: king size", True, "history"),
        ("mention: navy", True, "history"),
        ("feature: whatever keeps the rain out", True, "history"),
        ("Likes what lasts for years.", True, "history"),
        ("material: wool", True, "history"),
        ("material: Wool", False, "history"),
    ]
    profile = ContextualProfile(lines=tuple(ProfileLine.of(*line) for line in lines))
    assert profile.query == "Navy budget king size"
    assert ContextualProfile().query == ContextualProfile().describe() == ""


def test_in_short_the_words_of_the_instruction_come_last_each_once():
    lines = (ProfileLine.of("color: Navy", True, "stated"), ProfileLine.of("style: plain", False, "history"))
    profile = ContextualProfile(lines=lines, words=("towel", "navy", "plain"))
    assert profile.query == "Navy towel"
    assert profile.describe().endswith("\nWanted: Navy towel")
