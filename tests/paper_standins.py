"""What takes the place of the paper preset's models, endpoints and data where there is no GPU and no network.

- Qwen2.5-7B-Instruct: a random Qwen2 of one layer and 140,000 parameters, with Qwen2.5's chat template.
- LLaMA-2-7b-chat: a random LLaMA as small, whose tokenizer has no chat template and no padding.
- PersonalWAB's clone: a small world, written as PersonalWAB's files; a random recommender in the published
  shape; prompts (:mod:`tests.clone`).
- gpt-4o and all other models of an endpoint, in every role: :func:`answer`, behind a local server.
- sizes: :data:`SIZES`. All else stays as ``params/paper.yaml`` has it.
"""

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pwagents.schema import UserProfile
from pwagents.words import read_yaml

# Small values by group. Those of settings that a notebook does not have are passed over; lists and learning
# rates are such that each training happens and learns.
SIZES: dict[str, Any] = {
    "data": {"n_users": 14, "n_products": 300},
    "shop": {"max_tokens": 48, "rec_dates": 1, "recommender": {"epochs": 1}},
    "players": {"workers": 4},
    "study": {
        **{"training_users": 8, "train_tasks": 16, "test_tasks": 8, "timed_tasks": 2, "eval_tasks": 4},
        **{"memory_tokens": 128, "memory_lengths": [64], "max_new_tokens": 12},
    },
    "identify": {  # long enough to name functions
        "trainer": {
            "num_train_epochs": 40.0,
            "learning_rate": 0.01,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "max_length": 128,
        }
    },
    "role_play": {"n_trajectories": 4, "scaling": [4], "success_rank": 10, "review_success": 0.0},
    "sft": {  # by two processes
        **{"n_gpus": 2, "sharding": "cpu"},
        "trainer": {"num_train_epochs": 2.0, "learning_rate": 0.01, "gradient_accumulation_steps": 1},
    },
    "dpo": {"candidates": 2, "trainer": {"num_train_epochs": 1.0, "gradient_accumulation_steps": 1}},
    "play": {"turn_tokens": 12, "episode_tokens": 150, "max_tasks": 8, "method_tasks": 4},
    "rl": {
        **{"max_steps": 1, "prompts_per_step": 4, "num_generations": 2, "per_device_train_batch_size": 2},
        **{"n_gpus": 2, "sharding": "cpu", "use_vllm": False, "log_tasks": 2, "seeds": [0], "minibatches": 2},
        "variants": [{"name": "credit by turn", "credit": "turn"}],
        "design": [],
    },
}
_MODELS = re.compile("(qwen)|(llama)", re.IGNORECASE)  # in the names or folders of models to be downloaded

_PROFILE = {field.alias: "Medium" for field in UserProfile.model_fields.values()} | {
    **{"Gender": "Female", "Age": "35-44", "Occupation": "Writer"},
    **{"Positive Preferences": ["color: navy"], "Negative Preferences": ["material: plastic"]},
    **{"Domain Recommendations": ["style: retro"], "Domain Avoidances": [], "score": 0.5},
    "lines": [{"text": "color: navy", "positive": True, "provenance": "history"}],
}
# By type of task: ambiguous, and such that an agent knows which function is meant.
_REQUESTS = {
    "search": "Something like what I have at home, please.",
    "recommend": "Can you suggest anything for me?",
    "review": "Please write the review for me.",
}


def overrides(
    preset: Mapping[str, Any], models: tuple[Path, Path], data: Path, url: str, output: Path
) -> dict[str, Any]:
    """What a notebook's parameters cell changes of the preset paper, or of open.

    Args:
        preset: the notebook's values, from :func:`pwagents.settings.settings_values`.
        models, data: folders of the stand-ins, the Qwen2 first; ``url``: of the endpoint.
    """
    changed = _changed(preset, SIZES, models)
    changed["players"] = changed.get("players", {}) | {"base_url": url}
    if preset.get("study", {}).get("training_users") == 0:  # which means the benchmark's own users
        del changed["study"]["training_users"]
    for group in ("study", "play"):
        if "official_repo" in preset.get(group, {}):
            changed[group]["official_repo"] = str(data)
    return changed | {"preset": preset["preset"], "data_dir": str(data), "output_dir": str(output)}


def _changed(
    preset: Mapping[str, Any], sizes: Mapping[str, Any], models: tuple[Path, Path]
) -> dict[str, Any]:
    """Those of the values that a size or a model replaces, groups within groups likewise."""
    changed = {}
    for name, value in preset.items():
        if isinstance(value, Mapping):
            inner = _changed(value, sizes.get(name, {}), models)
            changed |= {name: inner} if inner else {}
        elif name in sizes:
            changed[name] = sizes[name]
        elif isinstance(value, str) and (match := _MODELS.search(value)):
            model = models[match.lastindex - 1]
            changed[name] = "".join(re.findall("^(?:local|openai):", value)) + str(model)
    return changed


