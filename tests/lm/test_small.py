"""The small tokenizer, and the small Qwen2 model before any training."""

import torch
from transformers import Qwen2ForCausalLM

from pwagents.llm.folder import dropped_by_template
from pwagents.lm.small import CONTEXT, make_small_model, make_tokenizer


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_it_is_a_qwen2_model_of_the_announced_size(tokenizer, small_model):
    assert isinstance(small_model, Qwen2ForCausalLM)
    assert 0.3e6 < weights(small_model).numel() < 3e6
    assert small_model.lm_head.weight is small_model.model.embed_tokens.weight
    assert small_model.config.vocab_size == len(tokenizer)
    wider = make_small_model(tokenizer, 1, {"hidden_size": 120})
    assert (wider.config.hidden_size, wider.config.num_hidden_layers) == (120, 3)


def test_it_knows_where_its_turn_ends(tokenizer, small_model, tmp_path):
    small_model.save_pretrained(tmp_path)
    loaded = Qwen2ForCausalLM.from_pretrained(tmp_path)
    ends = (tokenizer.eos_token_id, tokenizer.pad_token_id)
    for config in (loaded.config, loaded.generation_config):
        assert (config.eos_token_id, config.pad_token_id) == ends
    assert loaded.config.max_position_embeddings == CONTEXT


def test_its_template_drops_nothing_for_functions_are_known_by_heart():
    assert dropped_by_template(make_tokenizer()) == []


def test_given_words_and_fixed_texts_are_a_token_each_and_other_words_are_spelled():
    tokenizer = make_tokenizer(["mat", "B0", "##KA"], fixed=["Profile:\nnone"])
    assert tokenizer.tokenize("mat, mats") == ["mat", ",", "mat", "##s"]
    assert tokenizer.tokenize("B0KAKA") == ["B0", "##KA", "##KA"]
    assert tokenizer.tokenize("mat Profile:\nnone") == ["mat", "Profile:\nnone"]
    assert len(tokenizer) == len(make_tokenizer()) + 4
