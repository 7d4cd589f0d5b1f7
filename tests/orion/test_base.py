"""The small base model: it learns, others can load it, and it is made once, whole, the same every time."""

import json
import math
import time
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest
import torch

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.llm.local_model import LocalModel
from pwagents.lm.copying import with_copying_layers
from pwagents.lm.pretrain import ALL_STEPS, HELD_OUT, Lesson
from pwagents.lm.small import make_small_model
from pwagents.lm.tokens import tokenize_conversation
from pwagents.orion import base as module
from pwagents.orion.agent import OrionAgent
from pwagents.orion.base import LOG, base_model, base_tokenizer
from pwagents.orion.base_text import BaseText
from pwagents.portable import one_core
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import OfflineUpdater
from pwagents.web.environment import BeliefState, Context

from ..processes import begin, kill

pytestmark = pytest.mark.slow

SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 96}
LESSONS = (
    Lesson(asked=0, batch_size=16, learning_rate=4e-3, accuracy=ALL_STEPS, most_steps=180),
    Lesson(asked=None, batch_size=4, learning_rate=4e-4, accuracy=ALL_STEPS, most_steps=7),
)
SHORT = (replace(LESSONS[0], most_steps=6), LESSONS[1])
SEED = 5


def train(root, text, lessons=LESSONS):
    with one_core():  # on more, the last bit of a weight depends on how many
        return base_model(root, text, SEED, lessons, SIZE)


class Stops(BaseText):
    """Comes to a stop in the middle of the second lesson, and says so in a file, to be killed there."""

    def dialogue(self, n):
        if n == HELD_OUT // 10 + 12:
            self.sign.touch()
            time.sleep(600)
        return super().dialogue(n)