def save_random(folder: Path, name: str, tokenizer, **shape: Any) -> Path:
    """A random model of one layer, ``name`` its class without the task, and its tokenizer."""
    import torch
    import transformers

    ends = {f"{end}_token_id": getattr(tokenizer, f"{end}_token_id") for end in ("bos", "eos", "pad")}
    shape |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **shape, **ends)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train_tokenizer(texts: list[str], size: int, begin: str = "", **tokens: str):
    """A byte-level tokenizer, trained on the spot, that begins each text with ``begin``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    from base_model.exercises import shop_words

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[begin] if begin else [], **alphabet)
    core.train_from_iterator([*texts, *(f" {word}" for word in sorted(shop_words()))], trainer)
    if begin:
        first = [(begin, core.token_to_id(begin))]
        core.post_processor = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=first)
        tokens["bos_token"] = begin
    return PreTrainedTokenizerFast(tokenizer_object=core, **tokens)


def save_qwen(folder: Path) -> Path:
    """A random Qwen2 with Qwen2.5's chat template."""
    shape = {"num_key_value_heads": 2, "max_position_embeddings": 32768, "tie_word_embeddings": False}
    return save_random(folder, "Qwen2", make_tokenizer(), **shape)


def make_tokenizer():
    """Qwen2.5's tokens for roles, ends and calls; words from what the agents are told."""
    from pwagents.orion.agent import RULES, orion_tools

    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "padding_side": "left"}
    tokenizer = train_tokenizer([RULES, json.dumps(orion_tools(), indent=1)], 2000, **ends)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    templates = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text(encoding="utf-8")
    return tokenizer


def save_llama(folder: Path) -> Path:
    """A random LLaMA; its tokenizer begins each text as LLaMA's does, and has no padding."""
    from pwagents.puma.memory import OURS
    from pwagents.schema import FUNCTION_OF

    texts = [*OURS.values(), *20 * [*FUNCTION_OF.values()]]
    tokenizer = train_tokenizer(texts, 1500, begin="<s>", eos_token="</s>")
    return save_random(folder, "Llama", tokenizer, max_position_embeddings=4096)


def save_clone(folder: Path) -> Path:
    """A small world, a recommender and prompts in the files of PersonalWAB's repository."""
    import torch

    from pwagents.data.synthetic import make_world
    from pwagents.settings import WorldSettings
    from pwagents.shop.sasrec import SasRec

    from .clone import make_clone
    from .personalwab_files import records, write_records

    config = WorldSettings(**SIZES["data"], history=(10, 24))
    benchmark = make_world(config, seed=0).benchmark
    write_records(records(benchmark), folder)
    torch.save(SasRec(len(benchmark.products), dropout=0.5).state_dict(), folder / "pwab.pth")
    numbers = {asin: i for i, asin in enumerate(benchmark.products, start=1)}
    (folder / "1000_ids.json").write_text(json.dumps(numbers))
    return make_clone(folder)


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The assistant's message of a model that plays every role: agents act, others tell.

    An agent does the one thing that its instruction asks for, with a thought, then stops.
    """
    messages = body["messages"]
    heard = [str(m.get("content") or "") for m in messages if m["role"] != "assistant"]
    for kind, situation in read_yaml("pwagents.tasks", "writers.yaml")["ambiguous"].items():
        if situation in heard[0]:
            return _said(_REQUESTS[kind])
    if not body.get("tools"):
        wants_json = "JSON object" in heard[0]
        return _said(json.dumps(_PROFILE) if wants_json else "I would like a navy one, not too expensive.")
    offered = {tool["function"]["name"] for tool in body["tools"]}
    acted = any(m["role"] == "tool" or m.get("tool_calls") for m in messages)
    name, arguments = ("stop", {}) if acted and "stop" in offered else _act(heard)
    if name not in offered:
        name = sorted(offered)[0]
    call = {"name": name, "arguments": json.dumps(arguments)}
    thought = _said("<think>This is what is asked for.</think>")
    return thought | {"tool_calls": [{"id": "call_0", "type": "function", "function": call}]}


def _act(heard: list[str]) -> tuple[str, dict[str, Any]]:
    task = next((text for text in heard[1:] if text), heard[0])
    asked = task.partition("\n\n")[0]
    if "The product:" in task or "review" in asked.lower():
        return "add_product_review", {"review": "It does what it should. I like it."}
    bought = re.findall(r"^\d{4}-\d\d .* (\S+)$", task, re.MULTILINE)  # rows of past purchases end with ids
    if bought and re.search(r"anything for|suit me|taste|surprise|recommend|suggest", asked, re.IGNORECASE):
        return "get_recommendations_by_history", {"product_sequence": bought}
    words = re.findall(r"[A-Za-z]{3,}", task)
    return "search_product_by_query", {"query": " ".join(words[:20])}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}
