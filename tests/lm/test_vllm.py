"""Turns by vLLM. vLLM needs a GPU: what is tested is what we ask of it and make of its answers, against an
engine that takes vLLM's arguments, answers in vLLM's form and computes with transformers."""

import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pwagents.lm.small import make_small_model
from pwagents.orion.play import Decoding, play_rollouts

from ..orion.world import SPLIT, make_setting


@dataclass
class SamplingParams:
    temperature: float
    max_tokens: int
    stop_token_ids: list[int]
    logprobs: int
    seed: int


class Engine:
    """``vllm.LLM.generate`` for greedy turns: the end token is the last one of a turn, as with vLLM."""

    def __init__(self, model):
        self.model, self.asked = model, []

    def generate(self, prompts, sampling_params, use_tqdm):
        self.asked += sampling_params
        return [self._one(*pair) for pair in zip(prompts, sampling_params, strict=True)]

    @torch.inference_mode()
    def _one(self, prompt, sampling):
        ids, told = list(prompt["prompt_token_ids"]), []
        for _ in range(sampling.max_tokens):
            logprobs = self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            token = int(logprobs.argmax())
            ids.append(token)
            told.append({token: SimpleNamespace(logprob=float(logprobs[token]))})
            if token in sampling.stop_token_ids:
                break
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids[-len(told) :], logprobs=told)])


@pytest.fixture
def engine(tokenizer, monkeypatch):
    module = ModuleType("vllm")
    module.SamplingParams = SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)
    return Engine(make_small_model(tokenizer, seed=1, size=SIZE).eval())


SIZE = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
GREEDY = Decoding(turn_tokens=8, shown=2).greedy


def test_greedy_episodes_are_those_of_our_own_decoder(engine, tokenizer, benchmark, catalogue):
    tasks = list(benchmark.tasks[SPLIT][:2])
    start = make_setting(benchmark, catalogue).start
    ours = play_rollouts(engine.model, tokenizer, tasks, start, GREEDY)
    theirs = play_rollouts(engine, tokenizer, tasks, start, GREEDY)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.prompt_ids, one.completion_ids, one.mask) == (
            other.prompt_ids,
            other.completion_ids,
            other.mask,
        )
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)
    assert max(len(r.trajectory.steps) for r in theirs) > 1  # answers were read and gone on from


def test_it_is_asked_for_turns_at_the_rows_temperature_and_seeded(engine, tokenizer, benchmark, catalogue):
    tasks = [next(t for t in benchmark.tasks[SPLIT] if t.type == kind) for kind in ("search", "review")]
    start = make_setting(benchmark, catalogue).start
    hot = replace(GREEDY, temperature=0.6, review_temperature=1.0)
    seeds = []
    for _ in range(2):
        engine.asked.clear()
        play_rollouts(engine, tokenizer, tasks, start, hot, seed=3)
        seeds.append([sampling.seed for sampling in engine.asked])
        assert [sampling.temperature for sampling in engine.asked[:2]] == [0.6, 1.0]
        assert {sampling.max_tokens for sampling in engine.asked} == {8}
        assert all(sampling.stop_token_ids == [tokenizer.eos_token_id] for sampling in engine.asked)
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == len(seeds[0])
