"""Orion's trainings: made once, found by what they follow from, told in their cards."""

import os
import shutil

import grimp
import pytest
from pwagents_old.orion import train as orion_train
from pwagents_old.orion.reward import Rewards
from pwagents_old.orion.runs import OrionRuns
from pwagents_old.orion.sensitivity import play_worlds
from pwagents_old.orion.settings import GrpoNotebook
from pwagents_old.orion.study import make_study
from pwagents_old.orion.train import RL, OrionModels, add_results, evaluator, player
from pwagents_old.project import files_of_rooms
from pwagents_old.rl.log import read_curves
from pwagents_old.rl.settings import GrpoSettings, PpoSettings

from pwagents.base_model.exercises import ids_and_titles
from pwagents.errors import DataError, NotEvaluableError
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.train import not_falling, read_losses
from pwagents.results.statistics import by_type_and_mean

from .small_study import (
    CIRCUMSTANCES,
    GROUPS,
    SEARCHES,
    call,
    elsewhere,
    notebook,
    small_settings,
    small_study,
)

STEP = CIRCUMSTANCES["step"]


@pytest.fixture(scope="module")
def kept(models):
    return models.role_play(4).kept


@pytest.fixture(scope="module")
def sft(models, tiny, kept):
    return models.sft(tiny, kept)


@pytest.fixture(scope="module")
def reward(study):
    return study.settings.earned


def stored_models(study, **changes):
    """Those that are there: whatever else is asked for is an error."""
    return OrionModels(elsewhere(study, study.output_dir, stored_runs_only=True, **changes))


def test_a_pipeline_with_another_seed_has_another_base_model_and_other_conversations(
    study, kept, monkeypatch
):
    made = []
    monkeypatch.setattr(orion_train, "base_model", lambda *given, **_: made.append(given[3]))
    same, other = OrionModels(study, study.seed), OrionModels(study, study.seed + 1)
    for models in (OrionModels(study), same, other):
        models.base()
    assert made == [study.seed, study.seed, study.seed + 1]
    assert same.role_play(4).kept == kept != other.role_play(4).kept
    asks_more = stored_models(study, role_play=study.settings.role_play.changed(questions=3))
    assert stored_models(study).role_play(4).kept == kept
    with pytest.raises(DataError, match="an episode missing"):
        asks_more.role_play(4)
    first, second, third = (each.base_text.dialogue(0) for each in (OrionModels(study), same, other))
    assert first == second != third
    assert same.base_text.taken == ids_and_titles(study.benchmark.products), "and no more of the study"


def test_fine_tuning_learns_and_is_found_again(models, tiny, kept, sft):
    assert not_falling(read_losses({"sft": sft})) == []
    stored, config = stored_models(models.study), models.study.settings.sft
    aside = config.changed(sharding="ddp", trainer=config.trainer | {"save_steps": 7, "report_to": "none"})
    assert stored.sft(tiny, kept, aside) == sft, "which decides nothing"
    told_more = models.study.settings.players.changed(shown=3)
    for other in (
        lambda: stored.sft(tiny, kept[:3]),
        lambda: stored.sft(tiny, kept, config.changed(seed=1)),
        lambda: stored.sft(tiny, kept, config.changed(n_gpus=2)),
        lambda: stored_models(models.study, players=told_more).sft(tiny, kept),
    ):
        with pytest.raises(DataError, match=r"orion-sft.*run once with stored_runs_only=False"):
            other()


def test_a_model_whose_template_tells_no_calls_is_not_trained(models, tiny, kept, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(DataError, match=r"chat template.*drops a call.*the functions that may be called"):
        models.sft(folder, kept)


def test_a_card_tells_what_a_model_was_made_from_and_what_it_achieved(study, sft):
    card = (sft / "README.md").read_text()
    assert study.benchmark.content_hash in card and "## Results" not in card
    code = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(sft))
    exec(code, said := {})
    assert said["agent"](study.start(study.test_tasks[0]).state).thought is not None
    assert said["agent"].shown == 2
    runs = OrionRuns(study, tasks=study.test_tasks[:3])
    add_results(sft, by_type_and_mean(runs.frame(runs.policy("SFT", sft)), "result_final"))
    added = (sft / "README.md").read_text()
    assert "| SFT" in added and added.replace("\r", "").startswith(card.split("## Use")[0][:200])


@pytest.mark.parametrize(("stage", "config"), [("grpo", GrpoSettings(**STEP)), ("ppo", PpoSettings(**STEP))])
def test_reinforcement_learning_goes_on_from_a_model_of_the_study(models, sft, reward, stage, config):
    run = models.reinforced(sft, config, reward, log_tasks=3)
    curves = read_curves({stage: run})
    assert curves["step"].tolist() == [0, 1]
    assert curves[["eval_result_final", "eval_return"]].notna().all(axis=None)
    assert {"reward_task", "reward_alignment", "reward_patience"} <= {*curves}
    assert (run / "model" / "model.safetensors").exists() and not list(run.glob("checkpoint-*"))
    card = (run / "model" / "README.md").read_text()
    assert f"orion-{stage}" in card and "shown=2)" in card
    assert models.reinforced(sft, config, reward, log_tasks=3) == run
    judged = models.study.settings.players.changed(judge="openai:x")
    for stored, other in (
        (stored_models(models.study), reward.changed(use="task")),
        (stored_models(models.study, players=judged), reward),
    ):
        with pytest.raises(DataError, match=f"orion-{stage}"):
            stored.reinforced(sft, config, other, log_tasks=3)


