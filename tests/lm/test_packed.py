"""Texts in one line: the same hidden states and gradients as side by side, and less to read."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from pwagents.lm.packed import states_before

SIZE = {
    "vocab_size": 30,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
}
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def llama():
    """Another family than the small model's, with shared key heads."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZE))


MODEL = llama()


def as_tensors(texts, marks):
    """Texts, and of each the places of the chosen tokens, padded on the right."""
    width = max(map(len, texts))
    ids, chosen = torch.zeros(len(texts), width, dtype=torch.long), torch.zeros(len(texts), width).bool()
    for row, (text, places) in enumerate(zip(texts, marks, strict=True)):
        ids[row, : len(text)] = torch.tensor(text)
        chosen[row, sorted(places)] = True
    return ids, chosen


def side_by_side(model, ids, chosen):
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return hidden[:, :-1][chosen[:, 1:]]


def gradient(model, states):
    model.zero_grad()
    (states**2 * torch.arange(1, len(states) + 1)[:, None]).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@st.composite
def batches(draw):
    """Up to six texts, many with a beginning in common, and tokens chosen from each; from some texts none."""
    token = st.integers(0, SIZE["vocab_size"] - 1)
    beginnings = draw(st.lists(st.lists(token, min_size=1, max_size=5), min_size=1, max_size=2))
    texts, marks = [], []
    for _ in range(draw(st.integers(1, 6))):
        beginning = draw(st.sampled_from(beginnings))
        rest = draw(st.lists(token, min_size=1, max_size=6))
        texts.append(beginning + rest)
        marks.append(draw(st.sets(st.integers(len(beginning), len(texts[-1]) - 1))))
    if not any(marks):
        marks[0] = {len(texts[0]) - 1}
    return texts, marks


@settings(deadline=None)
@given(batches())
def test_the_states_are_those_of_texts_side_by_side(batch):
    ids, chosen = as_tensors(*batch)
    assert torch.allclose(states_before(MODEL, ids, chosen), side_by_side(llama(), ids, chosen), **TOLERANCE)


@settings(deadline=None, max_examples=30)
@given(batches())
def test_so_are_the_gradients(batch):
    ids, chosen = as_tensors(*batch)
    other = llama()
    expected = gradient(other, side_by_side(other, ids, chosen))
    missed = gradient(MODEL, states_before(MODEL, ids, chosen)) - expected
    assert missed.norm() < 1e-3 * expected.norm()


def test_a_beginning_in_common_is_read_once_and_no_padding():
    model, read = llama(), []
    model.model.embed_tokens.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    ids, chosen = as_tensors([[1, 2, 3, 4, 5], [1, 2, 3, 6], [7, 8, 9, 9, 9, 9]], [{3, 4}, {3}, {1}])
    states_before(model, ids, chosen)
    # "1 2 3" of two texts, then the rest up to what foretells the last chosen token: 4 of the first, none of
    # the second, 7 of the third.
    assert read == [3 + 1 + 0 + 1]


def test_the_model_reads_as_before_afterwards():
    """Padding on the left and a mask: what generation needs."""
    ids = torch.tensor([[0, 0, 3, 4], [5, 6, 7, 8]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    model = llama()
    before = model(ids, attention_mask=mask).logits
    states_before(model, *as_tensors([[1, 2]], [{1}]))
    assert torch.allclose(model(ids, attention_mask=mask).logits, before, **TOLERANCE)


def test_a_model_that_sees_a_window_only_is_refused():
    model = MistralForCausalLM(MistralConfig(**SIZE, sliding_window=2))
    with pytest.raises(ValueError, match="window"):
        states_before(model, *as_tensors([[1, 2, 3]], [{2}]))
