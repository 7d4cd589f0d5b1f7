"""What models read and write: our ways against transformers' own, vLLM's against ours."""

import random
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2ForCausalLM

from base_model.small import make_small_model
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.complete import complete
from pwagents.lm.decode import BatchDecoder, VllmDecoder
from pwagents.lm.packed import states_before

from .conftest import texts

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


def test_equal_first_texts_are_read_once_and_a_turn_may_be_one_token_long(model):
    prompts, read = [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]], []
    embedding, end = model.get_input_embeddings(), generate(model, PROMPTS[0], end=None)[0]
    hook = embedding.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    write(BatchDecoder(model, 4), prompts, 2, -1)
    hook.remove()
    assert read == [len(PROMPTS[0]) + len(PROMPTS[1]), 4]  # then one token of each row
    for most in (1, MOST):
        for some in ([PROMPTS[0]], prompts[2:], prompts):
            turns = [turn for turn, _ in write(BatchDecoder(model, len(some)), some, most, end)]
            assert turns == [generate(model, each, end, most) for each in some] and turns[0] == [end]


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
    """``vllm.LLM`` for greedy turns, computed with transformers: a turn holds its end token."""

    def __init__(self, model):
        self.model, self.asked = model, []
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=4096))

    def generate(self, prompts, sampling_params, use_tqdm):
        self.asked, outputs = self.asked + sampling_params, []
        for prompt, sampling in zip(prompts, sampling_params, strict=True):
            ids = prompt["prompt_token_ids"]
            turn = generate(self.model, ids, *sampling.stop_token_ids, sampling.max_tokens)
            logprobs = logprobs_of(self.model, [*ids, *turn], len(ids), 1.0).tolist()
            entries = [{t: SimpleNamespace(logprob=p)} for t, p in zip(turn, logprobs, strict=True)]
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=turn, logprobs=entries)]))
        return outputs


def test_vllm_is_asked_for_the_turns_that_our_own_decoder_writes(small_model, monkeypatch):
    """vLLM needs a GPU: what is tested is what we ask of it and make of its answers."""
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    seeds, end = [], generate(small_model.eval(), PROMPTS[0], end=None)[3]
    for _ in range(2):
        engine, unread, chance = Engine(small_model), [*map(list, PROMPTS)], torch.Generator().manual_seed(3)
        ours, theirs = BatchDecoder(small_model, 3), VllmDecoder(engine, 3)
        for kept in ([0, 2], [0, 1]):
            expected = write(ours, unread, 8, end)
            written = write(theirs, unread, 8, end, [0.6, 1.0, 0.0][: len(unread)], chance)
            for (turn, logprobs), (own_turn, own) in zip(written, expected, strict=True):
                assert turn == own_turn and logprobs == pytest.approx(own, abs=1e-4)
            unread = [[written[i][0][-1], 30 + i, 31] for i in kept]
            ours.keep(kept), theirs.keep(kept)
        assert [each.temperature for each in engine.asked] == [0.6, 1.0, 0.0, 0.6, 1.0]
        assert {each.max_tokens for each in engine.asked} == {8}
        seeds.append([each.seed for each in engine.asked])
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == len(seeds[0])


# Texts in one line: the same hidden states and gradients as side by side, and less to read.
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


# Completions of plain texts: no template, no end token.
ROWS, SIX = [row["prompt"] for row in texts(7)], {"max_new_tokens": 6, "batch_size": 3}


def test_a_greedy_completion_is_the_most_likely_text_up_to_the_end_whatever_stands_beside_it(models):
    tokenizer, model = read_tokenizer(models / "sft"), read_model(models / "sft", torch.float32)
    written = [generate(model, tokenizer(each)["input_ids"], tokenizer.eos_token_id, 6) for each in ROWS]
    expected = [[tokenizer.decode(ids, skip_special_tokens=True)] for ids in written]
    assert complete(models / "sft", ROWS, **SIX) == expected
    assert complete(models / "sft", ROWS, **SIX | {"batch_size": 1}) == expected
    assert any(text for (text,) in expected)


def test_sampled_beams_follow_from_the_seed_and_a_killed_run_goes_on_after_what_it_stored(
    models, tmp_path, monkeypatch
):
    store, options = tmp_path / "texts.jsonl", {**SIX, "temperature": 1.5, "beams": 3}
    unbroken = complete(models / "sft", ROWS, **options, seed=1, store=store)
    assert [len(texts) for texts in unbroken] == [3] * len(ROWS)
    torch.manual_seed(99)  # chance elsewhere changes nothing
    assert complete(models / "sft", ROWS, **options, seed=1) == unbroken
    assert complete(models / "sft", ROWS, **options, seed=2) != unbroken
    alone = complete(models / "sft", ROWS, **options, seed=1, independent=True)
    assert [len(texts) for texts in alone] == [3] * len(ROWS) and alone != unbroken
    lines = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(lines[0] + lines[1][:20])
    assert complete(models / "sft", ROWS, **options, seed=1, store=store) == unbroken
    assert store.read_bytes() == b"".join(lines)
    monkeypatch.setattr("pwagents.lm.complete.read_model", lambda *_: pytest.fail("a model is loaded"))
    assert complete(models / "sft", ROWS, **options, seed=1, store=store) == unbroken


def test_vllm_writes_where_it_is_there_but_searches_no_beams(tmp_path, monkeypatch):
    asked = []

    class LLM:
        def __init__(self, model):
            assert model == str(tmp_path)

        def generate(self, prompts, sampling, use_tqdm):
            asked.append((len(prompts), sampling.temperature, sampling.seed))
            texts = [[f"{prompt}{i}" for i in range(sampling.n)] for prompt in prompts]
            return [SimpleNamespace(outputs=[SimpleNamespace(text=t) for t in each]) for each in texts]

    vllm = SimpleNamespace(LLM=LLM, SamplingParams=SimpleNamespace, __spec__=ModuleSpec("vllm", None))
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    prompts = [f"prompt {i} " for i in range(300)]
    monkeypatch.setattr("pwagents.lm.complete._transformers", lambda *_: lambda prompts, seed: [["beams"]])
    assert complete(tmp_path, prompts[:1], **SIX, temperature=1.5, beams=10) == [["beams"]]
    written = complete(tmp_path, prompts, **SIX, temperature=1.5, beams=10, independent=True)
    assert written == [[f"{prompt}{i}" for i in range(10)] for prompt in prompts]
    (first, temperature, seed), (second, _, other) = asked
    assert (first, second, temperature) == (256, 44, 1.5) and seed != other
