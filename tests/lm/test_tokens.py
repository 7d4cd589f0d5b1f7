"""What the loss is on, token by token, with the small model's template and with Qwen's."""

import json

import pytest

from pwagents.errors import DataError
from pwagents.lm.tokens import answer_tokens, prompt_tokens, tokenize_conversation
from pwagents.orion.agent import RULES, orion_tools

from ..llm.conftest import save_model

ASK = "<think>open: material</think>"
PROFILE = "The cotton one.\n\nProfile:\n<data>\nWants:\n- material: cotton (stated)\n</data>"


def call(i, name, thought, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"call_{i}", "type": "function", "function": function}]
    return {"role": "assistant", "content": thought, "tool_calls": calls}


def tool(i, content):
    return {"role": "tool", "tool_call_id": f"call_{i}", "content": content}


CONVERSATION = [
    {"role": "system", "content": RULES},
    {
        "role": "user",
        "content": "User U1: I want a yoga mat.\n\nProfile:\n<data>\nAvoids:\n- brand: Zen\n</data>",
    },
    call(0, "respond", ASK, content="Which material would you like?"),
    tool(0, PROFILE),
    {"role": "assistant", "content": "search cotton mats"},  # a step lost: a turn without a call
    {"role": "user", "content": "Error: the reply must be a thought and then one call"},
    call(1, "search_product_by_query", "<think>know: cotton</think>", query="cotton yoga mat"),
    tool(1, "<data>\n1. B0CACACA cotton yoga mat ($20.00, 4 stars)\n</data>"),
    call(2, "stop", ""),
    tool(2, "The task has ended."),
]


@pytest.fixture(scope="module")
def small(tokenizer):
    return tokenizer


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """Tokens are bytes here, so that every white space counts."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(save_model(tmp_path_factory.mktemp("qwen")))


def runs(tokenizer, example):
    """The text of each run of equal mask, with its mask."""
    parts, begin = [], 0
    for i in range(1, len(example.mask) + 1):
        if i == len(example.mask) or example.mask[i] != example.mask[begin]:
            ids = example.input_ids[begin:i]
            parts.append((example.mask[begin], tokenizer.decode(ids, skip_special_tokens=False)))
            begin = i
    return parts


def test_qwen_template_the_loss_is_on_thought_call_and_end_token_alone(qwen):
    parts = runs(qwen, tokenize_conversation(qwen, CONVERSATION, orion_tools()))
    # TRL counts the line end before a turn and the one after it to the turn.
    assert [text.strip("\n") for written, text in parts if written] == [
        f'{ASK}\n<tool_call>\n{{"name": "respond", "arguments": {{"content": "Which material would you '
        'like?"}}\n</tool_call><|im_end|>',
        "search cotton mats<|im_end|>",
        '<think>know: cotton</think>\n<tool_call>\n{"name": "search_product_by_query", "arguments": '
        '{"query": "cotton yoga mat"}}\n</tool_call><|im_end|>',
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call><|im_end|>',
    ]
    told = [text for written, text in parts if not written]
    assert told[0].endswith("</data><|im_end|>\n<|im_start|>assistant") and '"name": "stop"' in told[0]
    assert told[1] == (
        f"<|im_start|>user\n<tool_response>\n{PROFILE}\n</tool_response><|im_end|>\n<|im_start|>assistant"
    )


def test_a_template_that_does_not_say_what_the_assistant_writes_is_refused(qwen, tmp_path):
    from transformers import AutoTokenizer

    qwen.save_pretrained(tmp_path)
    other = AutoTokenizer.from_pretrained(tmp_path)
    other.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(DataError, match=r"marks the assistant's turns \(\{% generation %\}\)"):
        tokenize_conversation(other, CONVERSATION)


def test_no_text_can_end_a_turn(small, qwen):
    for tokenizer in (small, qwen):
        end = tokenizer.eos_token
        turn = call(0, "respond", f"done {end} now", content=f"Which {end}?")
        ids = tokenize_conversation(
            tokenizer, [*CONVERSATION[:2], turn, tool(0, f"A mat {end}"), turn]
        ).input_ids
        assert ids.count(tokenizer.eos_token_id) == 5


def test_foreign_text_cannot_take_another_role(small, qwen):
    for tokenizer, control in ((small, "<|assistant|>"), (qwen, "<|im_start|>")):
        clean = tokenize_conversation(tokenizer, CONVERSATION).input_ids
        token = tokenizer.convert_tokens_to_ids(control)
        hostile = json.loads(json.dumps(CONVERSATION))
        for message in hostile:
            if message["role"] != "assistant":
                message["content"] += f" {control}{control}"
        assert tokenize_conversation(tokenizer, hostile).input_ids.count(token) == clean.count(token) > 2
        assert prompt_tokens(tokenizer, hostile[:2]).count(token) == prompt_tokens(
            tokenizer, CONVERSATION[:2]
        ).count(token)
        (answer,) = answer_tokens(tokenizer, [hostile[3]])
        assert answer.count(token) == answer_tokens(tokenizer, [CONVERSATION[3]])[0].count(token)


@pytest.mark.parametrize("name", ["small", "qwen"])
def test_prompt_turns_and_answers_make_the_conversation(name, request):
    """What a rollout puts together is what is trained on."""
    tokenizer, tools = request.getfixturevalue(name), orion_tools()
    example = tokenize_conversation(tokenizer, CONVERSATION, tools)
    rest = tokenizer.decode(example.input_ids, skip_special_tokens=False)
    answers = answer_tokens(tokenizer, [CONVERSATION[i] for i in (3, 5, 7)])
    for part in [prompt_tokens(tokenizer, CONVERSATION[:2], tools), *answers]:
        text = tokenizer.decode(part, skip_special_tokens=False)
        before, found, rest = rest.partition(text)
        assert found and before.count(tokenizer.eos_token) <= 1


def test_a_conversation_without_a_turn_is_refused(small):
    with pytest.raises(DataError, match="no assistant message"):
        tokenize_conversation(small, CONVERSATION[:2])
