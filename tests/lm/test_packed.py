"""Texts in one line: the same hidden states and gradients as side by side, and less to read."""

import random

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from pwagents.lm.packed import states_before

SIZE = {"vocab_size": 30, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 32}
SIZE |= {"num_attention_heads": 4, "num_key_value_heads": 2}
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def llama():
    """Another family than the small model's, with shared key heads."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZE))


MODEL = llama()


def gradient(model, states):
    model.zero_grad()
    (states**2 * torch.arange(1, len(states) + 1)[:, None]).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("seed", range(40))
def test_states_and_gradients_are_those_of_texts_side_by_side(seed):
    """Up to six texts, many with a beginning in common, and tokens chosen from each; from some none."""
    draw, other = random.Random(seed), llama()
    beginnings = [draw.choices(range(30), k=draw.randint(1, 5)) for _ in range(2)]
    ids, chosen = torch.zeros(6, 11, dtype=torch.long), torch.zeros(6, 11).bool()
    for row in range(draw.randint(1, 6)):
        begin = draw.choice(beginnings)
        text = begin + draw.choices(range(30), k=draw.randint(1, 6))
        ids[row, : len(text)] = torch.tensor(text)
        rest = range(len(begin), len(text))
        chosen[row, draw.sample(rest, draw.randint(row == 0, len(rest)))] = True
    packed = states_before(MODEL, ids, chosen)
    hidden = other.base_model(input_ids=ids, use_cache=False).last_hidden_state
    plain = hidden[:, :-1][chosen[:, 1:]]
    assert torch.allclose(packed, plain, **TOLERANCE)
    missed, expected = gradient(MODEL, packed), gradient(other, plain)
    assert (missed - expected).norm() < 1e-3 * expected.norm()


def test_a_beginning_in_common_is_read_once_and_no_padding():
    model, read = llama(), []
    model.model.embed_tokens.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    ids = torch.tensor([[1, 2, 3, 4, 5, 0], [1, 2, 3, 6, 0, 0], [7, 8, 9, 9, 9, 9]])
    chosen = torch.zeros_like(ids).bool()
    chosen[[0, 0, 1, 2], [3, 4, 3, 1]] = True
    states_before(model, ids, chosen)
    # "1 2 3" of two texts, then what is left up to what foretells the last chosen token: one of the first
    # text, none of the second, one of the third.
    assert read == [3 + 1 + 0 + 1]


def test_the_model_reads_as_before_afterwards_and_one_that_sees_a_window_only_is_refused():
    ids, mask = torch.tensor([[0, 0, 3, 4], [5, 6, 7, 8]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    model, windowed = llama(), MistralForCausalLM(MistralConfig(**SIZE, sliding_window=2))
    before = model(ids, attention_mask=mask).logits  # padding on the left and a mask: what generation needs
    states_before(model, ids, mask == 1)
    assert torch.allclose(model(ids, attention_mask=mask).logits, before, **TOLERANCE)
    with pytest.raises(ValueError, match="window"):
        states_before(windowed, ids, mask == 1)
