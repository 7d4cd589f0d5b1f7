"""PUMA's labels: as published on a world made by hand, and, leak-free, without the target."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

from pwagents.data.personalwab import load_personalwab
from pwagents.puma.labels import as_text, make_labels, write_queries
from pwagents.puma.memory import SEARCH, Method, load_prompts

from ..agents.conftest import ScriptedModel
from ..llm.conftest import byte_tokenizer
from ..official_code import CLONE, Endpoint, needs_clone, published_code
from ..personalwab_files import records, write_records
from .conftest import CIRCUMSTANCES, Words, begun_of, memory_of


def label(world, memory, model, prompts, split):
    return make_labels("published", [*begun_of(world, split).values()], memory, prompts, model)[0]


def test_published_labels_are_those_worked_out_by_hand(world, memory, begun):
    model, prompts = ScriptedModel(["a query", " "]), load_prompts()
    made = label(world, memory, model, prompts, "train")
    expected = {row[0]: row[-1] for row in CIRCUMSTANCES["tasks"]["train"]}
    assert {each.begun.task.task_id: as_text(each.parameter) for each in made} == expected
    # A query is written from instruction and memory, which is not cut.
    (request,), past = model.requests, begun["query"].state.history
    (message,), titles = request.messages, [world.products[each.parent_asin].title for each in past]
    assert message["role"] == "system" and request.sampling == {"temperature": 0.0}
    assert all(text in message["content"] for text in ("Find a red pan", *titles))
    # Where no model writes, the rule does: of forty pans and rakes, each of the brand Otter, most are pans.
    for each in (model, None):
        assert write_queries([begun["query"].state], memory, prompts, each) == ["Otter Find a red pan"]


@needs_clone
def test_the_published_script_makes_the_same_prompts_and_labels(world, tmp_path, monkeypatch):
    """Its main() on raw files, with nested details, of the world made by hand; models are stand-ins."""

    def answer(text):
        return f"query of {len(text)} letters, {hash(text) % 1000}"

    cut, files = 120, [tmp_path / f"{name}.json" for name in ("instructions", "user_history", "output")]
    tokenizer = byte_tokenizer()  # of the real transformers
    nested = {"details": {"Best Sellers Rank": {"Kitchen": 12}, "Color": "red"}, "price": 12}
    products = {asin: each.model_copy(update=nested) for asin, each in world.products.items()}
    raw = records(replace(world, products=products))
    for file in files[:2]:
        file.write_text(json.dumps(raw[file.stem]))
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
        script.llama_tokenizer = tokenizer
        script.main()
    official, prompts = json.loads(files[2].read_text()), load_prompts(CLONE)
    world = load_personalwab(write_records(raw, tmp_path / "raw"), protocol="published")
    memory, method = memory_of(world, prompts.texts), Method(memory_tokens=cut)
    for split, rows in official.items():
        model = ScriptedModel(lambda request: answer(request.messages[0]["content"]))
        made = label(world, memory, model, prompts, split)
        for (begun, parameter), row in zip(made, rows, strict=True):
            recall = memory.recall(begun.state, begun.function, method)
            assert prompts.parameter(begun.state, begun.function, recall) == row["prompt"]
            uncut = memory.recall(begun.state, begun.function, method.changed(memory_tokens=10**6))
            assert uncut.text == row["mem"]
            # Of a test task's search the script's label is the title, a placeholder: none is made here.
            if split == "train" or begun.function != SEARCH:
                assert as_text(parameter) == row["target"]


def leak_free_of(begun, memory, model=None):
    return make_labels("leak_free", begun, memory, load_prompts(), model)


def test_no_leak_free_label_and_no_input_tells_the_target_unless_the_past_does(study):
    products, (labels, counts) = study.memory.products, study.labels("leak_free")

    def is_known(label):
        target, past = products[label.begun.task.target], label.begun.state.history
        names = {name for b in past for name in (b.parent_asin, products[b.parent_asin].title)}
        return bool(names & {target.parent_asin, target.title})

    bought = [label for label in labels if label.begun.task.type != "review" and is_known(label)]
    assert len(bought) == sum(n for (_, outcome), n in counts.items() if outcome == "labelled, bought before")
    assert sum(counts.values()) == len(study.begun) and len(labels) > len(bought)
    for label in labels:
        begun, target = label.begun, products[label.begun.task.target]
        recall = study.recall(begun, Method(memory_tokens=10**6))
        prompt = study.prompts.parameter(begun.state, begun.function, recall)
        if begun.task.type == "review":  # the product is given, the review is the answer
            assert begun.task.review.text.strip() not in prompt
        elif label not in bought:
            told = f"{prompt}\n{as_text(label.parameter)}".lower()
            assert target.parent_asin.lower() not in told and target.title.lower() not in told
    # A query that tells the target is no label.
    searches = [each for each in study.begun if each.function == SEARCH]
    cheat = [products[each.task.target].title for each in searches]
    labels, counts = leak_free_of(searches, study.memory, ScriptedModel(cheat))
    assert all(map(is_known, labels))
    assert counts["search", "target in the label"] > 0 == counts["search", "labelled"]


def test_leak_free_labels_do_not_depend_on_the_target(study, memory, begun):
    """Another product in its place: the same labels, for as far as they are given at all."""
    one, other = sorted(study.worlds.products)[:2]
    swapped = []
    for each in (each for each in study.begun if each.task.type != "review"):
        target = {"target": one if each.task.target != one else other}
        swapped.append(each._replace(task=each.task.model_copy(update=target)))
    before, after = (
        {label.begun.task.task_id: label.parameter for label in labels}
        for labels, _ in (study.labels("leak_free"), leak_free_of(swapped, study.memory))
    )
    assert after and all(before.get(name, label) == label for name, label in after.items())
    # A recommendation is of the category of the closest purchase; the target is for the kitchen.
    state = replace(begun["later"].state, instruction="Another Rake for the Garden")
    (label,), _ = leak_free_of([begun["later"]._replace(state=state)], memory)
    assert label.parameter == ("G1", "G2", "G9", "G3")
    named = replace(begun["query"].state, instruction="Find Pan K99")
    for each, told in (
        (begun["later"]._replace(state=replace(state, history=())), "nothing to say"),
        (begun["query"]._replace(state=named), "target in the input"),
        (begun["words"], "target in the input"),  # an earlier review has the same words
    ):
        assert leak_free_of([each], memory) == ([], {(each.task.type, told): 1})
