"""The makes of profiles compared by what users do next."""

import pandas as pd
import pytest

from pwagents.benchmark.profile_agreement import AVERAGED, ORION, agreement_gains, profiles_compared
from pwagents.profiles.types import GlobalProfile, UserProfiles
from pwagents.schema import UserProfile


def test_every_make_has_a_text_of_every_user_and_only_the_world_knows_true_preferences(world):
    benchmark = world.benchmark
    facts = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
    histories = {user: benchmark.train_period(user) for user in list(benchmark.behaviors)[:4]}
    profiles = {user: UserProfiles(user, GlobalProfile(facts=facts)) for user in histories}
    known = profiles_compared(histories, profiles, benchmark.products, world.truth)
    unknown = profiles_compared(histories, profiles, benchmark.products, None)
    assert set(known) - set(unknown) == {"true preferences (reference)"}
    assert all(set(texts) == set(histories) and all(texts.values()) for texts in known.values())
    interests = world.truth.people[next(iter(histories))].interests
    assert len(known["true preferences (reference)"][next(iter(histories))]) == len(interests)


def test_gains_are_told_for_all_users_and_for_those_with_long_histories():
    rows = [
        (method, "top-1", f"{user}-behavior", user, value)
        for method, values in ((ORION, (1.0, 1.0, 0.0)), (AVERAGED, (0.0, 1.0, 0.0)))
        for user, value in zip("abc", values, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["method", "evaluation", "task_id", "user_id", "value"])
    gains = agreement_gains(frame, {"a", "b"}, 15)
    assert gains["users"].tolist() == ["all", "more than 15 behaviours"]
    assert gains["difference"].tolist() == pytest.approx([1 / 3, 1 / 2])
    assert gains["n_users"].tolist() == [3, 2]
