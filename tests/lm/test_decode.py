"""The batched decoder against transformers' own forward pass and generation, and vLLM's against ours."""

import sys
import warnings
from functools import cache
from types import ModuleType, SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2ForCausalLM

from pwagents.lm.decode import BatchDecoder, VllmDecoder
from pwagents.lm.small import make_small_model

PROMPTS = ([5, 6, 7, 8, 9, 40, 41], [60, 61, 62], [5, 6, 7, 8, 80, 81, 82, 83, 84, 85, 86])
MOST = 10


@pytest.fixture(scope="module", params=["small", "grouped heads", "adapter"])
def model(request, tokenizer):
    model = make_small_model(tokenizer, 1)
    torch.manual_seed(0)
    if request.param == "grouped heads":  # three that share their keys and values
        model.config.num_key_value_heads = 1
        model = Qwen2ForCausalLM(model.config)
    elif request.param == "adapter":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # peft's own use
            model = get_peft_model(model, LoraConfig(target_modules="all-linear", r=4))
        for name, weights in model.named_parameters():
            if "lora_B" in name:  # so that it does something
                torch.nn.init.normal_(weights, std=0.1)
    return model.eval()


def generate(model, ids, end, most=MOST):
    """What transformers writes after ``ids``, greedily."""
    return _generated(model, tuple(ids), end, most)


@cache  # several tests compare with the same
def _generated(model, ids, end, most):
    read = torch.tensor([ids])
    options = {"do_sample": False, "eos_token_id": end, "max_new_tokens": most, "pad_token_id": 0}
    with torch.inference_mode():
        written = model.generate(input_ids=read, attention_mask=torch.ones_like(read), **options)
    return written[0, len(ids) :].tolist()


