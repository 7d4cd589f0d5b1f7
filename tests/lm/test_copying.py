"""The layers that copy: before any training they find what came next the last time."""

import pytest
import torch

from pwagents.lm.small import LAYERS, make_small_model, make_tokenizer, with_copying_layers

WORDS = 20


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer([f"w{chr(97 + i)}{chr(97 + j)}" for i in range(10) for j in range(20)])


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_small_model(tokenizer, 0, {"num_hidden_layers": 1})


def added_by_the_layers(model, ids):
    """(rows, places, hidden) what the second layer adds."""
    with torch.inference_mode():
        states = model.model(ids, output_hidden_states=True).hidden_states
    return states[LAYERS] - states[LAYERS - 1]


def texts(tokenizer, between=0):
    """(rows, places): a text, with so many other words after each word, and then its words again."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack(
        [torch.randperm(200, generator=generator)[: WORDS * (1 + between)] for _ in range(16)]
    )
    ids = drawn + len(tokenizer) - 200 - 62  # the words; 62 characters follow
    return torch.cat([ids, ids[:, :: 1 + between]], dim=1)


@pytest.mark.parametrize(("between", "best", "share"), [(0, 2, 0.7), (1, 30, 0.3)])
def test_a_text_that_comes_again_is_gone_on_with_also_where_words_are_left_out(
    model, tokenizer, between, best, share
):
    """What comes next is mostly among the best 2 of 269 tokens; with each second word left out, for which one
    head of three looks, three times as often among the best 30 as by chance."""
    ids = texts(tokenizer, between)
    begin = WORDS * (1 + between)
    added = added_by_the_layers(with_copying_layers(model, 0), ids)[:, begin:-1]
    scores = added @ model.model.embed_tokens.weight.T
    following = ids[:, begin + 1 :, None]
    rank = (scores > scores.gather(-1, following)).sum(-1)
    assert (rank < best).float().mean() > share


def test_what_stood_before_a_word_tells_which_of_two_texts_is_gone_on_with(tokenizer, model):
    """Word 1 stands in both texts, once between 0 and 2 and once between 8 and 9."""
    drawn, right = texts(tokenizer)[:, :WORDS], []
    for before, wanted, other in ((0, 2, 9), (8, 9, 2)):
        places = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 10, 11, 12, 13, before, 1]
        added = added_by_the_layers(with_copying_layers(model, 0), drawn[:, places])[:, -1]
        scores = added @ model.model.embed_tokens.weight.T
        right.append(scores.gather(-1, drawn[:, [wanted]]) > scores.gather(-1, drawn[:, [other]]))
    assert torch.cat(right).float().mean() > 0.6


def test_the_other_layers_stay_but_add_nothing_yet(tokenizer, model):
    deeper = with_copying_layers(model, 0)
    kept = deeper.state_dict()
    for name, weights in model.state_dict().items():
        moved = kept[name.replace("layers.0", f"layers.{LAYERS}")]
        adds = name.endswith(("o_proj.weight", "down_proj.weight"))
        assert torch.equal(moved, torch.zeros_like(weights) if adds else weights)
    with torch.inference_mode():
        states = deeper.model(texts(tokenizer), output_hidden_states=True).hidden_states
    # The last one is normalised.
    assert torch.equal(states[-1], deeper.model.norm(states[LAYERS]))
