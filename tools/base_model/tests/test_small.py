"""The small base model: its tokenizer, its layers that copy, what it reads, which is nothing that is real."""

import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2ForCausalLM

from base_model.dialogues import dialogue_tokenizer
from base_model.exercises import REVIEW, SEARCH, ExerciseText, ids_and_titles, shop_words
from base_model.pretrain import ALL_STEPS, CHECK_EVERY, LOG, Lesson, content_hash, small_base
from base_model.small import CONTEXT, LAYERS, make_small_model, make_tokenizer, with_copying_layers
from pwagents.agents.replies import read_turn
from pwagents.llm.chat import Reply
from pwagents.llm.folder import dropped_by_template, read_tokenizer
from pwagents.orion.agent import RULES

TOKENIZER = dialogue_tokenizer(RULES)
WORDS = st.lists(st.sampled_from(sorted(shop_words())), min_size=1, max_size=8).map(" ".join)
ID = st.text(alphabet="BCDFGHJKLMNPQRSTVWXZAEIOU0123456789", min_size=1, max_size=12).map("B0{}".format)


def encode(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def again(text):
    return TOKENIZER.decode(encode(text))


def turn(name, arguments):
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<think>open: color</think><tool_call>{call}</tool_call>"


@given(WORDS, ID)
def test_a_call_comes_back_as_it_was_in_few_tokens(words, asin):
    """Its boilerplate is one token, and so is a word of the shop; ids are told letter by letter."""
    assert len(encode(words)) == len(words.split()) and again(words) == words
    for name, arguments in (
        ("search_product_by_query", {"query": words}),
        ("get_recommendations_by_history", {"product_sequence": [asin, "B0LASOTO"]}),
        ("add_product_review", {"review": f"It is {words}. I like it!"}),
        ("respond", {"content": f"Which {words}?"}),
        ("stop", {}),
    ):
        text = turn(name, arguments)
        action = read_turn(Reply(text=again(text)))
        assert not action.problem and (action.name, action.arguments) == (name, arguments)
        assert sum(name in piece for piece in TOKENIZER.convert_ids_to_tokens(encode(text))) == 1


@given(st.text(max_size=80))
def test_any_text_can_be_told_and_is_told_alike_again(text):
    assert all(0 <= token < len(TOKENIZER) for token in encode(text))
    assert again(again(text)).replace(" ", "") == again(text).replace(" ", "")


def test_other_words_are_spelled_foreign_characters_unknown_and_roles_control_tokens():
    assert again("qwertyuiop") == "qwertyuiop" and TOKENIZER.unk_token not in again("Qwert1 zz9")
    assert encode("漢") == [TOKENIZER.unk_token_id] and TOKENIZER.unk_token in again("mat 漢字 ☕")
    assert again("x" * 61) == TOKENIZER.unk_token, "no word is that long"
    special = {token.content for token in TOKENIZER.added_tokens_decoder.values() if token.special}
    assert {"<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", TOKENIZER.eos_token} <= special
    assert TOKENIZER.padding_side == "left"
    assert dropped_by_template(TOKENIZER) == [], "functions are known by heart"
    made = make_tokenizer(["mat", "B0", "##KA"], fixed=["Profile:\nnone"])
    pieces = ["B0", "##KA", "##KA", "mat", "##s", "Profile:\nnone"]
    assert made.tokenize("B0KAKA mats Profile:\nnone") == pieces


def test_it_is_a_qwen2_model_of_the_announced_size_and_is_read_from_a_folder_as_it_was(small_model, tmp_path):
    assert 0.3e6 < small_model.num_parameters() < 3e6
    assert small_model.lm_head.weight is small_model.model.embed_tokens.weight
    small_model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    tokenizer, text = read_tokenizer(tmp_path), turn("stop", {})
    assert tokenizer.chat_template == TOKENIZER.chat_template
    assert tokenizer(text).input_ids == TOKENIZER(text).input_ids
    loaded = Qwen2ForCausalLM.from_pretrained(tmp_path)
    assert (loaded.config.vocab_size, loaded.config.max_position_embeddings) == (len(TOKENIZER), CONTEXT)
    for config in (loaded.config, loaded.generation_config):  # where its turn ends
        assert (config.eos_token_id, config.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)


def test_before_any_training_a_text_that_comes_again_is_gone_on_with():
    """What comes next is mostly among the best 2 of 269 tokens; with each second word left out, for which one
    head of three looks, three times as often among the best 30 as by chance."""
    words, draw = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(10) for j in range(20)], torch.Generator()
    model = with_copying_layers(make_small_model(make_tokenizer(words), 0, {"num_hidden_layers": 1}), 0)
    for between, best, share in ((0, 2, 0.7), (1, 30, 0.3)):
        begin = 20 * (1 + between)
        ids = torch.stack([torch.randperm(200, generator=draw.manual_seed(i))[:begin] for i in range(16)])
        ids += model.config.vocab_size - 200 - 62  # the words; 62 characters follow
        ids = torch.cat([ids, ids[:, :: 1 + between]], dim=1)
        with torch.inference_mode():
            states = model.model(ids, output_hidden_states=True).hidden_states
        added = (states[LAYERS] - states[LAYERS - 1])[:, begin:-1]  # by the second layer
        scores = added @ model.model.embed_tokens.weight.T
        rank = (scores > scores.gather(-1, ids[:, begin + 1 :, None])).sum(-1)
        assert (rank < best).float().mean() > share


SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 32}
LESSONS = (
    Lesson(limit=2, batch_size=8, learning_rate=4e-3, accuracy=0.61, most_steps=900),
    Lesson(limit=None, batch_size=2, learning_rate=4e-4, accuracy=ALL_STEPS, most_steps=CHECK_EVERY + 3),
)


@pytest.fixture
def text(benchmark):
    return ExerciseText(benchmark.products, 0)


def test_a_base_model_is_the_same_every_time(benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(ExerciseText, "lessons", LESSONS)
    for folder in ("one", "two"):
        log = small_base(tmp_path / folder, ExerciseText(benchmark.products, 5), 5, SIZE)
    for name in ("model.safetensors", LOG, "tokenizer.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    reached, whole = (log[log["lesson"] == lesson] for lesson in (0, 1))
    assert reached["query_accuracy"].iloc[-1] >= 0.61 > reached["query_accuracy"].iloc[:-1].max()
    assert list(whole["step"]) == [CHECK_EVERY, CHECK_EVERY + 3]


def test_completions_are_copies_of_what_the_prompt_says_and_are_learned_to_their_end(text):
    tokenizer = text.tokenizer()
    for n in range(200):
        prompt, completion = text.exercise(n)
        if f"Tool: {REVIEW}" not in prompt:
            assert {word.strip(",") for word in completion.split()} <= set(re.split(r"[\s,.|:()]+", prompt))
        example = text.example(tokenizer, n, LESSONS[1])
        learned = [token for token, is_learned in zip(*example, strict=True) if is_learned]
        assert learned.pop() == tokenizer.eos_token_id and tokenizer.decode(learned) == completion
    prompt, completion = text.exercise(3, most_words=4)
    assert f"Tool: {SEARCH}" in prompt and "Memory: \n" in prompt
    assert {*completion.split()} <= {*prompt.split()} | {word.strip(".,?") for word in prompt.split()}


def test_nothing_of_the_benchmark_is_read_no_two_texts_are_alike_and_the_seed_decides(text, benchmark):
    texts = [" ".join(text.exercise(n)) for n in range(600)]
    assert len(set(texts)) == len(texts)
    real = {*ids_and_titles(benchmark.products)}
    real |= {task.instruction for split in benchmark.tasks.values() for task in split}
    assert not any(each in "\n".join(texts) for each in real)
    again = ExerciseText(benchmark.products, 0)
    assert [" ".join(again.exercise(n)) for n in reversed(range(20))][::-1] == texts[:20]
    assert content_hash(again) == content_hash(text) != content_hash(ExerciseText(benchmark.products, 1))
