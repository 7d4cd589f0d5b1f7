"""Orion's trainings: made once, found by what they follow from, told in their cards."""

import json
from dataclasses import replace

import pytest

from pwagents.errors import DataError
from pwagents.lm.log import has_fallen, read_losses, show_tokens
from pwagents.lm.settings import SftSettings
from pwagents.orion import rl_setting as orion_rl
from pwagents.orion import train as orion_models
from pwagents.orion.base import BaseText, ids_and_titles
from pwagents.orion.play import Decoding
from pwagents.orion.reward import RewardConfig
from pwagents.orion.rl_setting import rl_setting
from pwagents.orion.runs import episodes_frame
from pwagents.orion.train import OrionModels, add_results
from pwagents.rl.log import read_curves
from pwagents.rl.rollout import Rollout
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.schema import Action, Review

from .small_study import save_tiny_model, small_study

SUCCESS = RewardConfig(success_rank=10)
TUNING = SftSettings(max_steps=20, per_device_train_batch_size=4, learning_rate=1e-2)
DECODING = Decoding(turn_tokens=12, episode_tokens=200, shown=2, batch_size=8)
RL = {
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
def base(study, models):
    return models.base(str(save_tiny_model(study.output_dir / "tiny")))


@pytest.fixture(scope="module")
def kept(models):
    return models.role_play(4, SUCCESS).kept


@pytest.fixture(scope="module")
def sft(models, base, kept):
    return models.sft(base, kept, TUNING, shown=2)


def test_fewer_trajectories_are_the_first_of_more_whatever_the_reward_is(models, kept):
    assert models.role_play(2, replace(SUCCESS, alignment_weight=0.9)).kept == kept[:2]
    stored = OrionModels(models.study, stored_only=True)
    assert stored.role_play(4, SUCCESS).kept == kept
    with pytest.raises(DataError, match="an episode missing"):
        stored.role_play(4, RewardConfig(success_rank=9))


def test_fine_tuning_learns_and_is_found_again(models, base, kept, sft):
    assert has_fallen(read_losses({"sft": sft})["loss"].tolist())
    stored = OrionModels(models.study, stored_only=True)
    assert stored.sft(base, kept, replace(TUNING, save_steps=7, report_to="tensorboard"), shown=2) == sft
    for other in (lambda: stored.sft(base, kept[:3], TUNING, 2), lambda: stored.sft(base, kept, TUNING, 3)):
        with pytest.raises(DataError, match=r"orion-sft.*expected all trainings stored"):
            other()


def test_a_card_tells_what_a_model_was_made_from_and_what_it_achieved(study, sft):
    card = (sft / "README.md").read_text()
    assert study.benchmark.content_hash in card and "## Results" not in card
    code = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(sft))
    exec(code, said := {})
    assert said["agent"](study.start(study.test_tasks[0]).state).thought is not None
    assert said["agent"].shown == 2
    add_results(sft, episodes_frame([])[["method", "result_final"]].head())
    added = (sft / "README.md").read_text()
    assert "## Results" in added and added.replace("\r", "").startswith(card.split("## Use")[0][:200])


@pytest.mark.parametrize(("stage", "config"), [("grpo", GrpoSettings(**RL)), ("ppo", PpoSettings(**RL))])
def test_reinforcement_learning_goes_on_from_a_model_of_the_study(models, sft, stage, config):
    run = models.reinforced(stage, sft, config, SUCCESS, DECODING, eval_tasks=3)
    curves = read_curves({stage: run})
    assert curves["step"].tolist() == [0, 1] and curves["eval_result_final"].notna().all()
    assert (run / "model" / "model.safetensors").exists() and not list(run.glob("checkpoint-*"))
    card = (run / "model" / "README.md").read_text()
    assert f"orion-{stage}" in card and "shown=2)" in card
    assert models.reinforced(stage, sft, config, SUCCESS, DECODING, eval_tasks=3) == run
    stored = OrionModels(models.study, stored_only=True)
    with pytest.raises(DataError, match=f"orion-{stage}"):
        stored.reinforced(stage, sft, config, replace(SUCCESS, use="task"), DECODING, eval_tasks=3)


def test_several_gpus_that_leave_no_whole_weights_to_play_with_are_refused(study, sft):
    for config, sharding, message in (
        (GrpoSettings(**RL), "fsdp", "grpo under fsdp needs vLLM.*use_vllm: true"),
        (PpoSettings(**RL), "deepspeed", "ppo under deepspeed cannot play"),
    ):
        with pytest.raises(ValueError, match=message):
            OrionModels(study, 2, sharding).reinforced("rl", sft, config, SUCCESS, DECODING, eval_tasks=3)


