"""Orion's small base model: it learns the form of a thought and a call, and servers find its calls."""

import math

import pytest
import torch

from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.lm.base import ALL_STEPS, Lesson, small_base
from pwagents.lm.dialogues import DialogueText
from pwagents.lm.small import make_small_model
from pwagents.orion.agent import OrionAgent
from pwagents.orion.train import dialogue_text
from pwagents.portable import one_core

from .small_study import state_of

pytestmark = pytest.mark.slow

SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 96}
LESSONS = (
    Lesson(limit=0, batch_size=16, learning_rate=4e-3, accuracy=ALL_STEPS, most_steps=180),
    Lesson(limit=2, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=120),
)


@pytest.fixture(scope="module")
def folder(benchmark, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, one_core():  # on more, the last bit depends on how many
        patch.setattr(DialogueText, "lessons", LESSONS)
        models = tmp_path_factory.mktemp("models")
        return small_base(models, dialogue_text(benchmark.products, 5), 5, size=SIZE)


def test_it_learns_the_form_of_a_thought_and_a_call(folder, benchmark):
    """Measured by transformers itself, on what was never trained on."""
    text, tokenizer = dialogue_text(benchmark.products, 5), read_tokenizer(folder)
    examples = [text.example(tokenizer, 10**8 + i, LESSONS[0]) for i in range(8)]

    def loss(model):
        with torch.inference_mode():
            losses = [
                model(torch.tensor([each.input_ids]), labels=torch.tensor([each.labels])).loss
                for each in examples
            ]
        return torch.stack(losses).mean().item()

    assert loss(make_small_model(tokenizer, 5, SIZE)) > 0.8 * math.log(len(tokenizer))
    assert loss(read_model(folder, torch.float32)) < 2.5
    state = state_of("Find me a new yoga mat.", ("color: navy", True, "history"))
    action = OrionAgent(LocalModel(folder), sampling={"temperature": 0, "max_tokens": 60})(state)
    assert (action.name, action.problem) == ("search_product_by_query", "")
    assert action.thought.startswith("<think>")


@pytest.mark.parametrize("end", ["}</tool_call><|end|>", "}<|end|>", "}</tool_call>"])
@pytest.mark.parametrize("arguments", ['{"content": "Which color?"}', '{"content": "Which "color', "{}"])
def test_servers_find_its_calls_also_those_that_are_no_json(folder, arguments, end):
    tokenizer = read_tokenizer(folder)
    turn = f'<think>open: color</think><tool_call>{{"name": "respond", "arguments": {arguments}{end}'
    written = tokenizer(turn, add_special_tokens=False)["input_ids"]
    message = tokenizer.parse_response(written, prefix="<|user|> Hi <|end|> <|assistant|>")
    (call,) = message["tool_calls"]
    assert message["content"].replace(" ", "") == "<think>open:color</think>"
    assert call["function"]["name"] == "respond"
    assert call["function"]["arguments"].replace(" ", "") == arguments.replace(" ", "")
    unclosed = tokenizer.parse_response('<tool_call>{"name": "respond", "arguments": {"con<|end|>', prefix="")
    assert unclosed["tool_calls"][0]["function"] == {"name": "respond", "arguments": '{"con'}
