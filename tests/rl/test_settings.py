"""Settings of reinforcement learning: each is explained, and what is refused."""

import pytest

from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.settings import meaning


@pytest.mark.parametrize("group", [GrpoSettings, PpoSettings])
def test_every_setting_says_what_it_means(group):
    assert all(meaning(group, name) for name in group.__pydantic_fields__)


@pytest.mark.parametrize(
    ("group", "wrong"),
    [
        (GrpoSettings, {"num_generations": 1}),
        (GrpoSettings, {"credit": "token"}),
        (GrpoSettings, {"temperature": 0.0}),
        (PpoSettings, {"sharding": "deepspeed"}),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(group, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        group(max_steps=1, **wrong)