def test_other_processes_make_the_same_setting(study, tokenizer, small_model):
    params = {"study": study.settings, "rewards": {"use": "task"}, "decoding": {"turn_tokens": 4, "shown": 2}}
    tasks, play, rewards, evaluate = rl_setting(tokenizer, **json.loads(json.dumps(params)), eval_tasks=2)
    assert tasks == list(study.train_tasks)
    (rollout,) = play(small_model, tasks[:1], 0)
    assert rollout.trajectory.task_id == tasks[0].task_id
    assert len(rewards(rollout.states, rollout.trajectory)) == len(rollout.trajectory.steps)
    assert evaluate(small_model) == evaluate(small_model)


def test_evaluations_pass_over_what_cannot_be_scored_and_count_valid_questions(
    study, tokenizer, small_model, monkeypatch
):
    params = {"study": study.settings, "rewards": {}, "decoding": {"turn_tokens": 4, "shown": 2}}
    first, *others = study.test_tasks
    silent = first.model_copy(update={"type": "review", "review": Review(rating=5)})
    odd = replace(study, test_tasks=(silent, *others))
    monkeypatch.setattr(orion_rl, "make_study", lambda **_: odd)
    evaluate = orion_rl.rl_setting(tokenizer, **params, eval_tasks=0)[-1]
    assert evaluate(small_model)["turns"] > 0

    def play(model, tokenizer, tasks, start, decoding):
        """Each task: a question that is none, then a question."""
        asks = [Action(name="respond", arguments=said) for said in ({}, {"content": "Which color?"})]
        episodes = [start(task) for task in tasks]
        for episode in episodes:
            list(map(episode.advance, asks))
        return [Rollout([], [], [], [], [], (), episode.trajectory) for episode in episodes]

    monkeypatch.setattr(orion_rl, "play_rollouts", play)
    assert evaluate(small_model)["asks"] == 1


def test_what_a_model_is_made_from_tells_of_every_gpu_and_of_what_a_judge_is_told(
    study, base, kept, sft, monkeypatch
):
    keys = []
    monkeypatch.setattr(orion_models, "cached_model", lambda root, name, parts, make: keys.append(parts))

    def judged(**roles):
        learners = OrionModels(replace(study, settings={**study.settings, "roles": roles}))
        learners.reinforced("grpo", sft, GrpoSettings(**RL), SUCCESS, DECODING)
        return keys[-1]["facts"]["judge"]

    assert judged() == "offline"
    known = judged(judge="openai:x", shown=3)
    assert known["shown"] == 3 and known["prompt"] and judged(judge="openai:x", shown=4) != known
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for n_gpus, gpus in ((None, 2), (1, None)):
        OrionModels(study, n_gpus).sft(base, kept, TUNING, shown=2)
        assert keys[-1].get("gpus") == gpus


def test_the_base_model_reads_nothing_of_the_study_but_ids_that_it_must_not_use(study, models):
    text = models.base_text
    assert isinstance(text, BaseText) and text.taken == ids_and_titles(study.benchmark.products)
    said = " ".join(str(message) for n in range(20) for message in text.dialogue(n))
    assert not any(asin in said for asin in study.benchmark.products)
    assert not any(task.instruction in said for task in (*study.train_tasks, *study.test_tasks))


def test_a_base_model_that_is_not_there_is_said_so(models):
    with pytest.raises(ValueError, match=r"base_model 'data/none'.*holds no config\.json"):
        models.base("data/none")


def test_what_is_learned_from_is_shown_escaped(tokenizer):
    from pwagents.lm.tokens import tokenize_conversation

    talk = [
        {"role": "user", "content": "<script>alert(1)</script>"},
        {"role": "assistant", "content": "<think>open: color</think>"},
    ]
    page = show_tokens(tokenizer, tokenize_conversation(tokenizer, talk)).data
    assert "<script>" not in page and "&lt;think&gt;" in page
    assert page.index('class="given">&lt;|user') < page.index('class="learned">&lt;think')


def test_a_loss_that_does_not_fall_is_seen():
    assert has_fallen([3.0, 2.0, 1.0]) and not has_fallen([3.0, 3.5, 3.2]) and not has_fallen([3.0])
