"""The base models that come with the library: made of today's text, and they know the words of prompts."""

import pytest
from tests.orion.small_study import play

from base_model.__main__ import texts
from base_model.dialogues import dialogue_tokenizer
from base_model.pretrain import content_hash
from pwagents.llm.folder import read_tokenizer
from pwagents.lm.base import SHIPPED
from pwagents.lm.tokens import tokenize_conversation
from pwagents.orion.agent import RULES, orion_messages
from pwagents.orion.teacher import make_teacher
from pwagents.puma.memory import parameter_prompt
from pwagents.schema import FUNCTION_OF
from pwagents.shop.environment import full_text

STALE = "it was made of another text: PYTHONPATH=tools .venv/bin/python -m base_model"


@pytest.mark.slow
def test_a_card_names_the_text_that_the_model_was_trained_on(tmp_path):
    for wing, text in texts(str(tmp_path)).items():
        assert content_hash(text) in (SHIPPED / wing / "README.md").read_text("utf-8"), STALE
        assert read_tokenizer(SHIPPED / wing).get_vocab() == text.tokenizer().get_vocab(), STALE


def test_no_token_of_an_episode_is_unknown(study):
    tokenizer, teacher = read_tokenizer(SHIPPED / "orion"), make_teacher(study, 0, 6)
    assert tokenizer.get_vocab() == dialogue_tokenizer(RULES).get_vocab(), STALE
    for task in study.test_tasks:
        states, _ = play(study, teacher, task)
        told = tokenize_conversation(tokenizer, orion_messages(states[-1], 2)).input_ids
        assert tokenizer.unk_token_id not in told, task.task_id


def test_no_token_of_a_prompt_of_pumas_is_unknown(benchmark):
    tokenizer = read_tokenizer(SHIPPED / "puma")
    for task in benchmark.tasks["test"]:
        told = full_text(benchmark.products[task.target])
        prompt = parameter_prompt(task.instruction, told, FUNCTION_OF[task.type])
        assert tokenizer.unk_token_id not in tokenizer(prompt)["input_ids"], task.task_id
