"""GRPO by TRL on tiny games: it learns, and what reaches the loss is what was played."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from pwagents.errors import DataError
from pwagents.rl import grpo_trainer
from pwagents.rl.advantages import group_advantages, states_of, token_advantages
from pwagents.rl.grpo import train_grpo
from pwagents.rl.grpo_trainer import EpisodeTrainer
from pwagents.rl.log import RunLog, read_rows
from pwagents.rl.rollout import Rollout, tasks_in_order
from pwagents.rl.settings import GrpoSettings
from pwagents.schema import Task

from . import game

ONE_STEP = {
    "max_steps": 1,
    "prompts_per_step": 3,
    "num_generations": 4,
    "per_device_train_batch_size": 12,
    "save_steps": 0,
}
UNMOVED = 1e-30  # a learning rate at which no float32 weight changes


class Watched(EpisodeTrainer):
    """Keeps what reaches the loss, and TRL's own advantages."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        self.batch = {name: value.clone() for name, value in batch.items()}
        return batch

    def _compute_loss(self, model, inputs):
        self.inputs = inputs
        return super()._compute_loss(model, inputs)


def watched(tmp_path, play=game.play_cue, pay=game.pay_bandit, **changed) -> Watched:
    """A trainer after one step of the second game, in which every word has its price."""
    config = GrpoSettings(**(ONE_STEP | changed))
    given = (game.make_model(), game.make_tokenizer(), game.make_tasks(6), play, pay)
    trainer = Watched(*given, config, RunLog(tmp_path, 0), None)
    trainer.train()
    return trainer


def rows_of(inputs, name) -> list[list[float]]:
    """What stands at the real completion tokens of each episode."""
    values, mask = inputs[name], inputs["completion_mask"].bool()
    return [[round(v, 5) for v in row[real].tolist()] for row, real in zip(values, mask, strict=True)]


@pytest.mark.parametrize("credit", ["episode", "turn", "state"])
def test_the_loss_gets_the_tokens_masks_and_advantages_of_the_rollouts(tmp_path, credit):
    trainer = watched(tmp_path, credit=credit, gamma=0.9)
    played, inputs = trainer.played, trainer.inputs
    expected = []
    for i in range(0, 12, 4):
        states = [states_of(rollout) for rollout in played.rollouts[i : i + 4]]
        per_step = group_advantages(played.rewards[i : i + 4], credit, 0.9, states=states)
        expected += map(token_advantages, played.rollouts[i : i + 4], per_step)
    expected = [
        [r.prompt_ids, r.completion_ids, r.mask, [round(a, 5) for a in advantages]]
        for r, advantages in zip(played.rollouts, expected, strict=True)
    ]
    prompts = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(inputs["prompt_ids"], inputs["prompt_mask"], strict=True)
    ]
    columns = [rows_of(inputs, name) for name in ("completion_ids", "tool_mask", "advantages")]
    found = [list(row) for row in zip(prompts, *columns, strict=True)]
    assert found == expected, "in their order: the episodes of a task stay together"
    assert any(any(row[3]) for row in found)


@pytest.mark.parametrize(("changed", "learned"), [({}, 8), ({"beta": 0.1}, 12), ({"entropy_coef": 0.1}, 12)])
def test_groups_that_all_earned_the_same_are_in_the_log_and_read_for_learning_only_where_all_count(
    tmp_path, monkeypatch, changed, learned
):
    calls, score = [], grpo_trainer._score_rows  # rows, whether with gradient, entropy, tokens

    def watched_score(model, ids, *given):
        found = score(model, ids, *given)
        calls.append((len(ids), found[0].requires_grad, float(found[1].detach().sum()), int(given[1].sum())))
        return found

    def pay(states, trajectory):
        same = trajectory.task_id == first
        return [1.0] * len(trajectory.steps) if same else game.pay_bandit(states, trajectory)

    config = GrpoSettings(**ONE_STEP, **changed)
    first = tasks_in_order(game.make_tasks(6), config)[0].task_id
    monkeypatch.setattr(grpo_trainer, "_score_rows", watched_score)
    game.save_model(tmp_path / "start")
    given = (game.make_tokenizer(), game.make_tasks(6), game.play_cue, pay, config, tmp_path / "run")
    train_grpo(tmp_path / "start", *given)
    in_loss = [call for call in calls if call[1]]
    assert sum(rows for rows, *_ in in_loss) == learned
    if learned < 12:
        in_loss += [call for call in calls if not call[1]]
    entropy = sum(call[2] for call in in_loss) / sum(call[3] for call in in_loss)
    assert read_rows(tmp_path / "run" / "log.jsonl")[0]["entropy"] == pytest.approx(entropy, rel=1e-4)


