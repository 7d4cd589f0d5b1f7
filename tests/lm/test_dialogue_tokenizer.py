"""The small tokenizer: calls come back whole, ids stay ids, and any text can be told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.agents.replies import read_turn
from pwagents.llm.chat import Reply
from pwagents.lm.dialogues import dialogue_tokenizer
from pwagents.lm.exercises import shop_words
from pwagents.lm.small import CHAT_TEMPLATE, END, ROLES, UNKNOWN
from pwagents.orion.agent import FUNCTIONS, RULES

TOKENIZER = dialogue_tokenizer(RULES)


def encode(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def again(text):
    return TOKENIZER.decode(encode(text), skip_special_tokens=False)


def turn(name, **arguments):
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<think>open: color</think><tool_call>{call}</tool_call>"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search_product_by_query", {"query": "navy cotton yoga mat"}),
        ("get_recommendations_by_history", {"product_sequence": ["B0LASOTO", "B0CACACA", "B0ZUZUZU"]}),
        ("add_product_review", {"review": "It is soft. I like it!"}),
        ("respond", {"content": "Which color would you like?"}),
        ("stop", {}),
    ],
)
def test_a_call_comes_back_as_it_was_and_its_boilerplate_is_one_token(name, arguments):
    text = turn(name, **arguments)
    action = read_turn(Reply(text=again(text)))
    assert not action.problem and (action.name, action.arguments) == (name, arguments)
    pieces = TOKENIZER.convert_ids_to_tokens(encode(text))
    assert sum(name in piece for piece in pieces) == 1 and name in FUNCTIONS


@given(st.lists(st.sampled_from(sorted(shop_words())), min_size=1, max_size=8))
def test_words_of_the_shop_are_one_token_each_wherever_they_stand(words):
    text = " ".join(words)
    assert len(encode(text)) == len(words) and again(text) == text
    query = turn("search_product_by_query", query=text)
    assert read_turn(Reply(text=again(query))).arguments == {"query": text}


@given(st.text(alphabet="BCDFGHJKLMNPQRSTVWXZAEIOU0123456789", min_size=1, max_size=12))
def test_ids_come_back_letter_by_letter(rest):
    call = turn("get_recommendations_by_history", product_sequence=[f"B0{rest}", "B0LASOTO"])
    assert read_turn(Reply(text=again(call))).arguments == {"product_sequence": [f"B0{rest}", "B0LASOTO"]}


def test_words_that_the_shop_does_not_have_are_spelled_and_foreign_characters_unknown():
    assert "qwertyuiop" not in shop_words()
    assert again("qwertyuiop") == "qwertyuiop" and UNKNOWN not in again("Qwert1 zz9")
    assert encode("漢") == [TOKENIZER.unk_token_id] and UNKNOWN in again("mat 漢字 ☕")
    assert again("x" * 61) == UNKNOWN, "no word is that long"


@given(st.text(max_size=80))
def test_any_text_can_be_encoded_and_decoded(text):
    ids = encode(text)
    assert all(0 <= token < len(TOKENIZER) for token in ids)
    once = TOKENIZER.decode(ids, skip_special_tokens=False)
    assert again(once).replace(" ", "") == once.replace(" ", ""), "what was told once is told alike again"


def test_roles_and_end_are_control_tokens_and_rules_are_one_token():
    special = {token.content for token in TOKENIZER.added_tokens_decoder.values() if token.special}
    assert {END, *(f"<|{role}|>" for role in ROLES)} <= special
    assert len(encode(RULES)) == 1
    assert TOKENIZER.eos_token == END and TOKENIZER.padding_side == "left"


CALL = {
    "function": {"name": "respond", "arguments": {"content": "Which one?"}},
    "type": "function",
    "id": "c",
}
MESSAGE = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(ROLES), st.text(max_size=20)
    ),
    st.builds(
        lambda text: {"role": "assistant", "content": text, "tool_calls": [CALL]}, st.text(max_size=20)
    ),
)


@given(st.lists(MESSAGE, min_size=1, max_size=5))
def test_what_was_said_before_is_the_beginning_of_what_is_said_after(messages):
    def told(n, prompt=False):
        return TOKENIZER.apply_chat_template(messages[:n], tokenize=False, add_generation_prompt=prompt)

    for n in range(1, len(messages)):
        assert told(n + 1).startswith(told(n))
        assert messages[n]["role"] != "assistant" or told(n + 1).startswith(told(n, prompt=True))


def test_the_template_travels_with_the_tokenizer(tmp_path):
    from transformers import AutoTokenizer

    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.chat_template == CHAT_TEMPLATE
    assert loaded(turn("stop"))["input_ids"] == TOKENIZER(turn("stop"))["input_ids"]
