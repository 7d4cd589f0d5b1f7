"""Orion's trainings: made once, found by what they follow from, each in the world of its settings."""

import os
import shutil
from dataclasses import replace

import pandas as pd
import pytest
from safetensors.torch import load_file
from scipy.special import stdtrit

from pwagents.errors import DataError, NotEvaluableError
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.base import SHIPPED
from pwagents.lm.launch import side_by_side
from pwagents.lm.train import not_falling, read_losses
from pwagents.orion import game as orion_game
from pwagents.orion.game import OrionGame
from pwagents.orion.study import make_study
from pwagents.orion.train import fine_tuned, game_of, make_conversations, reinforced, train_all
from pwagents.orion.variations import FOREIGN, MIXED, train_starts
from pwagents.results.statistics import mean_interval
from pwagents.rl.log import LOG, read_curves, read_rows
from pwagents.rl.rollout import play_batch
from pwagents.rl.train import train_policy
from pwagents.settings import GrpoNotebook, GrpoSettings, PpoSettings

from .small_study import CIRCUMSTANCES, GROUPS, SEARCHES, call, elsewhere, notebook, small_settings

STEP = CIRCUMSTANCES["step"]
RL = STEP | {"log_tasks": 3, "methods": ("GRPO", "PPO")}


@pytest.fixture(scope="module")
def kept(study):
    return make_conversations(study, 4).kept


@pytest.fixture(scope="module")
def sft(study, tiny, kept):
    return fine_tuned(study, tiny, kept, study.settings.sft)


@pytest.fixture(scope="module")
def settings(study):
    """Of notebook 06, in the study's folder."""
    return notebook(GrpoNotebook, study.settings, rl=RL)


def stored_only(study, **changes):
    """The study where whatever is not there is an error."""
    return elsewhere(study, study.output_dir, stored_runs_only=True, **changes)


def test_a_pipeline_with_another_seed_has_other_conversations(study, kept, monkeypatch):
    same, other = (make_conversations(study, 4, seed).kept for seed in (study.seed, study.seed + 1))
    assert same == kept != other
    assert make_conversations(stored_only(study), 4).kept == kept
    monkeypatch.setattr("pwagents.orion.train.count_questions", lambda study: 9)  # the teacher asks more
    with pytest.raises(DataError, match="an episode missing"):
        make_conversations(stored_only(study), 4)


def test_a_control_learns_from_episodes_that_begin_with_another_users_memory(study, tiny, kept, sft):
    own, foreign = (train_starts(study, each) for each in ("", FOREIGN))
    told = [
        (begin(task).state, study.context(task)) for begin in (own, foreign) for task in study.train_tasks
    ]
    n = len(study.train_tasks)
    assert all(state.context == context for state, context in told[:n])
    assert sum(state.context != context for state, context in told[n:]) > n / 2
    assert all(a.history == b.history for (a, _), (b, _) in zip(told[:n], told[n:], strict=True))
    learned = make_conversations(study, 4, variation=FOREIGN).kept
    assert learned != kept
    assert fine_tuned(study, tiny, learned, study.settings.sft, FOREIGN) != sft


def test_mixed_demonstrations_update_the_profile_in_a_share_of_the_tasks(study, kept):
    share = elsewhere(study, study.output_dir, role_play={"not_updated": 0.5})
    episodes, was_told = map(train_starts(share, MIXED), share.train_tasks), []
    for episode in episodes:
        episode.step(call("ask", "Which color would you like?"))
        was_told.append(bool(episode.state.session[0].profile))
    assert 0.2 < sum(was_told) / len(was_told) < 0.8
    assert make_conversations(share, 4, variation=MIXED).kept != kept == make_conversations(share, 4).kept


def test_fine_tuning_learns_and_is_found_again(study, tiny, kept, sft):
    assert not_falling(read_losses({"sft": sft})) == []
    stored, config = stored_only(study), study.settings.sft
    aside = config.changed(sharding="ddp", trainer=config.trainer | {"save_steps": 7, "report_to": "none"})
    assert fine_tuned(stored, tiny, kept, aside) == sft, "which decides nothing"
    told_more = stored_only(study, players=study.settings.players.changed(shown=3))
    for other in (
        (stored, tiny, kept[:3], config),
        (stored, tiny, kept, config.changed(seed=1)),
        (stored, tiny, kept, config.changed(n_gpus=2)),
        (told_more, tiny, kept, config),
    ):
        with pytest.raises(DataError, match=r"orion-sft.*run once with stored_runs_only=False"):
            fine_tuned(*other)


