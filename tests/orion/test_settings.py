"""Settings of Orion's notebooks: what follows from several groups, and what is refused."""

from pathlib import Path

import pytest

from base_model.small import make_small_model, with_copying_layers
from pwagents.settings import BASE_MODELS, load_settings

from .small_study import cases

REFERENCE = Path(__file__).parents[2] / "outputs" / "reference" / "tables"
FLAT = {"preset": "smoke", "source": "", "data_dir": "", "output_dir": "", "seed": None}


def load(notebook="06_orion_grpo", preset="smoke", **changes):
    parameters = FLAT | {"preset": preset, "stored_runs_only": False} | changes
    return load_settings(notebook, parameters)


def check(own, expected):
    """Every value of ``expected`` stands in settings, groups within groups likewise."""
    for name, value in expected.items():
        found = own[name] if isinstance(own, dict) else getattr(own, name)
        if isinstance(value, dict):
            check(found, value)
        else:
            assert found == (tuple(value) if isinstance(value, list) else value), name


@cases("follows")
def test_what_follows_from_several_groups(case):
    notebook, changed, expected = case
    check(load(notebook, **changed), expected)


@cases("refused")
def test_what_cannot_be_is_refused(case):
    notebook, changed, said = case
    with pytest.raises(ValueError, match=said):
        load(notebook, **changed)


def test_another_seed_is_of_data_and_all_trainings_and_works_in_a_folder_of_its_own():
    here, asking = load(), load(players={"judge": "openai:m", "base_url": "http://x"})
    there = here.seeded(7)
    assert (there.seed, there.sft.seed, there.rl.seed) == (7, 7, 7) and here.seeded(here.seed) == here
    assert there.output_dir == here.output_dir / "worlds" / "7"
    assert asking.seeded(7).output_dir == asking.output_dir, "replies and their budget are shared"


def test_tables_call_the_small_model_by_its_size(tokenizer):
    model = with_copying_layers(make_small_model(tokenizer, 0), 0)
    told = f"small model, {model.num_parameters() / 1e6:.1f}M parameters"
    assert load("05_orion_sft").base.backbone == BASE_MODELS["small"] == told