def test_an_episode_is_read_where_none_moves_and_all_of_them_by_several_processes(tmp_path):
    trainer, nothing = watched(tmp_path), torch.zeros(4, 3)
    assert trainer._moved_by(nothing).tolist() == [True, False, False, False]
    trainer.accelerator = SimpleNamespace(num_processes=2)
    assert trainer._moved_by(nothing).all()


def test_advantages_per_episode_are_those_of_trl(tmp_path, monkeypatch):
    theirs = {}
    generate = GRPOTrainer._generate_and_score_completions

    def keep(self, inputs):
        batch = generate(self, inputs)
        theirs["advantages"] = batch["advantages"]
        return batch

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", keep)
    trainer = watched(tmp_path, play=game.play_bandit, pay=game.pay_bandit)
    assert theirs["advantages"].abs().max() > 0.5
    assert torch.allclose(trainer.batch["advantages"][:, 0], theirs["advantages"], atol=1e-4)


def test_log_probabilities_are_those_of_trl_where_something_is_learned(tmp_path):
    trainer = watched(tmp_path, temperature=0.7, learning_rate=UNMOVED)
    inputs = trainer.inputs
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    kept = inputs["completion_ids"].shape[1]
    with torch.no_grad():
        ours = trainer._get_per_token_logps_and_entropies(trainer.model, ids, real, kept)
        theirs = GRPOTrainer._get_per_token_logps_and_entropies(
            trainer, trainer.model, ids, real, kept, compute_entropy=True
        )
    learned = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    for mine, trl in zip(ours[:2], theirs[:2], strict=True):
        assert torch.allclose(mine[learned], trl[learned], atol=1e-5)
        assert not mine[~learned].any()


def test_the_rollouts_log_probabilities_are_the_trainers(tmp_path):
    trainer = watched(tmp_path, learning_rate=UNMOVED)
    inputs = trainer.inputs
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        found = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, real, inputs["completion_ids"].shape[1]
        )
    assert torch.allclose(found[0], inputs["sampling_per_token_logps"], atol=1e-5)


def test_each_task_is_scored_at_its_own_temperature(tmp_path):
    tasks = [
        t.model_copy(update={"type": "review"}) if i % 2 else t for i, t in enumerate(game.make_tasks(6))
    ]
    config = GrpoSettings(**ONE_STEP, temperature=0.6, review_temperature=1.0)
    given = (game.make_model(), game.make_tokenizer(), tasks, game.play_cue, game.pay_cue)
    trainer = Watched(*given, config, RunLog(tmp_path, 0), None)
    trainer.train()
    types = {task.task_id: task.type for task in tasks}
    expected = [config.temperature_of(types[r.trajectory.task_id]) for r in trainer.played.rollouts]
    assert trainer.batch["temperatures"].tolist() == pytest.approx(expected)
    assert len(set(expected)) == 2


