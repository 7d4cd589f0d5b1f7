"""PUMA's labels and memory: as published on a world made by hand, and, leak-free, without the target."""

import importlib.util
import json
import os
import sys
import types
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.llm.chat import ChatModel, Reply
from pwagents.puma.labels import Begun, llm_queries, make_labels, offline_queries
from pwagents.puma.prompts import load_prompts
from pwagents.puma.settings import Method
from pwagents.web.environment import BeliefState

from .purchases import LABELS, make_benchmark, write_published
from .standins import begun_of, byte_tokenizer, memory_of, word_counts

CLONE = os.environ.get("PWAB_CLONE", "")


class Writer(ChatModel):
    """Stands in for the model that writes queries: a reply tells what it was asked."""

    name = "writer"

    def __init__(self, reply=lambda text: f"query of {len(text)} letters, {hash(text) % 1000}"):
        self.prompts, self.answer = [], reply

    def reply(self, request):
        (message,) = request.messages
        assert message["role"] == "system" and request.sampling == {"temperature": 0.0}
        self.prompts.append(message["content"])
        return Reply(text=self.answer(message["content"]))


@pytest.fixture(scope="module")
def by_hand():
    return make_benchmark()


def leak_free_of(begun, memory):
    return make_labels("leak_free", begun, memory, partial(offline_queries, memory))


def said(label):
    return label.parameter if isinstance(label.parameter, str) else ", ".join(label.parameter)


def test_published_labels_are_those_worked_out_by_hand(by_hand):
    memory = memory_of(by_hand.products)
    writer = partial(llm_queries, Writer(), memory, load_prompts())
    made = {}
    for split in ("train", "test"):
        labels, _ = make_labels("published", begun_of(by_hand, split), memory, writer, split)
        made |= {label.begun.task.task_id: said(label) for label in labels}
    assert made.pop("query").startswith("query of")
    assert made == LABELS


def test_a_search_is_labelled_from_instruction_and_uncut_memory(by_hand):
    writer, memory = Writer(), memory_of(by_hand.products)
    searches = [each for each in begun_of(by_hand, "train") if each.task.type == "search"]
    llm_queries(writer, memory, load_prompts(), searches)
    (prompt,) = writer.prompts
    assert "Find a red pan" in prompt
    past = [b.parent_asin for b in by_hand.behaviors["U"] if b.timestamp < searches[0].task.timestamp]
    assert len(past) > 30 and all(by_hand.products[asin].title in prompt for asin in past)


def test_where_no_model_writes_the_rule_does(by_hand):
    memory = memory_of(by_hand.products)
    searches = [each for each in begun_of(by_hand, "train") if each.task.type == "search"]
    silent = partial(llm_queries, Writer(lambda text: " "), memory, load_prompts())
    # Of forty pans and rakes, each of the brand Otter, most are pans, which the instruction says.
    assert silent(searches) == offline_queries(memory, searches) == ["Otter Find a red pan"]


@pytest.fixture(scope="module", params=["synthetic", "amazon"])
def source(request, project_root):
    """A benchmark of each source; raw Amazon files are not part of the repository."""
    if request.param == "synthetic":
        return make_world(WorldConfig(n_users=14, n_products=150), seed=0).benchmark
    folder = Path(project_root).parent / "shared" / "data" / "amazon_reviews_2023"
    if not folder.is_dir():
        pytest.skip("no raw Amazon Reviews 2023 files here")
    return load_amazon(folder, n_users=10, min_behaviors=5, max_products=60)


@pytest.fixture(scope="module")
def leak_free(source):
    """Memory, train tasks, labels and counts of a source."""
    memory, begun = memory_of(source.products), begun_of(source, "train", "leak_free")
    return memory, begun, *leak_free_of(begun, memory)


def is_known(label, source):
    """Whether the target, or a product of its title, stands in the past."""
    target = source.products[label.begun.task.target]
    past = [source.products[b.parent_asin] for b in label.begun.state.history]
    return any(p.parent_asin == target.parent_asin or p.title == target.title for p in past)


def test_no_leak_free_label_and_no_input_tells_the_target_unless_the_past_does(source, leak_free):
    memory, begun, labels, counts = leak_free
    assert sum(counts.values()) == len(begun) and labels
    prompts = load_prompts()
    bought = [label for label in labels if label.begun.task.type != "review" and is_known(label, source)]
    assert len(bought) == sum(n for (_, outcome), n in counts.items() if outcome == "labelled, bought before")
    for label in labels:
        task, state, target = *label.begun, source.products[label.begun.task.target]
        recall = memory.recall(state, label.begun.function, Method(memory_tokens=10**6))
        prompt = prompts.parameter(state, label.begun.function, recall)
        if task.type == "review":  # the product is given, the review is the answer
            assert task.review.text.strip() not in prompt
        elif label not in bought:
            told = f"{prompt}\n{said(label)}"
            assert target.parent_asin not in told and target.title.lower() not in told.lower()


