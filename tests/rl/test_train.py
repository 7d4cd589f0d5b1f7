"""GRPO and PPO on tiny games: the gradient is the published one, they learn, and killed runs go on."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import AutoModelForCausalLM
from trl.generation import vllm_generation

from pwagents.errors import DataError
from pwagents.files import seal
from pwagents.llm.folder import read_model
from pwagents.rl import learner
from pwagents.rl.learner import Critic
from pwagents.rl.log import append_row, open_log, read_curves, read_rows
from pwagents.rl.train import train_policy
from pwagents.seeds import rng
from pwagents.settings import GrpoSettings, PpoSettings

from ..processes import begin, kill
from . import game

BOTH = pytest.mark.parametrize("method", ["grpo", "ppo"])

# The gradient, written again: episode after episode, all logits, no packing, no padding.
TWICE = {"minibatches": 2}
CASES = game.CIRCUMSTANCES["gradients"]
HEAT = {"search": 0.7, "review": 1.2}
PLAIN = {"prompts_per_step": 4, "num_generations": 4, "per_device_train_batch_size": 3}


def pay(episodes):
    """Every word has its price, and a half is for nothing; of one task all episodes earn the same."""
    (prices,) = game.pay_bandit(episodes).values()
    same = [trajectory.task_id == "t0" for _, trajectory in episodes]
    worth = [[0.5, 0.5] if each else paid for each, paid in zip(same, prices, strict=True)]
    return {"price": worth, "gift": [[0.5, 0.5] for _ in episodes]}


def by_group(rewards, config):
    """(16 episodes, 2 tokens): the return against those of its four, divided by their deviation."""
    returns = rewards.sum(1).view(4, 4)
    scale = returns.std(1, keepdim=True) + 1e-4 if config.scale_rewards == "group" else 1
    return ((returns - returns.mean(1, keepdim=True)) / scale).view(16, 1).expand(16, 2)


def by_value(rewards, config):
    """The same where the critic expects nothing yet: rewards still to come; normalized."""
    advantages = rewards + torch.stack([rewards[:, 1], torch.zeros(16)], 1)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def scored(weights, episodes, types):
    """A model of these weights, and the log-probabilities (episodes, 2 tokens) of what was sampled."""
    model, rows = game.make_model(), []
    for own, value in zip(model.parameters(), weights, strict=True):
        own.data.copy_(value)
    for episode in episodes:
        ids = torch.tensor([episode.prompt_ids + episode.completion_ids])
        places = [len(episode.prompt_ids) + i for i, sampled in enumerate(episode.mask) if sampled]
        logits = model(ids).logits[0, [place - 1 for place in places]]
        chances = (logits / HEAT[types[episode.trajectory.task_id]]).log_softmax(-1)
        rows.append(chances.gather(1, ids[0, places][:, None])[:, 0])
    return model, torch.stack(rows)


@pytest.mark.parametrize(("method", "changed"), CASES.values(), ids=CASES)
def test_the_gradient_of_each_update_is_that_of_an_independent_implementation(
    tmp_path, monkeypatch, method, changed
):
    monkeypatch.setattr(learner, "MAX_GRAD_NORM", 1e9)
    tasks = game.make_tasks(4)
    tasks = [t.model_copy(update={"type": "review"}) if i % 2 else t for i, t in enumerate(tasks)]
    given = game.SETTINGS | PLAIN | {"max_steps": 1, "save_steps": 0} | changed
    config = game.CONFIGS[method](**given)
    episodes, updates = [], []  # of each update (weights, gradient) of all parameters

    def play(model, tasks, seed):
        heat = [HEAT[task.type] for task in tasks]  # as if they had been sampled so
        pairs = zip(game.play_cue(model, tasks, seed), heat, strict=True)
        episodes.extend(replace(each, temperature=own) for each, own in pairs)
        return episodes

    def watch(optimizer, *_):
        trained = optimizer.param_groups[0]["params"]
        if len(trained) > 4:  # not the critic
            assert policy.training, "a GPU computes activations again in this mode alone"
            updates.append([(each.detach().clone(), each.grad.clone()) for each in trained])

    hook = register_optimizer_step_pre_hook(watch)
    policy = game.make_model()
    train_policy(policy, game.make_tokenizer(), game.Game(play, pay, tasks=tasks), config, tmp_path)
    hook.remove()

    types = {task.task_id: task.type for task in tasks}
    parts = pay([(None, episode.trajectory) for episode in episodes])
    rewards = torch.tensor(parts["price"]) + torch.tensor(parts["gift"])
    advantages = {"grpo": by_group, "ppo": by_value}[method](rewards, config)
    with torch.no_grad():
        _, old = scored([weights for weights, _ in updates[0]], episodes, types)
    order = rng(config.seed, "minibatches", "0", "0", "0").permutation(4)
    parts = order.reshape(2, 2) if config.minibatches == 2 else [np.arange(4)]
    clipped, moved = [], []
    for pairs, part in zip(updates, parts, strict=True):
        model, logprobs = scored([weights for weights, _ in pairs], episodes, types)
        ratio = (logprobs - old).exp()
        goal, limit = ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
        losses = -torch.min(goal, limit).view(4, 8)[part]
        gradient = torch.autograd.grad(losses.mean(), model.parameters())
        for ours, (_, own) in zip(gradient, pairs, strict=True):
            torch.testing.assert_close(own, ours, rtol=1e-4, atol=1e-7)
        logged = (limit < goal - 1e-9).float(), ratio - 1 - ratio.log()
        for means, values in zip((clipped, moved), logged, strict=True):
            means.append(values.view(4, 8)[part].mean().item())
    assert max(float(own.abs().max()) for pairs in updates for _, own in pairs) > 1e-3
    (row,) = read_rows(tmp_path / "log.jsonl")
    assert row["clip_fraction"] == pytest.approx(np.mean(clipped))
    assert row["approx_kl"] == pytest.approx(np.mean(moved), rel=1e-3, abs=1e-6)
    assert (row["clip_fraction"] > 0) == (row["approx_kl"] > 1e-6) == (len(updates) > 1)


@BOTH
@pytest.mark.parametrize("updates", [{"learning_rate": 1e-2}, TWICE | {"learning_rate": 5e-3}])
def test_the_bandit_is_learned(tmp_path, method, updates):
    changed = {"max_steps": 40, "save_steps": 0, "eval_steps": 20} | updates
    watched = replace(game.BANDIT, measure=lambda model: {"c": 1.0})
    out = game.train(method, tmp_path, None, watched, **changed)
    assert game.said(AutoModelForCausalLM.from_pretrained(out), "begin", "go")["c"] > 0.9
    rows = read_rows(tmp_path / "log.jsonl")
    assert [row["step"] for row in rows] == list(range(41))
    assert [row["step"] for row in rows if "eval_c" in row] == [0, 20, 40]
    assert rows[-1]["reward"] > 0.9 > rows[1]["reward"] and rows[1]["entropy"] > rows[-1]["entropy"] > 0
    logged = {"approx_kl", "clip_fraction", "grad_norm", "asks", "turns", "tokens", "seconds"}
    assert logged <= rows[1].keys()


@pytest.mark.parametrize(
    ("method", "changed"), [*[("grpo", {"credit": c}) for c in ("episode", "turn")], ("ppo", {})]
)
def test_a_second_turn_that_alone_matters_is_learned(tmp_path, method, changed):
    game.train(method, tmp_path, max_steps=60, save_steps=0, **changed)
    assert np.mean([row["reward"] for row in read_rows(tmp_path / "log.jsonl")[-6:]]) > 0.9


@BOTH
def test_an_adapter_learns_is_all_that_is_saved_and_the_next_stage_goes_on_with_it(method, tmp_path):
    """From a model whose output layer, which no adapter changes, is strong enough to prefer a word."""
    begun, lora = game.make_model(), {"lora": (4, 8), "learning_rate": 5e-3, "save_steps": 0}
    begun.lm_head.weight.data *= 8
    begun.save_pretrained(tmp_path / "start")
    first = game.train(method, tmp_path / "first", tmp_path / "start", game.BANDIT, **lora, max_steps=30)
    assert not (first / "model.safetensors").exists()
    saved, learned = load_file(first / "adapter_model.safetensors"), read_model(first, torch.float32)
    assert saved and all("lora_" in name for name in saved)
    assert game.said(learned, "begin", "go")["c"] > 0.8
    base = {name.replace(".base_layer", ""): w for name, w in learned.get_base_model().state_dict().items()}
    assert all(torch.equal(base[name], w) for name, w in begun.state_dict().items())

    lora |= {"max_steps": 3, "learning_rate": 1e-3}
    second = game.train(method, tmp_path / "second", first, game.BANDIT, **lora)
    assert read_rows(tmp_path / "second" / "log.jsonl")[0]["reward"] > 0.8
    assert (second / "adapter_config.json").exists()


@pytest.fixture
def engines(monkeypatch):
    """Stand-ins for TRL's vLLM: the model itself. A sync merges an adapter into the base and takes it off
    again: in bfloat16 the base has changed then."""
    made = []

    class Engine:
        def __init__(self, model, *_, **__):
            self.llm, self.synced = model, 0
            made.append(self)

        def sync_weights(self):
            self.synced += 1
            for name, weights in self.llm.named_parameters():
                if hasattr(self.llm, "peft_config") and "lora" not in name:
                    weights.data += 0.01

    monkeypatch.setattr(vllm_generation, "VLLMGeneration", Engine)
    return made


def test_vllm_plays_with_the_weights_of_each_step_and_its_tokens_count_by_what_the_trainer_thinks(
    tmp_path, engines, monkeypatch
):
    """Its log-probabilities are told too low by some nats."""
    monkeypatch.setattr(learner, "MAX_GRAD_NORM", 1e9)
    norms, changed = [], {"max_steps": 1, "eval_steps": 1, "save_steps": 0}
    for off in (0.0, math.log(2), math.log(50)):

        def play(model, tasks, seed, off=off):
            assert model is engines[-1].llm
            episodes = game.play_bandit(model, tasks, seed)
            return [replace(each, logprobs=[p - off for p in each.logprobs]) for each in episodes]

        watched, folder = game.Game(play, game.pay_bandit, lambda model: {"c": 1.0}), tmp_path / str(off)
        game.train("grpo", folder, None, watched, use_vllm=True, **changed)
        norms.append(read_rows(folder / "log.jsonl")[1]["grad_norm"])
    assert norms == pytest.approx([norms[0], 2 * norms[0], 3 * norms[0]], rel=1e-4)  # 3 at most
    # Before the first step, its episodes, and at the end.
    assert [engine.synced for engine in engines] == [3, 3, 3]


def test_what_vllms_sync_leaves_of_the_base_is_put_right(tmp_path, engines):
    model = game.make_model()
    before = {weights.data_ptr(): weights.clone() for weights in model.parameters()}
    game.train("grpo", tmp_path, model, game.BANDIT, use_vllm=True, lora=(4, 8), max_steps=2, save_steps=0)
    base = [weights for name, weights in model.named_parameters() if "lora" not in name]
    assert len(base) == len(before)
    assert all(torch.equal(weights, before[weights.data_ptr()]) for weights in base)


def test_the_critic_comes_to_foresee_returns(monkeypatch):
    monkeypatch.setattr(learner, "CRITIC_LEARNING_RATE", 3e-3)
    features = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
    returns = features[:, 0] - 2 * features[:, 1]
    critic = Critic(16, Accelerator(cpu=True))
    assert not critic.values(features).any()  # it expects nothing at first
    explained = [critic.fit(features, returns, seed) for seed in range(30)]
    assert explained[0] == pytest.approx(0, abs=1e-6) and explained[-1] > 0.95


# What a step took is no part of what it did.
TIMES = ("seconds", "rollout_seconds")


@pytest.mark.parametrize("lora", [None, (4, 8)])
@pytest.mark.parametrize(
    ("method", "moment"),
    [
        ("grpo", lambda run: len(read_rows(run / "log.jsonl")) >= 3),  # in the middle
        ("ppo", lambda run: (run / "checkpoint-6").exists()),  # while it saves, or just after
    ],
)
def test_a_killed_run_ends_with_the_same_weights_and_log_and_is_not_run_again(tmp_path, method, moment, lora):
    whole, killed, changed = tmp_path / "whole", tmp_path / "killed", TWICE | {"lora": lora}
    changed |= {"draws": 2} if method == "grpo" else {}
    game.train(method, whole, **changed)
    process = begin(game.train, method, killed, **changed)
    while not moment(killed):
        assert process.exitcode is None, "the run ended before it was killed"
        time.sleep(0.002)
    kill(process)
    for stored in map(torch.load, killed.glob("checkpoint-*/pytorch_model.bin")):
        assert all("lora_" in name for name in stored) == bool(lora), "the base is not written each time"
    assert 0 < len(read_rows(killed / "log.jsonl")) < 8
    out = game.train(method, killed, **changed)
    files = [next(folder.glob("*.safetensors")) for folder in (whole / "model", out)]
    one, other = map(load_file, files)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    logs = [
        [{name: value for name, value in row.items() if name not in TIMES} for row in read_rows(path)]
        for path in (whole / "log.jsonl", killed / "log.jsonl")
    ]
    assert logs[0] == logs[1] and [row["step"] for row in logs[1]] == list(range(1, 9))
    assert not [*whole.glob("checkpoint-*")]

    written = files[1].stat().st_mtime_ns
    assert game.train(method, killed, **changed) == out and files[1].stat().st_mtime_ns == written


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_step_learns_from_filled_slots_alone_and_from_none_where_all_agree(tmp_path, minibatches):
    """Of two kinds of tasks one always fails: half of the slots stay empty, and at the end all."""
    kinds = ["search", "review"] * 2
    tasks = [t.model_copy(update={"type": k}) for t, k in zip(game.make_tasks(4), kinds, strict=True)]
    paid = {"steps": 0}

    def pay(episodes):
        paid["steps"] += 1
        mixed = paid["steps"] <= 2 * 4  # draws of the first four steps
        own = [int(played.task_id[1:]) % 2 == 0 and mixed for _, played in episodes]
        return {"task": [[float(differs and i % 2)] for i, differs in enumerate(own)]}

    watched = game.Game(game.play_bandit, pay, tasks=tasks)
    changed = {"draws": 2, "minibatches": minibatches, "max_steps": 6, "save_steps": 0}
    game.train("grpo", tmp_path, None, watched, **changed)
    rows = read_rows(tmp_path / "log.jsonl")
    assert [row["informative_search"] for row in rows] == [2, 2, 2, 2, 0, 0]
    assert {row["informative_review"] for row in rows} == {0}
    assert [row["sampled"] for row in rows] == [48] * 4 + [64] * 2
    assert all(row["moved_search"] > 0 == row["moved_review"] and "loss" in row for row in rows[:4])
    assert not any("loss" in row or "moved_search" in row for row in rows[4:])
    # Each half of a minibatch needs a group of its own.
    assert all(-1 <= row["cosine"] <= 1 for row in rows[:4]) if minibatches == 1 else "cosine" not in rows[0]


def test_a_training_that_diverges_says_so(tmp_path, monkeypatch):
    token_losses = learner.token_losses

    def broken(*given):
        return token_losses(*given)._replace(loss=given[0] * float("nan"))

    monkeypatch.setattr(learner, "token_losses", broken)
    with pytest.raises(RuntimeError, match="diverged: loss is nan at step 1"):
        game.train("grpo", tmp_path, minibatches=2)


def test_what_cannot_be_is_refused_before_anything_runs_and_settings_say_what_they_mean(tmp_path):
    for changed, said in game.CIRCUMSTANCES["refused"]:
        with pytest.raises((ValueError, ImportError), match=said):
            game.train("grpo", tmp_path, **changed)
    assert not list(tmp_path.iterdir())
    for group in (GrpoSettings, PpoSettings):
        assert all(field.description for field in group.model_fields.values())


def test_a_rollout_that_contradicts_itself_is_named(tmp_path):
    def play(*given):
        cut, *others = game.play_cue(*given)
        return [replace(cut, mask=cut.mask[:-1]), *others]

    with pytest.raises(ValueError, match=r"rollout of task t\d has 4 completion tokens, but 3 mask"):
        game.train("grpo", tmp_path, game=game.Game(play, game.pay_cue))


# The log


def test_rows_after_the_checkpoint_and_a_cut_line_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st', encoding="utf-8")
    (tmp_path / "checkpoint-2").mkdir()
    seal(tmp_path / "checkpoint-2")
    checkpoint, rows = open_log(tmp_path)
    assert checkpoint.endswith("checkpoint-2") and rows == [{"step": 1}, {"step": 2}]
    append_row(tmp_path, {"step": 3, "loss": 0.5})
    assert read_rows(path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}]
    with pytest.raises(RuntimeError, match=r"diverged: loss is nan at step 7; take a lower"):
        append_row(tmp_path, {"step": 7, "loss": float("nan")})


def test_runs_stand_below_one_another_and_none_reaches_into_another(tmp_path):
    for name, rows in {
        "a": [{"eval_x": 0.5}, {"reward": 0.0}, {"reward": 1.0}],
        "b": [{"reward": 4.0}],
    }.items():
        (tmp_path / name).mkdir()
        for step, row in enumerate(rows):
            append_row(tmp_path / name, {"step": step} | row)
    curves = read_curves({"GRPO": tmp_path / "a", "PPO": tmp_path / "b"})
    assert list(curves.columns) == ["run", "step", "eval_x", "reward"]
    assert list(curves["run"]) == ["GRPO"] * 3 + ["PPO"] and list(curves["step"]) == [0, 1, 2, 0]
    assert curves["eval_x"].isna().tolist() == [False, True, True, True]


def test_a_log_that_is_none_is_named(tmp_path):
    with pytest.raises(DataError, match=r"record GRPO, field 'step': found no rows"):
        read_curves({"GRPO": tmp_path})
    for line, field in (("reward: 2", r"\(whole line\)"), ('{"reward": 2}', "step")):
        (tmp_path / "log.jsonl").write_text(f'{{"step": 1}}\n{line}\n', encoding="utf-8")
        with pytest.raises(DataError, match=f"record line 2, field '{field}'"):
            read_curves({"GRPO": tmp_path})