def test_what_came_back_teaches_nothing(tmp_path):
    """The gradient is the same whatever advantages stand at tokens that the policy did not write."""
    trainer = watched(tmp_path)
    gradients = []
    for wrong in (0.0, 1000.0):
        inputs = dict(trainer.inputs)
        written = (inputs["tool_mask"] * inputs["completion_mask"]).bool()
        inputs["advantages"] = inputs["advantages"].masked_fill(~written, wrong)
        trainer.model.zero_grad()
        trainer._compute_loss(trainer.model, inputs).backward()
        gradients.append([p.grad.clone() for p in trainer.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert any(g.any() for g in gradients[0])


def test_several_micro_batches_make_the_same_step_as_one(tmp_path):
    weights = []
    for size in (12, 4):
        trainer = watched(tmp_path / str(size), per_device_train_batch_size=size)
        weights.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    assert torch.allclose(*weights, atol=1e-5)


def test_the_bandit_is_learned(tmp_path):
    given = (game.save_model(tmp_path / "start"), game.make_tokenizer(), game.make_tasks(6))
    config = game.CONFIGS["grpo"](max_steps=40, save_steps=0, eval_steps=20)
    found = {}
    out = train_grpo(
        *given,
        game.play_bandit,
        game.pay_bandit,
        config,
        tmp_path / "run",
        evaluate=lambda model: found | {"c": 1},
    )
    model = AutoModelForCausalLM.from_pretrained(out)
    assert game.said(model, "begin", "go")["c"] > 0.9
    rows = read_rows(tmp_path / "run" / "log.jsonl")
    assert [row["step"] for row in rows] == list(range(41))
    assert [row["step"] for row in rows if "eval_c" in row] == [0, 20, 40]
    assert rows[-1]["reward"] > 0.9 > rows[1]["reward"]
    assert rows[1]["entropy"] > rows[-1]["entropy"] > 0
    wanted = {
        "reward",
        "kl",
        "clip_fraction",
        "grad_norm",
        "asks",
        "turns",
        "tokens",
        "seconds",
        "result_final",
    }
    assert wanted <= rows[1].keys()


@pytest.mark.parametrize("credit", ["episode", "turn", "state"])
def test_a_second_turn_that_alone_matters_is_learned(tmp_path, credit):
    game.save_model(tmp_path / "start")
    out = game.train("grpo", tmp_path, max_steps=60, save_steps=0, credit=credit)
    assert game.mean_reward(out) > 0.9


def test_a_reference_model_holds_the_policy_back(tmp_path):
    game.save_model(tmp_path / "start")
    game.train("grpo", tmp_path, max_steps=15, save_steps=0, beta=10.0)
    rows = read_rows(tmp_path / "run" / "log.jsonl")
    assert 0 < rows[-1]["kl"] < 0.1
    assert rows[-1]["reward"] < 0.3


def test_a_finished_run_is_not_run_again_and_other_settings_are_refused(tmp_path):
    game.save_model(tmp_path / "start")
    out = game.train("grpo", tmp_path, max_steps=2)
    written = (out / "model.safetensors").stat().st_mtime_ns
    assert game.train("grpo", tmp_path, max_steps=2) == out
    assert (out / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(DataError, match=r"'learning_rate': found 0\.005; expected 0\.1"):
        game.train("grpo", tmp_path, max_steps=2, learning_rate=0.1)


def test_a_tracker_that_is_not_installed_is_named_before_anything_runs(tmp_path):
    with pytest.raises(ImportError, match="pip install trackio"):
        game.train("grpo", tmp_path, report_to="trackio")
    assert not (tmp_path / "run").exists()


def test_a_rollout_that_contradicts_itself_is_named(tmp_path):
    def play(model, tasks: list[Task], seed: int) -> list[Rollout]:
        whole = game.play_cue(model, tasks, seed)
        cut = whole[0]
        return [Rollout(**(vars(cut) | {"mask": cut.mask[:-1]})), *whole[1:]]

    with pytest.raises(ValueError, match=r"rollout of task t\d has 4 completion tokens, but 3 mask"):
        watched(tmp_path, play=play)
