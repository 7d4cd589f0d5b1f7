"""PUMA's labels: as published on a world made by hand, and, leak-free, without the target."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.llm.chat import ChatModel, Reply
from pwagents.puma.labels import as_text, llm_queries, make_labels, offline_queries
from pwagents.puma.prompts import load_prompts
from pwagents.puma.settings import Method

from ..official_code import CLONE, Endpoint, needs_clone, published_code
from ..personalwab_files import records
from .by_hand import LABELS, Words, begun_of, byte_tokenizer, memory_of


class Writer(ChatModel):
    """Stands in for the model that writes queries."""

    name = "writer"

    def __init__(self, answer):
        self.answer, self.prompts = answer, []

    def reply(self, request):
        (message,) = request.messages
        assert message["role"] == "system" and request.sampling == {"temperature": 0.0}
        self.prompts.append(message["content"])
        return Reply(text=self.answer(message["content"]))


def label(world, memory, writer, prompts, split):
    begun = begun_of(world, split).values()
    made, _ = make_labels("published", [*begun], memory, partial(llm_queries, writer, memory, prompts), split)
    return made


def test_published_labels_are_those_worked_out_by_hand(world, memory):
    writer, prompts = Writer(lambda _: "a query"), load_prompts()
    made = [each for split in ("train", "test") for each in label(world, memory, writer, prompts, split)]
    assert {each.begun.task.task_id: as_text(each.parameter) for each in made} == LABELS
    # A query is written from instruction and memory, which is not cut; of a test task there is none.
    (prompt,), (search,) = writer.prompts, [each for each in made if each.begun.task.task_id == "query"]
    titles = [world.products[b.parent_asin].title for b in search.begun.state.history]
    assert "Find a red pan" in prompt and len(titles) > 30 and all(title in prompt for title in titles)


@needs_clone
def test_the_published_script_makes_the_same_prompts_and_labels(world, tmp_path, monkeypatch):
    """Its main() on the world made by hand; tokenizers, MiniLM and gpt-4o-mini are stand-ins."""

    def answer(text):
        return f"query of {len(text)} letters, {hash(text) % 1000}"

    cut, files = 120, [tmp_path / f"{name}.json" for name in ("instructions", "user_history", "output")]
    for file in files[:2]:
        file.write_text(json.dumps(records(world)[file.stem]))
    options = "--task_file {} --user_history_file {} --output_file {} --mem_token_length {}"
    monkeypatch.setattr(sys, "argv", ["prepare", *options.format(*files, cut).split()])
    endpoint = Endpoint(lambda request: {"content": answer(request["messages"][0]["content"])})
    with published_code(endpoint, Words().encode) as load, monkeypatch.context() as patch:
        for name in ("transformers", "datasets", "wandb"):
            patch.setitem(sys.modules, name, MagicMock())
        patch.syspath_prepend(Path(CLONE, "PUMA"))
        _, script = load("utils"), load("prepare_param_data")
        for name in ("utils", "prepare_param_data"):
            patch.delitem(sys.modules, name)
        script.llama_tokenizer = byte_tokenizer()
        script.main()
    official, prompts = json.loads(files[2].read_text()), load_prompts(CLONE)
    memory, method = memory_of(world, prompts.texts), Method(memory_tokens=cut)
    for split, rows in official.items():
        made = label(world, memory, Writer(answer), prompts, split)
        for (begun, parameter), row in zip(made, rows, strict=True):
            recall = memory.recall(begun.state, begun.function, method)
            assert prompts.parameter(begun.state, begun.function, recall) == row["prompt"]
            uncut = memory.recall(begun.state, begun.function, replace(method, memory_tokens=10**6))
            assert (uncut.text, as_text(parameter)) == (row["mem"], row["target"])


def test_where_no_model_writes_the_rule_does(memory, begun):
    silent = llm_queries(Writer(lambda _: " "), memory, load_prompts(), [begun["query"]])
    # Of forty pans and rakes, each of the brand Otter, most are pans, which the instruction says.
    assert silent == offline_queries(memory, [begun["query"]]) == ["Otter Find a red pan"]


def leak_free_of(begun, memory, write=None):
    return make_labels("leak_free", begun, memory, write or partial(offline_queries, memory))


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
    memory, begun = memory_of(source), [*begun_of(source, "train", "leak_free").values()]
    return memory, begun, *leak_free_of(begun, memory)


def is_known(label, source):
    """Whether the target, or a product of its title, stands in the past."""
    target = source.products[label.begun.task.target]
    past = [source.products[b.parent_asin] for b in label.begun.state.history]
    return any(p.parent_asin == target.parent_asin or p.title == target.title for p in past)


def test_no_leak_free_label_and_no_input_tells_the_target_unless_the_past_does(source, leak_free):
    memory, begun, labels, counts = leak_free
    assert sum(counts.values()) == len(begun) and labels
    bought = [label for label in labels if label.begun.task.type != "review" and is_known(label, source)]
    assert len(bought) == sum(n for (_, outcome), n in counts.items() if outcome == "labelled, bought before")
    for label in labels:
        task, state, target = *label.begun, source.products[label.begun.task.target]
        recall = memory.recall(state, label.begun.function, Method(memory_tokens=10**6))
        prompt = load_prompts().parameter(state, label.begun.function, recall)
        if task.type == "review":  # the product is given, the review is the answer
            assert task.review.text.strip() not in prompt
        elif label not in bought:
            told = f"{prompt}\n{as_text(label.parameter)}"
            assert target.parent_asin not in told and target.title.lower() not in told.lower()


def test_leak_free_labels_do_not_depend_on_the_target_and_tell_it_in_no_query(source, leak_free):
    """Another product in the place of the target: the same labels, for as far as they are given at all."""
    memory, begun, labels, _ = leak_free
    one, other = sorted(source.products)[:2]
    swapped = [
        each._replace(task=each.task.model_copy(update={"target": one if each.task.target != one else other}))
        for each in begun
        if each.task.type != "review"
    ]
    before = {label.begun.task.task_id: label.parameter for label in labels}
    after = {label.begun.task.task_id: label.parameter for label in leak_free_of(swapped, memory)[0]}
    both = before.keys() & after.keys()
    assert both and all(before[name] == after[name] for name in both)
    searches = [each for each in begun if each.task.type == "search"]
    cheat = lambda asked: [source.products[each.task.target].title for each in asked]  # noqa: E731
    labels, counts = leak_free_of(searches, memory, cheat)
    assert all(is_known(label, source) for label in labels)
    assert counts["search", "target in the label"] > 0 == counts["search", "labelled"]


def test_a_leak_free_recommendation_is_of_the_category_of_the_closest_purchase(memory, begun):
    asked = replace(begun["later"].state, instruction="Another Rake for the Garden")
    (label,), _ = leak_free_of([begun["later"]._replace(state=asked)], memory)
    assert label.parameter == ("G1", "G2", "G9", "G3")  # the target is for the kitchen
    nothing = begun["later"]._replace(state=replace(asked, history=()))
    assert leak_free_of([nothing], memory) == ([], {("recommend", "nothing to say"): 1})
