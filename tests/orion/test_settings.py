"""Settings of Orion's notebooks: what follows from several groups, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoModelForCausalLM

from pwagents.evaluation.seeds import MUST_EXCEED
from pwagents.notebook.settings import load_settings
from pwagents.orion.settings import AblationsNotebook, GrpoNotebook, SftNotebook
from pwagents.orion.train import base_size

REFERENCE = Path(__file__).parents[2] / "outputs" / "reference" / "tables"
FLAT = {"preset": "smoke", "source": "", "data_dir": "", "output_dir": "", "seed": None}
NOTEBOOKS = {"05_orion_sft": SftNotebook, "06_orion_grpo": GrpoNotebook, "07_ablations": AblationsNotebook}


def load(notebook, preset="smoke", **changes):
    parameters = FLAT | {"preset": preset, "stored_runs_only": False} | changes
    return load_settings(notebook, NOTEBOOKS[notebook], parameters)


@pytest.mark.parametrize("preset", ["smoke", "laptop"])
def test_ppo_has_equal_means(preset):
    rl = load("06_orion_grpo", preset).rl
    grpo, ppo = rl.grpo, rl.ppo
    shared = (
        "max_steps",
        "episodes",
        "learning_rate",
        "temperature",
        "epsilon",
        "seed",
        "lora",
        "eval_steps",
    )
    assert all(getattr(grpo, name) == getattr(ppo, name) for name in shared)
    assert (ppo.prompts_per_step, ppo.num_generations) == (grpo.episodes, 1)
    assert replace(rl, lam=0.9).ppo.lam == 0.9


def test_a_change_of_what_both_share_changes_both():
    rl = load("06_orion_grpo", rl={"max_steps": 7, "entropy_coef": 0.1}).rl
    assert (rl.grpo.max_steps, rl.ppo.max_steps) == (7, 7) and rl.ppo.entropy_coef == 0.1


def test_episodes_are_sampled_in_training_as_in_the_test_unless_told_otherwise():
    hot = load("06_orion_grpo", play={"temperature": 0.3})
    assert hot.rl.temperature == hot.play.temperature == 0.3
    apart = load("06_orion_grpo", play={"temperature": 0.3}, rl={"temperature": 0.9})
    assert (apart.rl.temperature, apart.play.temperature) == (0.9, 0.3)
    assert hot.decoding.greedy.temperature_of("review") == hot.decoding.greedy.temperature_of("search") == 0


def test_success_is_the_same_in_role_play_and_reward():
    settings = load("06_orion_grpo", role_play={"success_rank": 2}, rl={"alignment_weight": 0.25})
    assert settings.success.success_rank == settings.reward.success_rank == 2
    assert settings.reward.alignment_weight == 0.25 and settings.reward.use == "both"


def test_the_run_has_one_seed_and_trainings_may_have_others():
    settings = load("07_ablations", seed=5)
    assert settings.seed == settings.sft.seed == settings.rl.grpo.seed == 5
    assert settings.rl.seeds == (0, 1)


def test_grpo_is_always_trained_and_each_pipeline_once():
    for wrong, said in (
        ({"methods": ["PPO"]}, "07_ablations, rl: expected GRPO among methods"),
        ({"seeds": [1, 1]}, "each of seeds once"),
    ):
        with pytest.raises(ValueError, match=said):
            load("07_ablations", rl=wrong)


def test_a_variant_changes_its_group_alone():
    settings = load("06_orion_grpo")
    quiet = settings.changed(players={"user": "none"})
    assert quiet.players.user == "none" and settings.players.user == "rules"
    assert replace(quiet, players=settings.players) == settings


def test_variants_are_changes_of_rl():
    variants = [{"name": "wide", "num_generations": 6}, {"name": "paid for success", "reward": "task"}]
    settings = load("07_ablations", rl={"variants": variants})
    wide, paid = (replace(settings, rl=settings.rl.varied[variant["name"]]) for variant in variants)
    assert wide.rl.grpo == replace(settings.rl.grpo, num_generations=6) and wide.reward == settings.reward
    assert paid.rl.grpo == settings.rl.grpo and (settings.reward.use, paid.reward.use) == ("both", "task")
    misspelt, nameless, twice = [{"name": "x", "scale": "none"}], [{"credit": "turn"}], variants[:1] * 2
    expected = "a name for each of variants, of its own"
    taken, idle = [{"name": "SFT", "credit": "turn"}], [{"name": "x", "seed": 7, "lam": 0.5}]
    cases = ((misspelt, "Unexpected keyword"), (nameless, expected), (twice, expected), (taken, expected))
    for wrong, said in (*cases, (idle, "something of GRPO, as 'x' does not")):
        with pytest.raises(ValueError, match=said):
            load("07_ablations", rl={"variants": wrong})


def test_several_gpus_that_leave_no_whole_weights_to_play_with_are_refused():
    assert load("06_orion_grpo", rl={"sharding": "fsdp", "n_gpus": 1}).rl.grpo.sharding == "fsdp"
    with pytest.raises(ValueError, match=r"rl\.use_vllm: expected vLLM, which gets whole weights"):
        load("06_orion_grpo", rl={"sharding": "fsdp", "n_gpus": 2})


@pytest.mark.parametrize("notebook", ["05_orion_sft", "06_orion_grpo"])
def test_the_noise_of_seeds_is_the_one_that_notebook_07_has_measured(notebook):
    """Where the reference results are made again and this fails, the number in params/laptop.yaml is old."""
    floor = pd.read_csv(REFERENCE / "07_noise_floor.csv")
    measured = floor[floor["method"] != "Base"].groupby("type")[MUST_EXCEED].max()  # of what is trained
    assert load(notebook, "laptop").study.seed_noise == pytest.approx(measured.to_dict(), abs=0.005)
    assert load(notebook).study.seed_noise is None, "not measured at smoke"


def test_tables_call_the_small_model_by_its_size():
    config = base_size(load("05_orion_sft"))
    model = AutoModelForCausalLM.from_config(config)
    told = f"small model, {model.num_parameters() / 1e6:.1f}M parameters"
    assert load("05_orion_sft").base.backbone == told
