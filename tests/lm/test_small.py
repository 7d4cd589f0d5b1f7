"""The small model: its tokenizer tells calls, ids and any text whole; its layers copy before any training."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2ForCausalLM

from pwagents.agents.replies import read_turn
from pwagents.llm.chat import Reply
from pwagents.llm.folder import dropped_by_template, read_tokenizer
from pwagents.lm.dialogues import dialogue_tokenizer
from pwagents.lm.exercises import shop_words
from pwagents.lm.small import (
    CHAT_TEMPLATE,
    CONTEXT,
    END,
    LAYERS,
    ROLES,
    UNKNOWN,
    make_small_model,
    make_tokenizer,
    with_copying_layers,
)
from pwagents.orion.agent import RULES

TOKENIZER = dialogue_tokenizer(RULES)
WORDS = st.lists(st.sampled_from(sorted(shop_words())), min_size=1, max_size=8).map(" ".join)
ID = st.text(alphabet="BCDFGHJKLMNPQRSTVWXZAEIOU0123456789", min_size=1, max_size=12).map("B0{}".format)


def encode(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def again(text):
    return TOKENIZER.decode(encode(text), skip_special_tokens=False)


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
    ids = encode(text)
    assert all(0 <= token < len(TOKENIZER) for token in ids)
    once = TOKENIZER.decode(ids, skip_special_tokens=False)
    assert again(once).replace(" ", "") == once.replace(" ", "")


def test_other_words_are_spelled_foreign_characters_unknown_and_roles_control_tokens(tmp_path):
    assert again("qwertyuiop") == "qwertyuiop" and UNKNOWN not in again("Qwert1 zz9")
    assert encode("漢") == [TOKENIZER.unk_token_id] and UNKNOWN in again("mat 漢字 ☕")
    assert again("x" * 61) == UNKNOWN, "no word is that long"
    special = {token.content for token in TOKENIZER.added_tokens_decoder.values() if token.special}
    assert {END, *(f"<|{role}|>" for role in ROLES)} <= special and TOKENIZER.padding_side == "left"
    assert dropped_by_template(TOKENIZER) == [], "functions are known by heart"
    made = make_tokenizer(["mat", "B0", "##KA"], fixed=["Profile:\nnone"])
    assert made.tokenize("B0KAKA mats Profile:\nnone") == [
        "B0",
        "##KA",
        "##KA",
        "mat",
        "##s",
        "Profile:\nnone",
    ]
    TOKENIZER.save_pretrained(tmp_path)
    loaded, text = read_tokenizer(tmp_path), turn("stop", {})
    assert loaded.chat_template == CHAT_TEMPLATE and loaded(text)["input_ids"] == TOKENIZER(text)["input_ids"]


def test_it_is_a_qwen2_model_of_the_announced_size_that_knows_where_its_turn_ends(small_model, tmp_path):
    assert 0.3e6 < small_model.num_parameters() < 3e6
    assert small_model.lm_head.weight is small_model.model.embed_tokens.weight
    small_model.save_pretrained(tmp_path)
    loaded = Qwen2ForCausalLM.from_pretrained(tmp_path)
    assert (loaded.config.vocab_size, loaded.config.max_position_embeddings) == (len(TOKENIZER), CONTEXT)
    for config in (loaded.config, loaded.generation_config):
        assert (config.eos_token_id, config.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)


# Of the layers that copy: texts of twenty words of two hundred.
N = 20


@pytest.fixture(scope="module")
def copying():
    """A model of one layer with random weights, and the same above the layers that copy."""
    words = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(10) for j in range(20)]
    model = make_small_model(make_tokenizer(words), 0, {"num_hidden_layers": 1})
    return model, with_copying_layers(model, 0)


def texts(model, n):
    """(16, n) different words a row."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.stack([torch.randperm(200, generator=draw)[:n] for _ in range(16)])
    return ids + model.config.vocab_size - 200 - 62  # the words; 62 characters follow


def scores_of(model, ids):
    """(rows, places, words): by what the second layer adds at each place."""
    with torch.inference_mode():
        states = model.model(ids, output_hidden_states=True).hidden_states
        return (states[LAYERS] - states[LAYERS - 1]) @ model.model.embed_tokens.weight.T


@pytest.mark.parametrize(("between", "best", "share"), [(0, 2, 0.7), (1, 30, 0.3)])
def test_a_text_that_comes_again_is_gone_on_with_also_where_words_are_left_out(copying, between, best, share):
    """What comes next is mostly among the best 2 of 269 tokens; with each second word left out, for which one
    head of three looks, three times as often among the best 30 as by chance."""
    ids = texts(copying[1], N * (1 + between))
    ids, begin = torch.cat([ids, ids[:, :: 1 + between]], dim=1), N * (1 + between)
    scores = scores_of(copying[1], ids)[:, begin:-1]
    rank = (scores > scores.gather(-1, ids[:, begin + 1 :, None])).sum(-1)
    assert (rank < best).float().mean() > share


def test_what_stood_before_a_word_tells_which_of_two_texts_is_gone_on_with(copying):
    """Word 1 stands in both texts, once between 0 and 2 and once between 8 and 9."""
    drawn, right = texts(copying[1], N), []
    for before, wanted, other in ((0, 2, 9), (8, 9, 2)):
        places = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 10, 11, 12, 13, before, 1]
        scores = scores_of(copying[1], drawn[:, places])[:, -1]
        right.append(scores.gather(-1, drawn[:, [wanted]]) > scores.gather(-1, drawn[:, [other]]))
    assert torch.cat(right).float().mean() > 0.6


def test_the_other_layers_stay_but_add_nothing_yet(copying):
    model, deeper = copying
    for name, weights in model.state_dict().items():
        moved = deeper.state_dict()[name.replace("layers.0", f"layers.{LAYERS}")]
        adds = name.endswith(("o_proj.weight", "down_proj.weight"))
        assert torch.equal(moved, torch.zeros_like(weights) if adds else weights)
    with torch.inference_mode():
        states = deeper.model(texts(model, N), output_hidden_states=True).hidden_states
    assert torch.equal(states[-1], deeper.model.norm(states[LAYERS]))  # the last one is normalised
