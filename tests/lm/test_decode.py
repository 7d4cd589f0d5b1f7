"""The batched decoder against transformers' own forward pass and generation."""

import warnings
from functools import cache

import pytest
import torch

from pwagents.lm.decode import BatchDecoder
from pwagents.lm.small import make_small_model

PROMPTS = ([5, 6, 7, 8, 9, 40, 41], [60, 61, 62], [5, 6, 7, 8, 80, 81, 82, 83, 84, 85, 86])
MOST = 10


def with_grouped_heads(tokenizer):
    """Three heads that share their keys and values."""
    from transformers import Qwen2ForCausalLM

    config = make_small_model(tokenizer, 1).config
    config.num_key_value_heads = 1
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config)


def with_adapter(tokenizer):
    """An adapter that does something."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # peft's own use
        model = get_peft_model(make_small_model(tokenizer, 1), LoraConfig(target_modules="all-linear", r=4))
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.1)
    return model


MODELS = {
    "small": lambda tokenizer: make_small_model(tokenizer, 1),
    "grouped heads": with_grouped_heads,
    "adapter": with_adapter,
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request, tokenizer):
    return MODELS[request.param](tokenizer).eval()


def generate(model, ids, end, most=MOST):
    """What transformers writes after ``ids``, greedily."""
    return _generated(model, tuple(ids), end, most)


@cache  # several tests compare with the same
def _generated(model, ids, end, most):
    told = torch.tensor([ids])
    options = {"do_sample": False, "eos_token_id": end, "max_new_tokens": most, "pad_token_id": 0}
    with torch.inference_mode():
        written = model.generate(input_ids=told, attention_mask=torch.ones_like(told), **options)
    return written[0, len(ids) :].tolist()


def logprobs_of(model, ids, begin, temperature):
    """Of ``ids[begin:]``, by a plain forward pass over all of them."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, begin - 1 : -1]
    told = (logits / temperature).log_softmax(-1)
    return told.gather(1, torch.tensor(ids[begin:])[:, None])[:, 0]


def test_greedy_turns_are_those_of_generate_also_after_answers_of_other_lengths(model):
    end = generate(model, PROMPTS[0], end=None)[3]  # one row at least ends early
    texts = [list(prompt) for prompt in PROMPTS]
    decoder, unread, rows = BatchDecoder(model, 3), texts, [0, 1, 2]
    lengths = set()
    for answers in ([[50], [51, 52, 53, 54], [55, 56]], [[], [57], [58]]):
        with torch.inference_mode():
            written = decoder.write(unread, [0.0] * len(rows), MOST, end, None)
        assert [turn for turn, _ in written] == [generate(model, texts[row], end) for row in rows]
        lengths |= {len(turn) for turn, _ in written}
        decoder.keep(rows[1:] if len(rows) == 3 else [0, 1])
        written, rows = written[-2:], [1, 2]
        unread = [[turn[-1], *answers[row]] for row, (turn, _) in zip(rows, written, strict=True)]
        for row, (turn, _) in zip(rows, written, strict=True):
            texts[row] = [*texts[row], *turn, *answers[row]]
    assert MOST in lengths and min(lengths) < MOST


@pytest.mark.parametrize(("portion", "beside"), [(1, 64), (9, 2), (2048, 1), (2048, 64)])
def test_rows_keep_their_own_text_over_turns_that_end_at_different_tokens(
    model, portion, beside, monkeypatch
):
    monkeypatch.setattr("pwagents.lm.decode.PORTION", portion)
    monkeypatch.setattr("pwagents.lm.decode.BESIDE", beside)
    texts = [list(range(5 + row, 9 + 4 * row)) for row in range(5)]
    end = generate(model, texts[2], end=None)[1]  # a row in the middle ends first
    decoder, unread, rows = BatchDecoder(model, 5), texts, [0, 1, 2, 3, 4]
    for kept in ([0, 1, 2, 3, 4], [0, 2, 3], [0, 1, 2], [1]):
        with torch.inference_mode():
            turns = [turn for turn, _ in decoder.write(unread, [0.0] * len(rows), MOST, end, None)]
        assert turns == [generate(model, texts[row], end) for row in rows]
        decoder.keep(kept)
        rows, turns = [rows[i] for i in kept], [turns[i] for i in kept]
        answers = [list(range(20, 21 + 3 * (row % 3))) for row in rows]
        unread = [[turn[-1], *answer] for turn, answer in zip(turns, answers, strict=True)]
        for row, turn, answer in zip(rows, turns, answers, strict=True):
            texts[row] = [*texts[row], *turn, *answer]


def test_equal_first_texts_are_read_once(model):
    prompts, read = [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]], []
    embedding = model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    with torch.inference_mode():
        written = BatchDecoder(model, 4).write(prompts, [0.0] * 4, 2, -1, None)
    hook.remove()
    assert [turn for turn, _ in written] == [generate(model, p, end=None, most=2) for p in prompts]
    assert read == [len(PROMPTS[0]) + len(PROMPTS[1]), 4]  # then one token of each row


@pytest.mark.parametrize("most", [1, MOST])
def test_a_turn_may_be_one_token_long(model, most):
    end = generate(model, PROMPTS[0], end=None)[0]
    for prompts in ([PROMPTS[0]], [PROMPTS[0]] * 3, PROMPTS):
        with torch.inference_mode():
            turns = [turn for turn, _ in BatchDecoder(model, len(prompts)).write(
                prompts, [0.0] * len(prompts), most, end, None)]  # fmt: skip
        assert turns == [generate(model, prompt, end, most) for prompt in prompts] and turns[0] == [end]


def test_log_probabilities_are_those_of_a_plain_forward_pass_at_each_rows_temperature(model):
    temperatures = [0.6, 1.3, 0.0]
    with torch.inference_mode():
        chance = torch.Generator().manual_seed(0)
        written = BatchDecoder(model, 3).write(PROMPTS, temperatures, MOST, 2, chance)
    for prompt, temperature, (turn, logprobs) in zip(PROMPTS, temperatures, written, strict=True):
        expected = logprobs_of(model, [*prompt, *turn], len(prompt), temperature or 1.0)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-5, rtol=0)
    assert written[2][0] == generate(model, PROMPTS[2], 2), "the row at temperature 0 is greedy"


def test_tokens_come_as_often_as_the_model_says(tokenizer):
    model, rows = make_small_model(tokenizer, 1).eval(), 4000
    with torch.inference_mode():
        written = BatchDecoder(model, rows).write(
            [PROMPTS[1]] * rows, [0.5] * rows, 1, 2, torch.Generator().manual_seed(1)
        )
        logits = model(torch.tensor([PROMPTS[1]])).logits[0, -1]
    expected = (logits / 0.5).softmax(-1)
    found = torch.bincount(torch.tensor([turn[0] for turn, _ in written]), minlength=len(logits)) / rows
    error = (expected * (1 - expected) / rows).sqrt()
    assert expected.max() > 0.02
    assert ((found - expected).abs() < 5 * error + 1e-3).all()