@pytest.fixture(scope="module", autouse=True)
def a_text_is_hashed_once():
    """It takes half a second each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseText, "content_hash", cache(BaseText.content_hash))
        yield


@pytest.fixture(scope="module")
def text(updater):
    return BaseText(updater, (), 0)


@pytest.fixture(scope="module")
def folder(text, tmp_path_factory):
    return train(tmp_path_factory.mktemp("models"), text)


def state_of():
    profile = ContextualProfile(lines=(ProfileLine.of("color: navy", True, "history"),))
    asked = "Find me a new yoga mat."
    return BeliefState("U0001", asked, f"User U0001: {asked}", None, (), (), profile, Context(profile))


# --- it learns --------------------------------------------------------------------------------------


def test_it_learns_the_form_of_a_thought_and_a_call(folder, text):
    """Measured by transformers itself, on what was never trained on."""
    from transformers import AutoModelForCausalLM

    tokenizer = base_tokenizer()
    examples = [tokenize_conversation(tokenizer, text.exercise(10**8 + i, 0)) for i in range(8)]

    def loss(model):
        with torch.inference_mode():
            losses = [
                model(
                    torch.tensor([ids]),
                    labels=torch.tensor([[t if m else -100 for t, m in zip(ids, mask, strict=True)]]),
                ).loss.item()
                for ids, mask in examples
            ]
        return sum(losses) / len(losses)

    assert loss(make_small_model(tokenizer, SEED, SIZE)) > 0.8 * math.log(len(tokenizer))
    assert loss(AutoModelForCausalLM.from_pretrained(folder)) < 2.5
    action = OrionAgent(LocalModel(folder), sampling={"temperature": 0, "max_tokens": 60})(state_of())
    assert (action.name, action.problem) == ("search_product_by_query", "")
    assert action.thought.startswith("<think>")


def test_a_lesson_is_logged_every_so_many_steps_and_at_its_end(folder):
    log = pd.read_csv(folder / LOG)
    steps = [(0, step) for step in (25, 50, 75, 100, 125, 150, 175, 180)]
    assert list(zip(log["lesson"], log["step"], strict=True)) == [*steps, (1, 7)]
    assert log["loss"][2] < log["loss"][0]
    assert log["query_accuracy"].between(0, 1).all() and log["query_accuracy"][2] > 0.1


# --- others can load it -----------------------------------------------------------------------------


def test_its_tokenizer_is_loaded_as_it_was_made(folder, text, tmp_path):
    """Also after it was saved with a model that was trained further."""
    from transformers import AutoTokenizer

    made = base_tokenizer()
    for place in (folder, tmp_path):
        loaded = AutoTokenizer.from_pretrained(place, local_files_only=True)
        for n in range(20):
            messages = text.dialogue(n)
            assert loaded.apply_chat_template(messages) == made.apply_chat_template(messages)
        ids = made("<think>open: color</think> yoga mat, B0KATOMI")["input_ids"]
        assert loaded.decode(ids) == made.decode(ids)
        loaded.save_pretrained(tmp_path)


@pytest.mark.parametrize("end", ["}</tool_call><|end|>", "}<|end|>", "}</tool_call>"])
@pytest.mark.parametrize("arguments", ['{"content": "Which color?"}', '{"content": "Which "color', "{}"])
def test_servers_find_its_calls_also_those_that_are_no_json(folder, arguments, end):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    turn = f'<think>open: color</think><tool_call>{{"name": "respond", "arguments": {arguments}{end}'
    written = tokenizer(turn, add_special_tokens=False)["input_ids"]
    message = tokenizer.parse_response(written, prefix="<|user|> Hi <|end|> <|assistant|>")
    (call,) = message["tool_calls"]
    assert message["content"].replace(" ", "") == "<think>open:color</think>"
    assert call["function"]["name"] == "respond"
    assert call["function"]["arguments"].replace(" ", "") == arguments.replace(" ", "")
    unclosed = tokenizer.parse_response('<tool_call>{"name": "respond", "arguments": {"con<|end|>', prefix="")
    assert unclosed["tool_calls"][0]["function"] == {"name": "respond", "arguments": '{"con'}


def test_the_card_tells_what_it_is_made_of(folder, text):
    card = (folder / "README.md").read_text("utf-8")
    model = with_copying_layers(make_small_model(base_tokenizer(), SEED, SIZE), SEED)
    parameters = sum(weights.numel() for weights in model.parameters())
    assert f"{parameters:,} parameters" in card and text.content_hash() in card
    assert "library_name: transformers" in card and "lesson 1" in card
    accuracy = pd.read_csv(folder / LOG)["query_accuracy"].iloc[-1]
    assert f"{accuracy:.6g}" in card


# --- made once, whole, the same every time ----------------------------------------------------------


def test_what_is_there_is_not_trained_again_and_what_differs_is(folder, text, updater, monkeypatch):
    made = []
    monkeypatch.setattr(module, "_make", lambda folder, *_: made.append(folder))
    assert train(folder.parent, text) == folder and not made
    facts = json.loads((folder / "made_from.json").read_text())
    assert (facts["seed"], facts["text"]) == (SEED, text.content_hash())
    others = {
        base_model(folder.parent, text, SEED + 1, LESSONS, SIZE),
        base_model(folder.parent, text, SEED, LESSONS[:1], SIZE),
        base_model(folder.parent, text, SEED, LESSONS),
        base_model(folder.parent, BaseText(updater, (), 1), SEED, LESSONS, SIZE),
    }
    assert len(others - {folder}) == len(made) == 4


def train_and_stop(folder):
    benchmark = make_world(WorldConfig(n_users=12, n_products=400), seed=3).benchmark
    text = Stops(OfflineUpdater(Catalogue(benchmark.products)), (), 0)
    text.sign = folder / "sign"
    train(folder / "models", text, SHORT)


def test_a_killed_run_leaves_nothing_half_and_the_next_gives_the_same_weights(text, tmp_path):
    killed = begin(train_and_stop, tmp_path)
    deadline = time.monotonic() + 300
    while not (tmp_path / "sign").exists():
        assert killed.exitcode is None and time.monotonic() < deadline
        time.sleep(0.1)
    kill(killed)
    models = tmp_path / "models"
    assert not [path for path in models.iterdir() if not path.name.startswith(".")]

    whole, again = train(tmp_path / "whole", text, SHORT), train(models, text, SHORT)
    assert [path for path in models.iterdir() if path.is_dir()] == [again]
    assert again.name == whole.name
    for name in ("model.safetensors", LOG, "tokenizer.json", "README.md"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