def logprobs_of(model, ids, begin, temperature):
    """Of ``ids[begin:]``, by a plain forward pass over all of them."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, begin - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(ids[begin:])[:, None])[:, 0]


def write(decoder, unread, most=MOST, end=None, temperatures=None, chance=None):
    with torch.inference_mode():
        return decoder.write(unread, temperatures or [0.0] * len(unread), most, end, chance)


@pytest.mark.parametrize(
    ("portion", "beside", "ends_after"), [(1, 64, 1), (9, 2, 0), (2048, 1, 3), (2048, 64, 1)]
)
def test_greedy_turns_are_those_of_generate_over_turns_that_end_at_different_tokens(
    model, portion, beside, ends_after, monkeypatch
):
    monkeypatch.setattr("pwagents.lm.decode.PORTION", portion)
    monkeypatch.setattr("pwagents.lm.decode.BESIDE", beside)
    texts = [list(range(5 + row, 9 + 4 * row)) for row in range(5)]
    end = generate(model, texts[2], end=None)[ends_after]  # a row in the middle ends first
    decoder, unread, rows, lengths = BatchDecoder(model, 5), texts, [0, 1, 2, 3, 4], set()
    for kept in ([0, 1, 2, 3, 4], [0, 2, 3], [0, 1, 2], [1]):
        turns = [turn for turn, _ in write(decoder, unread, end=end)]
        assert turns == [generate(model, texts[row], end) for row in rows]
        lengths |= {*map(len, turns)}
        decoder.keep(kept)
        rows, turns = [rows[i] for i in kept], [turns[i] for i in kept]
        answers = [list(range(20, 20 + 3 * (row % 3))) for row in rows]  # of one there is none
        unread = [[turn[-1], *answer] for turn, answer in zip(turns, answers, strict=True)]
        for row, turn, answer in zip(rows, turns, answers, strict=True):
            texts[row] = [*texts[row], *turn, *answer]
    assert min(lengths) < MOST


def test_equal_first_texts_are_read_once(model):
    prompts, read = [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]], []
    embedding = model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    written = write(BatchDecoder(model, 4), prompts, 2, -1)
    hook.remove()
    assert [turn for turn, _ in written] == [generate(model, p, end=None, most=2) for p in prompts]
    assert read == [len(PROMPTS[0]) + len(PROMPTS[1]), 4]  # then one token of each row


@pytest.mark.parametrize("most", [1, MOST])
def test_a_turn_may_be_one_token_long(model, most):
    end = generate(model, PROMPTS[0], end=None)[0]
    for prompts in ([PROMPTS[0]], [PROMPTS[0]] * 3, PROMPTS):
        turns = [turn for turn, _ in write(BatchDecoder(model, len(prompts)), prompts, most, end)]
        assert turns == [generate(model, prompt, end, most) for prompt in prompts] and turns[0] == [end]


def test_log_probabilities_are_those_of_a_plain_forward_pass_at_each_rows_temperature(model):
    temperatures, chance = [0.6, 1.3, 0.0], torch.Generator().manual_seed(0)
    written = write(BatchDecoder(model, 3), PROMPTS, MOST, 2, temperatures, chance)
    for prompt, temperature, (turn, logprobs) in zip(PROMPTS, temperatures, written, strict=True):
        expected = logprobs_of(model, [*prompt, *turn], len(prompt), temperature or 1.0)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-5, rtol=0)
    assert written[2][0] == generate(model, PROMPTS[2], 2), "the row at temperature 0 is greedy"


def test_tokens_come_as_often_as_the_model_says(small_model):
    rows, chance = 4000, torch.Generator().manual_seed(1)
    decoder = BatchDecoder(small_model.eval(), rows)
    written = write(decoder, [PROMPTS[1]] * rows, 1, 2, [0.5] * rows, chance)
    expected = (small_model(torch.tensor([PROMPTS[1]])).logits[0, -1] / 0.5).softmax(-1)
    shares = torch.bincount(torch.tensor([turn[0] for turn, _ in written]), minlength=len(expected)) / rows
    error = (expected * (1 - expected) / rows).sqrt()
    assert expected.max() > 0.02 and ((shares - expected).abs() < 5 * error + 1e-3).all()


class Engine:
    """``vllm.LLM.generate`` for greedy turns, computed with transformers: a turn holds its end token."""

    def __init__(self, model):
        self.model, self.asked = model, []

    def generate(self, prompts, sampling_params, use_tqdm):
        self.asked += sampling_params
        return [self._one(*pair) for pair in zip(prompts, sampling_params, strict=True)]

    def _one(self, prompt, sampling):
        ids = prompt["prompt_token_ids"]
        turn = generate(self.model, ids, *sampling.stop_token_ids, sampling.max_tokens)
        logprobs = logprobs_of(self.model, [*ids, *turn], len(ids), 1.0).tolist()
        entries = [{t: SimpleNamespace(logprob=p)} for t, p in zip(turn, logprobs, strict=True)]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=turn, logprobs=entries)])


def test_vllm_is_asked_for_the_turns_that_our_own_decoder_writes(small_model, monkeypatch):
    """vLLM needs a GPU: what is tested is what we ask of it and make of its answers."""
    module = ModuleType("vllm")
    module.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", module)
    engine, seeds = Engine(small_model.eval()), []
    end = generate(small_model, PROMPTS[0], end=None)[3]
    for _ in range(2):
        ours, theirs, chance = BatchDecoder(small_model, 3), VllmDecoder(engine, 3), torch.Generator()
        unread = [list(prompt) for prompt in PROMPTS]
        chance.manual_seed(3)
        for kept in ([0, 2], [0, 1]):
            expected = write(ours, unread, 8, end)
            temperatures = [0.6, 1.0, 0.0][: len(unread)]
            written = write(theirs, unread, 8, end, temperatures, chance)
            assert [turn for turn, _ in written] == [turn for turn, _ in expected]
            for (_, one), (_, other) in zip(written, expected, strict=True):
                assert one == pytest.approx(other, abs=1e-4)
            unread = [[written[i][0][-1], 30 + i, 31] for i in kept]
            ours.keep(kept), theirs.keep(kept)
        asked, engine.asked = engine.asked, []
        assert [each.temperature for each in asked] == [0.6, 1.0, 0.0, 0.6, 1.0]
        assert {each.max_tokens for each in asked} == {8}
        seeds.append([each.seed for each in asked])
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == len(seeds[0])
