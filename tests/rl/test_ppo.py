"""PPO on tiny games, and its loss against cases computed by hand."""

import math

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

from pwagents.rl.log import read_rows
from pwagents.rl.ppo import train_ppo
from pwagents.rl.ppo_loss import estimate_advantages, fit_critic, make_critic, policy_loss
from pwagents.rl.rollout import Played
from pwagents.rl.settings import PpoSettings

from . import game

CONFIG = PpoSettings(max_steps=1, epsilon=0.2)


def loss(ratios, advantages, reference=None, config=CONFIG):
    """The loss where old probabilities are 1/2 and new ones a multiple of that."""
    old = torch.full((len(ratios),), math.log(0.5))
    new = (old + torch.tensor(ratios).log()).requires_grad_()
    found = policy_loss(new, torch.full_like(old, 0.3), old, torch.tensor(advantages), reference, config)
    found.loss.backward()
    return found, new.grad


def test_the_ratio_is_clipped_where_that_makes_the_goal_smaller():
    # Goals: min(1.5 * 2, 1.2 * 2) = 2.4; min(1.5 * -2, 1.2 * -2) = -3; min(.5 * 2, .8 * 2) = 1;
    # min(.5 * -2, .8 * -2) = -1.6; 1 * 3 = 3. Their sum is 1.8.
    found, gradient = loss([1.5, 1.5, 0.5, 0.5, 1.0], [2.0, -2.0, 2.0, -2.0, 3.0])
    assert float(found.loss.detach()) == pytest.approx(-1.8)
    assert found.clipped == 2
    assert gradient.tolist() == pytest.approx([0, 3, -1, 0, -3])  # -ratio * advantage where not clipped


def test_divergence_and_entropy_join_the_loss():
    # One token at probability .5; the reference has .25: 1/2 - log(1/2) - 1 = .193147.
    reference = torch.tensor([math.log(0.25)])
    found, _ = loss([1.0], [0.0], reference, PpoSettings(max_steps=1, beta=2.0, entropy_coef=0.1))
    assert found.kl == pytest.approx(0.193147, abs=1e-6)
    assert float(found.loss.detach()) == pytest.approx(2 * 0.193147 - 0.1 * 0.3, abs=1e-6)


def played(*episodes):
    """Episodes of one or two turns, one token a turn, from what their turns earned."""
    play = {1: game.play_bandit, 2: game.play_cue}
    rollouts = [play[len(each)](game.make_model(), game.make_tasks(1), 0)[0] for each in episodes]
    return Played(rollouts, list(episodes), {}, 0.0)


def test_to_ask_first_is_no_worse_while_the_critic_knows_nothing():
    """Both ways lead to the same reward; the longer one must not be punished for its length."""
    advantages, _ = estimate_advantages(played([1.0], [0.0, 1.0]), torch.zeros(3), CONFIG)
    assert advantages.tolist() == [1.0, 1.0, 1.0]


def test_the_critic_is_told_what_was_still_to_come_whatever_it_forecast():
    config = PpoSettings(max_steps=1, lam=0.5, gamma=0.9)
    found = estimate_advantages(played([1.0], [0.5, 1.0]), torch.tensor([0.2, 0.1, 0.3]), config)
    # GAE: 1 - .2 = .8; 1 - .3 = .7, before it .5 + .9 * .3 - .1 = .67, and .45 * .7 = .315 with it.
    assert found[0].tolist() == pytest.approx([0.8, 0.985, 0.7])
    assert found[1].tolist() == pytest.approx([1.0, 1.4, 1.0])


def test_the_critic_comes_to_foresee_returns():
    chance = torch.Generator().manual_seed(0)
    features = torch.randn(256, 16, generator=chance)
    returns = features[:, 0] - 2 * features[:, 1]
    accelerator = Accelerator(cpu=True)
    critic = make_critic(16)
    assert not critic(features).any()  # it expects nothing at first
    optimizer = torch.optim.AdamW(critic.parameters(), lr=3e-3)
    given = (accelerator, critic, optimizer, features, returns, CONFIG)
    explained = [fit_critic(*given, seed) for seed in range(30)]
    assert explained[0] == pytest.approx(0, abs=1e-6)
    assert explained[-1] > 0.95


def test_the_bandit_is_learned(tmp_path):
    given = (game.save_model(tmp_path / "start"), game.make_tokenizer(), game.make_tasks(6))
    config = game.CONFIGS["ppo"](max_steps=40, save_steps=0, eval_steps=20)
    out = train_ppo(
        *given, game.play_bandit, game.pay_bandit, config, tmp_path / "run", lambda model: {"c": 1.0}
    )
    model = AutoModelForCausalLM.from_pretrained(out)
    assert game.said(model, "begin", "go")["c"] > 0.9
    rows = read_rows(tmp_path / "run" / "log.jsonl")
    assert [row["step"] for row in rows] == list(range(41))
    assert [row["step"] for row in rows if "eval_c" in row] == [0, 20, 40]
    assert rows[-1]["reward"] > 0.9 > rows[1]["reward"]


def test_a_second_turn_that_alone_matters_is_learned(tmp_path):
    game.save_model(tmp_path / "start")
    out = game.train("ppo", tmp_path, max_steps=60, save_steps=0)
    assert game.mean_reward(out) > 0.9
    rows = read_rows(tmp_path / "run" / "log.jsonl")
    assert all(row["clip_fraction"] == 0 for row in rows)  # one pass over fresh episodes


def test_more_passes_move_the_policy_further_and_are_clipped(tmp_path):
    game.save_model(tmp_path / "start")
    game.train("ppo", tmp_path, max_steps=6, save_steps=0, epochs=6)
    rows = read_rows(tmp_path / "run" / "log.jsonl")
    assert max(row["clip_fraction"] for row in rows) > 0


def test_several_micro_batches_make_the_same_steps_as_one(tmp_path):
    weights = []
    for size in (32, 8):
        folder = tmp_path / str(size)
        game.save_model(folder / "start")
        out = game.train("ppo", folder, max_steps=2, save_steps=0, per_device_train_batch_size=size)
        model = AutoModelForCausalLM.from_pretrained(out)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(*weights, atol=1e-5)


def test_a_reference_model_holds_the_policy_back(tmp_path):
    game.save_model(tmp_path / "start")
    game.train("ppo", tmp_path, max_steps=15, save_steps=0, beta=10.0)
    rows = read_rows(tmp_path / "run" / "log.jsonl")
    assert 0 < rows[-1]["kl"] < 0.1
    assert rows[-1]["reward"] < 0.3