def test_leak_free_labels_do_not_depend_on_the_target(source, leak_free):
    """Another product in the place of the target: the same labels, for as far as they are given at all."""
    memory, begun, labels, _ = leak_free
    one, other = sorted(source.products)[:2]
    swapped = [
        each._replace(task=each.task.model_copy(update={"target": one if each.task.target != one else other}))
        for each in begun
        if each.task.type != "review"
    ]
    before = {label.begun.task.task_id: label.parameter for label in labels}
    after = leak_free_of(swapped, memory)[0]
    both = [label for label in after if label.begun.task.task_id in before]
    assert both and all(before[label.begun.task.task_id] == label.parameter for label in both)


def test_a_leak_free_recommendation_is_of_the_category_of_the_closest_purchase(by_hand):
    memory = memory_of(by_hand.products)
    begun = [each for each in begun_of(by_hand, "test", "leak_free") if each.task.task_id == "later"]
    asked = replace(begun[0].state, instruction="Another Rake for the Garden")
    (label,), _ = leak_free_of([begun[0]._replace(state=asked)], memory)
    assert label.parameter == ("G1", "G2", "G9", "G3")  # the target is for the kitchen


def test_nothing_bought_is_nothing_to_recommend(by_hand):
    memory = memory_of(by_hand.products)
    task = by_hand.tasks["train"][0]
    begun = Begun(task, BeliefState("U", task.instruction, "", None, ()))
    labels, counts = leak_free_of([begun], memory)
    assert labels == [] and counts == {("recommend", "nothing to say"): 1}


def test_a_query_that_gives_the_target_away_is_no_leak_free_label(source, leak_free):
    memory, begun, *_ = leak_free
    searches = [each for each in begun if each.task.type == "search"]

    def cheat(asked):
        return [source.products[each.task.target].title for each in asked]

    labels, counts = make_labels("leak_free", searches, memory, cheat)
    assert all(is_known(label, source) for label in labels)
    assert counts["search", "target in the label"] > 0 == counts["search", "labelled"]


@pytest.mark.skipif(not CLONE, reason="PWAB_CLONE names no clone of PersonalWAB's repository")
def test_the_published_script_makes_the_same_prompts_and_labels(by_hand, tmp_path, monkeypatch):
    """Its main() on the world made by hand; tokenizers, MiniLM and gpt-4o-mini are stand-ins."""
    write_published(by_hand, tmp_path)
    cut = 120
    official = run_published(tmp_path, cut, monkeypatch)
    prompts = load_prompts(CLONE)
    memory = memory_of(by_hand.products, prompts.texts)
    writer, method = partial(llm_queries, Writer(), memory, prompts), Method(memory_tokens=cut)
    for split in ("train", "test"):
        labels, _ = make_labels("published", begun_of(by_hand, split), memory, writer, split)
        assert len(labels) == len(official[split])
        for label, row in zip(labels, official[split], strict=True):
            state, function = label.begun.state, label.begun.function
            recall = memory.recall(state, function, method)
            assert prompts.parameter(state, function, recall) == row["prompt"]
            assert memory.recall(state, function, replace(method, memory_tokens=10**6)).text == row["mem"]
            assert said(label) == row["target"]


def run_published(folder, cut, monkeypatch):
    """What the script's main() writes."""

    class Encoded(dict):
        def to(self, device):
            return self

    def read(texts, **_):
        import torch

        counts = torch.tensor(np.array([word_counts(text) for text in texts]))
        return Encoded(counts=counts, attention_mask=torch.ones(len(texts), 1))

    class MiniLm:
        def __call__(self, counts, attention_mask):
            return (counts.unsqueeze(1),)

        eval = to = lambda self, *_: self

    class OpenAI:
        def __init__(self):
            create = self.create
            self.chat = types.SimpleNamespace(completions=types.SimpleNamespace(create=create))

        def create(self, model, messages, temperature):
            assert model == "gpt-4o-mini" and temperature == 0 and len(messages) == 1
            message = types.SimpleNamespace(content=Writer().answer(messages[0]["content"]))
            return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])

    import openai
    import torch
    import transformers

    # Loaded before wandb, which the script imports and never uses, is there in name alone.
    _ = transformers.Trainer, transformers.AutoModel, importlib.import_module("datasets")
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    monkeypatch.setattr(openai, "OpenAI", OpenAI)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    tokenizer = {"Llama-2-7b-chat-hf": byte_tokenizer(), "all-MiniLM-L6-v2": read}
    read_tokenizer = lambda name: tokenizer[name.split("/")[1]]  # noqa: E731
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", read_tokenizer)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda name: MiniLm())
    monkeypatch.delitem(sys.modules, "utils", raising=False)
    monkeypatch.syspath_prepend(str(Path(CLONE) / "PUMA"))
    spec = importlib.util.spec_from_file_location("prepare", Path(CLONE) / "PUMA" / "prepare_param_data.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    output = folder / "output.json"
    files = ["--task_file", folder / "tasks.json", "--user_history_file", folder / "history.json"]
    arguments = ["prepare", *files, "--output_file", output, "--mem_token_length", cut]
    monkeypatch.setattr(sys, "argv", [str(each) for each in arguments])
    script.main()
    monkeypatch.delitem(sys.modules, "utils")
    return json.loads(output.read_text())