def test_a_refusal_behind_a_role_ends_neither_a_training_nor_its_evaluation(study, tiny, reward, monkeypatch):
    """The user refuses each answer, the updater each update; policies that write anything go on."""

    def refuse(*_, **__):
        raise NotEvaluableError("a content filter")

    def ask(model, tokenizer, tasks, start, decoding, seed=0):
        episodes = [start(task) for task in tasks]
        answers.extend(episode.step(call("ask", "Which color?")) for episode in episodes)
        return played(model, tokenizer, tasks, start, decoding, seed)

    answers, played = [], orion_train.play_rollouts
    monkeypatch.setattr(study, "_user", refuse)
    monkeypatch.setattr(study, "_update", refuse)
    monkeypatch.setattr(orion_train, "play_rollouts", ask)
    model, tokenizer = read_model(tiny, "float32"), read_tokenizer(tiny)
    config = GrpoSettings(**STEP | {"temperature": 0.7})
    rollouts = player(study, tokenizer, config)(model, study.train_tasks[:2], 0)
    assert [rollout.temperature for rollout in rollouts] == [0.7, 0.7]
    evaluate = evaluator(study, tokenizer, config, Rewards(study.judge, reward), log_tasks=0)
    assert evaluate(model)["turns"] > 0 and evaluate(model) == evaluate(model)
    assert {step.observation.text for step in answers} == {"..."} and not any(s.profile for s in answers)


def test_trainings_beside_each_other_have_their_study(models, study, ship, monkeypatch, tmp_path):
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    assert len(set(models.side_by_side(lambda _: os.getpid(), range(2)))) == 2
    # A study that asks a language model keeps its trainings in one process.
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    asked = small_study(tmp_path, study=SEARCHES, players={"updater": "openai:gpt-4o-mini"})
    assert OrionModels(asked).side_by_side(lambda _: os.getpid(), range(2)) == [os.getpid()] * 2
    ship()
    made = models.side_by_side(lambda n: [task.task_id for task in study.train_tasks[:n]], [1, 2])
    assert made == [[task.task_id for task in study.train_tasks[:n]] for n in (1, 2)]


# What decides nothing, or stands in a key by itself: data by their hash, settings by their values, the base
# model (whose texts are in PUMA's form, too) by its weights.
ASIDE = (
    *("base_model", "puma"),
    *("code", "data", "engine", "errors", "files", "portable", "progress", "project"),
    *("results", "settings", "store", "tasks", "urls"),
)


def test_every_module_that_the_trainings_run_is_in_the_code_that_their_keys_tell():
    graph = grimp.build_graph("pwagents", "pwagents_old", exclude_type_checking_imports=True)
    imported = {"pwagents_old.orion.train"} | graph.find_upstream_modules("pwagents_old.orion.train")
    assert {"pwagents_old.orion.study", "pwagents.shop.sasrec", "pwagents_old.rl.learner"} <= imported
    covered = {file.removesuffix(".py").replace("/", ".") for file in files_of_rooms(*RL)}
    left = {module for module in imported if not {module, f"{module}.__init__"} & covered}
    assert {module.split(".")[1] for module in left} <= {*ASIDE}


def test_a_world_has_its_own_people_and_trainings_and_the_runs_own_is_found(tiny, tmp_path):
    trainer = GROUPS["sft"]["trainer"] | {"max_steps": 1}
    few = {"study": SEARCHES, "base": {"model": str(tiny)}, "sft": {"trainer": trainer}}
    small = small_settings(tmp_path, role_play={"n_trajectories": 4}, **few)
    rl = STEP | {"log_tasks": 1, "methods": ("GRPO", "PPO"), "worlds": (0, 1)}
    settings = notebook(GrpoNotebook, small, rl=rl)

    models = OrionModels(make_study(settings))
    sft = models.sft(models.base(), models.role_play(4).kept)
    grpo = models.reinforced(sft, settings.rl.grpo, settings.paid, settings.rl.log_tasks)
    frame = play_worlds(models, settings)

    for folder, name in ((sft, "orion-sft"), (grpo, "orion-grpo")):
        assert [*(tmp_path / "models").glob(f"{name}-*")] == [folder]
        assert len([*(tmp_path / "worlds/1/models").glob(f"{name}-*")]) == 1
    own, other = (set(frame.loc[frame["world"] == world, "task_id"]) for world in (0, 1))
    assert own == {task.task_id for task in models.study.test_tasks} and not own & other
    told = frame.groupby("world")["method"].unique().map(list)
    assert told.to_list() == 2 * [["Base", "SFT", "GRPO", "PPO"]]
