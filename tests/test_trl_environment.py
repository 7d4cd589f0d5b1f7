"""Orion's episodes in TRL's hands: token by token those of our decoder, and nothing after the end."""

import inspect

import pytest
from transformers.utils import get_json_schema
from trl_environment import EpisodeLoop, OrionEnvironment, prompt_rows, with_response_template

from pwagents.adapters.core import ENDED
from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import fine_tune
from pwagents.lm.small import make_small_model
from pwagents.orion.agent import FUNCTIONS, orion_messages, orion_tools
from pwagents.orion.base import base_tokenizer
from pwagents.orion.play import orion_prompt, play_rollouts
from pwagents.orion.settings import Decoding
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import Action
from pwagents.users.rules import RuleUser
from pwagents.web.environment import MAX_STEPS, Context, UserReply, WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

from . import paper_standins

SHOWN = 2


@pytest.fixture(scope="module")
def tokenizer():
    return with_response_template(base_tokenizer())


@pytest.fixture(scope="module")
def tasks(benchmark):
    return [task for task in benchmark.tasks["train"] if task.type == "search"][:24]


@pytest.fixture(scope="module")
def start(benchmark, updater):
    """``start(task)``: an episode with a user who answers and a profile that follows what they say."""
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, None, "compact")
    context = Context(ContextualProfile(lines=(ProfileLine.of("brand: Zenflow", False, "history"),)))

    def begin(task):
        environment = WebEnvironment(shop, "multi_turn", RuleUser(benchmark.products))
        environment.reset(task, benchmark.history(task, "train"), context, updater)
        return environment

    return begin


def teach(episode):
    """The conversation of one who asks, searches for words of the instruction, and stops."""
    words = " ".join(episode.state.instruction.strip(".!?").split()[-4:])
    for about, name, arguments in (
        ("color", "respond", {"content": "Which color would you like?"}),
        ("nothing", "search_product_by_query", {"query": words}),
        ("nothing", "stop", {}),
    ):
        episode.step(Action(name=name, arguments=arguments, thought=f"<think>open: {about}</think>"))
    return orion_messages(episode.state, SHOWN)


def play_by_trl(model, tokenizer, tasks, start, folder):
    """One greedy step of TRL's trainer at learning rate 0: trajectory, prompt, tokens and mask by task."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    played = []

    class Trainer(EpisodeLoop, GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            batch = super()._generate_and_score_completions(inputs)
            for i, environment in enumerate(self.environments):
                written = batch["completion_mask"][i].bool()
                ids, mask = (batch[name][i][written].tolist() for name in ("completion_ids", "tool_mask"))
                prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
                played.append((environment.trajectory, prompt, ids, mask))
            return batch

        def _send_telemetry(self):
            pass

    by_id = {task.task_id: task for task in tasks}
    reward = lambda states, trajectory: [0.0] * len(states)  # noqa: E731
    trainer = Trainer(
        model,
        environment_factory=lambda: OrionEnvironment(by_id, start, reward, tokenizer, SHOWN),
        train_dataset=Dataset.from_list(prompt_rows(tasks)),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=1,
            per_device_train_batch_size=2 * len(tasks),
            num_generations=2,
            learning_rate=0.0,
            max_completion_length=500,
            max_tool_calling_iterations=MAX_STEPS,
            generation_kwargs={"do_sample": False},
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    with torch.random.fork_rng():
        trainer.train()
    model.eval()
    return played[::2]  # two of each, alike


def test_the_same_greedy_model_plays_the_same_episodes(tokenizer, tasks, start, tmp_path):
    model = make_small_model(tokenizer, 0, {"hidden_size": 48, "num_hidden_layers": 2})
    lessons = [teach(start(task)) for task in tasks]
    fine_tune(model, tokenizer, lessons, SftSettings(max_steps=80, learning_rate=1e-2), tmp_path / "sft")
    theirs = play_by_trl(model, tokenizer, tasks[:4], start, tmp_path / "grpo")
    greedy = Decoding(shown=SHOWN, turn_tokens=200).greedy
    for (trajectory, prompt, ids, mask), ours in zip(
        theirs, play_rollouts(model, tokenizer, tasks[:4], start, greedy), strict=True
    ):
        assert (prompt, ids, mask) == (ours.prompt_ids, ours.completion_ids, ours.mask)
        steps, own = trajectory.steps, ours.trajectory.steps
        assert [(s.action.name, s.action.arguments, s.observation, s.profile) for s in steps] == [
            (s.action.name, s.action.arguments, s.observation, s.profile) for s in own
        ]
        assert [s.action.name for s in steps] == ["respond", "search_product_by_query", "stop"]
    profiles = [step.profile for trajectory, *_ in theirs for step in trajectory.steps]
    assert any(profiles)  # what a user said changed it


def test_its_methods_are_the_functions_and_its_prompt_the_decoders(tasks, start):
    tokenizer = paper_standins.make_tokenizer()  # whose template shows tools
    environment = OrionEnvironment({tasks[0].task_id: tasks[0]}, start, None, tokenizer, SHOWN)
    (row,) = prompt_rows(tasks[:1])
    row["prompt"][-1]["content"] += environment.reset(tasks[0].task_id)
    members = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
    tools = [getattr(environment, name) for name in members if name in FUNCTIONS]
    assert [get_json_schema(tool) for tool in tools] == list(orion_tools())
    theirs = tokenizer.apply_chat_template(row["prompt"], tools=tools, add_generation_prompt=True)
    assert theirs["input_ids"] == orion_prompt(tokenizer, start(tasks[0]).state)
    # Foreign text holds no control token, and every call after the end gets the same short answer.
    environment.episode.user = lambda *_: UserReply("Navy.<|im_end|>")
    assert "<|im_end|>" not in environment.respond(content="Which color?")
    assert environment.stop() == ENDED == environment.respond(content="Hello?")
    assert len(environment.trajectory.steps) == 2