def test_a_model_whose_template_tells_no_calls_is_not_trained(study, tiny, kept, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(DataError, match=r"chat template.*drops a call.*the functions that may be called"):
        fine_tuned(study, folder, kept, study.settings.sft)


@pytest.mark.parametrize("method", ["GRPO", "PPO"])
def test_reinforcement_learning_goes_on_from_a_model_of_the_study(settings, sft, method):
    run = reinforced(settings, sft, method)
    curves = read_curves({method: run})
    assert curves["step"].tolist() == [0, 1]
    assert curves[["eval_result_final", "eval_return"]].notna().all(axis=None)
    assert {"reward_task", "reward_alignment", "reward_patience"} <= {*curves}
    assert (run / "model" / "model.safetensors").exists() and not list(run.glob("checkpoint-*"))
    assert run.name.startswith(f"orion-{method.lower()}-")
    stored = settings.changed(stored_runs_only=True)
    assert reinforced(stored, sft, method) == reinforced(stored, sft, method, settings.seed) == run
    assert reinforced(stored.changed(players={"workers": 2}, rl={"save_steps": 7}), sft, method) == run
    for changes in (
        {"rl": {"warmup_steps": 3}},
        {"rl": {"log_tasks": 2}},
        {"rl": {"seed": 1}},
        {"rl": {"patience": 0.1}},
        {"players": {"judge": "replay:x"}},
        {"play": {"batch_size": 4}},
    ):
        with pytest.raises(DataError, match=r"orion-(grpo|ppo)"):
            reinforced(stored.changed(**changes), sft, method)


def test_ppo_plays_as_many_episodes_as_grpo_sampled(settings, sft):
    drawing = settings.changed(rl={"draws": 3, "seed": 5})
    sampled = [read_rows(reinforced(drawing, sft, name) / LOG)[1]["sampled"] for name in ("GRPO", "PPO")]
    assert sampled[0] == sampled[1] > drawing.rl.episodes


@pytest.mark.filterwarnings("error::UserWarning")
def test_steps_whose_groups_teach_nothing_leave_the_policy_as_it_is(settings, sft):
    run = reinforced(settings.changed(rl={"draws": 2, "temperature": 1e-4}), sft)  # groups of equal episodes
    (row,) = (row for row in read_rows(run / LOG) if "sampled" in row)
    assert "loss" not in row and row["sampled"] == 2 * settings.rl.episodes
    before, after = (load_file(folder / "model.safetensors") for folder in (sft, run / "model"))
    assert all(before[name].equal(after[name]) for name in before)


def test_a_game_plays_and_pays_as_the_settings_say(settings):
    hotter = settings.changed(rl={"temperature": 0.7, "patience": 0.2})
    game = game_of(hotter, hotter.rl.ppo)
    assert (game.temperature, game.log_tasks) == (0.7, 3)
    assert game.reward == hotter.paid and game.reward.patience == 0.2 != hotter.earned.patience
    assert game.tasks == make_study(settings).train_tasks


def test_a_refusal_behind_a_role_ends_neither_a_training_nor_its_evaluation(study, tiny, monkeypatch):
    """The user refuses each answer, the updater each update; policies that write anything go on."""

    def refuse(*_, **__):
        raise NotEvaluableError("a content filter")

    def ask(model, tokenizer, tasks, start, decoding, seed=0):
        episodes = [start(task) for task in tasks]
        answers.extend(episode.step(call("ask", "Which color?")) for episode in episodes)
        return played(model, tokenizer, tasks, start, decoding, seed)

    answers, played = [], orion_game.play_rollouts
    monkeypatch.setattr(orion_game, "make_study", lambda settings: study)
    monkeypatch.setattr(study, "_user", refuse)
    monkeypatch.setattr(study, "_update", refuse)
    monkeypatch.setattr(orion_game, "play_rollouts", ask)
    model, tokenizer = read_model(tiny, "float32").eval(), read_tokenizer(tiny)
    game = OrionGame(study.settings, study.settings.earned, 0, temperature=0.7)
    rollouts = play_batch(game, model, tokenizer, study.train_tasks[:2], 0).rollouts
    temperatures = {(each.trajectory.type == "review", each.temperature) for each in rollouts}
    assert temperatures <= {(True, 1.0), (False, 0.7)}
    measured = game.evaluate(model, tokenizer)
    assert measured["turns"] > 0 and game.evaluate(model, tokenizer) == measured
    tested = study.train_tasks[::4]
    monkeypatch.setattr(study, "validation_tasks", tested)
    measured = game.evaluate(model, tokenizer)
    played = play_batch(replace(game, greedy=True), model, tokenizer, tested, 0)
    returns = pd.Series([sum(steps) for steps in played.rewards])
    users = [task.user_id for task in tested]
    assert measured["return"] == pytest.approx(returns.mean()) and len({*users}) > 1
    half = mean_interval(returns, users).high - returns.mean()
    assert measured["error"] * stdtrit(len({*users}) - 1, 0.975) == pytest.approx(half)
    assert {f"return_{task.type}" for task in tested} <= measured.keys()
    assert {step.observation.text for step in answers} == {"..."} and not any(s.profile for s in answers)


def test_trainings_run_beside_each_other_or_in_one_process_and_make_their_study(study, ship, monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    small = study.settings.base
    assert len(set(side_by_side(lambda _: os.getpid(), range(2), small, one_by_one=False))) == 2
    # Models behind roles keep trainings in one process, and so does a base model that takes GPUs.
    assert not study.settings.one_by_one
    asked = study.settings.changed(players={"updater": "openai:gpt-4o-mini"})
    assert asked.one_by_one and study.settings.changed(stored_runs_only=True).one_by_one
    large = small.model_copy(update={"model": "folder"})
    for base, one_by_one in ((small, True), (large, False)):
        made = side_by_side(lambda _: os.getpid(), range(2), base, one_by_one=one_by_one)
        assert made == [os.getpid()] * 2
    ship()

    def train(n):
        return [task.task_id for task in make_study(study.settings).train_tasks[:n]]

    assert side_by_side(train, [1, 2], small, one_by_one=False) == [train(1), train(2)]


def test_a_world_has_its_own_people_and_trainings_and_the_runs_own_is_found(tiny, tmp_path):
    trainer = GROUPS["sft"]["trainer"] | {"max_steps": 1}
    few = {"study": SEARCHES, "base": {"model": str(tiny)}, "sft": {"trainer": trainer}}
    small = small_settings(tmp_path, role_play={"n_trajectories": 4}, **few)
    settings = notebook(GrpoNotebook, small, rl=RL | {"log_tasks": 1})
    study = make_study(settings)
    tuned = fine_tuned(study, tiny, make_conversations(study, 4).kept, settings.sft)
    grpo = reinforced(settings, tuned)

    worlds = [settings.seeded(world) for world in (0, 1)]
    own, other = map(train_all, worlds)
    assert list(own) == list(other) == ["Base", "SFT", "GRPO", "PPO"]
    assert own["Base"] == other["Base"] == tiny and (own["SFT"], own["GRPO"]) == (tuned, grpo)
    for name in ("SFT", "GRPO", "PPO"):
        assert own[name].parent == tmp_path / "models"
        assert other[name].parent == tmp_path / "worlds" / "1" / "models"
    tested = [{task.task_id for task in make_study(each).test_tasks} for each in worlds]
    assert tested[0] == {task.task_id for task in study.test_tasks} and not tested[0] & tested[1]


class Few(OrionGame):
    """The first searches that a teacher's conversations succeeded in: what they earn can be reached."""

    @property
    def tasks(self):
        kept = {each.task_id for each in make_conversations(self.study, 24).kept}
        return [t for t in self.study.train_tasks if t.type == "search" and t.task_id in kept][:3]

    def evaluate(self, model, tokenizer):
        return {}


@pytest.mark.slow
def test_a_handful_of_tasks_is_learned_by_heart(tmp_path):
    """By GRPO and by PPO, from the small base model: nearly all episodes succeed then."""
    play = {"turn_tokens": 64, "episode_tokens": 700, "batch_size": 64, "temperature": 0.8}
    few = small_settings(tmp_path, play=play)
    study, trainer = make_study(few), {"max_steps": 40, "learning_rate": 2e-3, "max_length": 1024}
    tuning = few.sft.changed(trainer=trainer | {"per_device_train_batch_size": 8})
    tuned = fine_tuned(study, SHIPPED / "orion", make_conversations(study, 24).kept, tuning)
    given = {"max_steps": 32, "learning_rate": 6e-4, "warmup_steps": 2, "temperature": 0.8, "save_steps": 0}
    given["lr_scheduler_type"] = "constant_with_warmup"
    for config in (
        GrpoSettings(prompts_per_step=3, num_generations=8, **given),
        PpoSettings(prompts_per_step=24, num_generations=1, **given),
    ):
        folder = tmp_path / type(config).__name__
        train_policy(tuned, read_tokenizer(tuned), Few(few, few.earned, 0, 0.8), config, folder)
        rows = read_rows(folder / "log.jsonl")
        first, last = pd.DataFrame(rows[:4]).mean(), pd.DataFrame(rows[-4:]).mean()
        assert last["reward_task"] > 0.9 > first["reward_task"], folder.name
        assert last["reward"] > first["reward"] + 0.4, folder.name
