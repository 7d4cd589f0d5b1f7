"""Orion's trainings: made once, found by what they follow from, told in their cards."""

from copy import copy
from dataclasses import replace

import grimp
import pytest

from pwagents.errors import DataError
from pwagents.evaluation.statistics import summarise
from pwagents.lm.exercises import ids_and_titles
from pwagents.lm.log import not_falling, read_losses
from pwagents.orion import train as orion_train
from pwagents.orion.runs import episodes_frame
from pwagents.orion.train import RL, OrionModels, add_results
from pwagents.rl.log import read_curves
from pwagents.rl.rollout import Rollout
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.schema import Action, Review

from .small_study import REWARD, elsewhere, save_tiny_model, small_study

STEP = {
    "max_steps": 1,
    "prompts_per_step": 2,
    "num_generations": 2,
    "per_device_train_batch_size": 4,
    "eval_steps": 1,
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return small_study(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def models(study):
    return OrionModels(study)


@pytest.fixture(scope="module")
def base(study):
    return save_tiny_model(study.output_dir / "tiny")


@pytest.fixture(scope="module")
def kept(models):
    return models.role_play(4).kept


@pytest.fixture(scope="module")
def sft(models, base, kept):
    return models.sft(base, kept)


def stored_models(study, **changes):
    """Those that are there: whatever else is asked for is an error."""
    return OrionModels(elsewhere(study, study.output_dir, stored_runs_only=True, **changes))


def test_fewer_trajectories_are_the_first_of_more(models, kept):
    assert models.role_play(2).kept == kept[:2]
    assert stored_models(models.study).role_play(4).kept == kept
    stricter = replace(models.study.settings.role_play, success_rank=9)
    with pytest.raises(DataError, match="an episode missing"):
        stored_models(models.study, role_play=stricter).role_play(4)


def test_a_pipeline_with_another_seed_has_another_base_model_and_other_conversations(
    study, kept, monkeypatch
):
    made = []
    monkeypatch.setattr(orion_train, "base_model", lambda *given, **_: made.append(given[3]))
    same, other = replace(OrionModels(study), seed=study.seed), OrionModels(study, study.seed + 1)
    for models in (OrionModels(study), same, other):
        models.base()
    assert made == [study.seed, study.seed, study.seed + 1]
    assert same.role_play(4).kept == kept != other.role_play(4).kept
    assert (
        same.base_text.dialogue(0) == OrionModels(study).base_text.dialogue(0) != other.base_text.dialogue(0)
    )


def test_fine_tuning_learns_and_is_found_again(models, base, kept, sft):
    assert not_falling(read_losses({"sft": sft})) == []
    stored, config = stored_models(models.study), models.study.settings.sft
    assert stored.sft(base, kept, replace(config, trainer=config.trainer | {"save_steps": 7})) == sft
    told_more = replace(models.study.settings.players, shown=3)
    for other in (
        lambda: stored.sft(base, kept[:3]),
        lambda: stored.sft(base, kept, replace(config, seed=1)),
        lambda: stored_models(models.study, players=told_more).sft(base, kept),
    ):
        with pytest.raises(DataError, match=r"orion-sft.*run once with stored_runs_only=False"):
            other()


def test_a_card_tells_what_a_model_was_made_from_and_what_it_achieved(study, sft):
    card = (sft / "README.md").read_text()
    assert study.benchmark.content_hash in card and "## Results" not in card
    code = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(sft))
    exec(code, said := {})
    assert said["agent"](study.start(study.test_tasks[0]).state).thought is not None
    assert said["agent"].shown == 2
    add_results(sft, summarise(episodes_frame([]), ["method", "type"], ["result_final"]))
    added = (sft / "README.md").read_text()
    assert "## Results" in added and added.replace("\r", "").startswith(card.split("## Use")[0][:200])


@pytest.mark.parametrize(("stage", "config"), [("grpo", GrpoSettings(**STEP)), ("ppo", PpoSettings(**STEP))])
def test_reinforcement_learning_goes_on_from_a_model_of_the_study(models, sft, stage, config):
    run = models.reinforced(sft, config, REWARD, log_tasks=3)
    curves = read_curves({stage: run})
    assert curves["step"].tolist() == [0, 1] and curves["eval_result_final"].notna().all()
    assert (run / "model" / "model.safetensors").exists() and not list(run.glob("checkpoint-*"))
    card = (run / "model" / "README.md").read_text()
    assert f"orion-{stage}" in card and "shown=2)" in card
    assert models.reinforced(sft, config, REWARD, log_tasks=3) == run
    stored = stored_models(models.study)
    with pytest.raises(DataError, match=f"orion-{stage}"):
        stored.reinforced(sft, config, replace(REWARD, use="task"), log_tasks=3)


def test_evaluations_pass_over_what_cannot_be_scored_and_count_valid_questions(
    study, tokenizer, small_model, monkeypatch
):
    first, *others = study.test_tasks
    odd = copy(study)
    odd.test_tasks = (first.model_copy(update={"type": "review", "review": Review(rating=5)}), *others)
    evaluate = orion_train.evaluator(odd, tokenizer, GrpoSettings(**STEP), log_tasks=0)
    assert evaluate(small_model)["turns"] > 0 and evaluate(small_model) == evaluate(small_model)

    def play(model, tokenizer, tasks, start, decoding):
        """Each task: a question that is none, then a question."""
        asks = [Action(name="respond", arguments=said) for said in ({}, {"content": "Which color?"})]
        episodes = [start(task) for task in tasks]
        for episode in episodes:
            list(map(episode.step, asks))
        return [Rollout([], [], [], [], [], (), episode.trajectory) for episode in episodes]

    monkeypatch.setattr(orion_train, "play_rollouts", play)
    assert evaluate(small_model)["asks"] == 1


def test_what_a_model_is_made_from_tells_of_several_gpus_and_of_what_a_judge_is_told(
    study, base, kept, sft, monkeypatch
):
    keys = []
    monkeypatch.setattr(orion_train, "cached", lambda root, name, parts, make, **_: keys.append(parts))

    def judged(**players):
        asked = elsewhere(study, study.output_dir, players=replace(study.settings.players, **players))
        OrionModels(asked).reinforced(sft, GrpoSettings(**STEP), REWARD, log_tasks=3)
        return keys[-1]["facts"]["judge"]

    assert judged() == "offline"
    known = judged(judge="openai:x", shown=3)
    assert known["shown"] == 3 and known["prompt"] and judged(judge="openai:x", shown=4) != known
    for n_gpus, told in ((2, 2), (1, None)):
        OrionModels(study).sft(base, kept, replace(study.settings.sft, n_gpus=n_gpus))
        assert keys[-1]["settings"].get("n_gpus") == told


# What decides nothing, or is told in a key by itself: the data by their content hash,
# settings by their values.
ASIDE = (
    "cache",
    "data",
    "engine",
    "evaluation",
    "errors",
    "notebook",
    "portable",
    "progress",
    "project",
    "settings",
    "threads",
)


def test_every_module_that_the_trainings_run_is_in_the_code_that_their_keys_tell():
    graph = grimp.build_graph("pwagents", exclude_type_checking_imports=True)
    imported = {"pwagents.orion.train"} | graph.find_upstream_modules("pwagents.orion.train")
    names = {module.removeprefix("pwagents.").replace(".", "/") for module in imported}
    covered = (*RL, *ASIDE)
    assert "orion/study" in names and "web/sasrec" in names and "rl/learner" in names
    assert not {name for name in names if not any(f"{name}/".startswith(f"{room}/") for room in covered)}


def test_the_base_model_reads_nothing_of_the_study_but_ids_that_it_must_not_use(study, models):
    text = models.base_text
    assert text.taken == ids_and_titles(study.benchmark.products)
    said = " ".join(str(message) for n in range(20) for message in text.dialogue(n))
    assert not any(asin in said for asin in study.benchmark.products)
    assert not any(task.instruction in said for task in (*study.train_tasks, *study.test_tasks))
