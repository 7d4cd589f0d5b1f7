"""What Orion's small base model is pre-trained on: in the agents' format, and nothing of any user or task.

What counts as an occurrence: the same words in the same order anywhere in one message, a call's arguments
included; case, punctuation and line breaks do not matter. Of users and products that is the id; of a target
its whole title or, where a review is asked for, the whole real review; of an instruction all of it. What does
not count, and does occur, are the shop's own words: values ("navy"), types ("yoga mat"), occasions ("a
morning run"), and sentences about one value ("It really is soft.").
"""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tests.orion.small_study import play, state_of

from base_model import dialogues
from base_model.dialogues import SHOWN, DialogueText
from base_model.exercises import ids_and_titles
from base_model.pretrain import ALL_STEPS, Lesson, content_hash, small_base
from base_model.small import make_small_model
from pwagents.data.synthetic import make_world
from pwagents.llm.fence import fence
from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.orion.agent import PURCHASES, RULES, OrionAgent, orion_messages, orion_tools
from pwagents.orion.teacher import make_teacher
from pwagents.portable import one_core
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.update import OfflineUpdater
from pwagents.settings import WorldSettings

IDS = re.compile(r"\b(?:B0[A-Z]{6}|U\d{4})\b")


def make_text(updater, benchmark, seed=0, taken=None):
    taken = ids_and_titles(benchmark.products) if taken is None else taken
    return DialogueText(updater, taken, seed, orion_messages, RULES, PURCHASES)


@pytest.fixture(scope="module")
def text(updater, benchmark):
    return make_text(updater, benchmark)


def calls_of(message):
    return [call["function"] for call in message.get("tool_calls", ())]


def whole(message):
    """All that a message says."""
    said = [json.loads(call["arguments"]).values() for call in calls_of(message)]
    return " ".join([message["content"], *(str(value) for values in said for value in values)])


# --- nothing of users, targets, instructions --------------------------------------------------------


def words(text):
    return re.findall(r"\w+", text.lower())


def occurring(needles, messages):
    """Those of ``needles`` whose words stand, one after the other, in a message."""
    said = [words(message) for message in messages]
    threes = {tuple(each[i : i + 3]) for each in said for i in range(len(each) - 2)}
    text = "\n".join(f" {' '.join(each)} " for each in said)
    likely = (n for n in needles if tuple(words(n)[:3]) in threes)
    return {needle for needle in likely if f" {' '.join(words(needle))} " in text}


@pytest.fixture(scope="module")
def laptop():
    """The laptop preset's products and test users, and as many further users to train on."""
    return make_world(WorldSettings(n_users=600), seed=0).benchmark


@pytest.fixture(scope="module")
def laptop_messages(laptop):
    text = make_text(OfflineUpdater(Catalogue(laptop.products)), laptop)
    made = [text.dialogue(n) for n in range(1400)] + [text.exercise(n, n % 4) for n in range(900)]
    return [whole(message) for messages in made for message in messages[1:]]  # the first holds the rules


def test_no_user_and_no_product_occurs(laptop, laptop_messages):
    said = {word for message in laptop_messages for word in words(message)}
    assert len([word for word in said if re.fullmatch(r"u\d{4}", word)]) > 1000
    assert not said & {user.lower() for user in laptop.behaviors}
    assert not said & {asin.lower() for asin in laptop.products}


def test_no_instruction_and_no_target_of_any_task_occurs(laptop, laptop_messages):
    tasks = [task for split in laptop.tasks.values() for task in split]
    instructions = {task.instruction for task in tasks}
    titles = {laptop.products[task.target].title for task in tasks}
    reviews = {task.review.text for task in tasks if task.type == "review"}
    assert min(len(instructions), len(titles), len(reviews)) > 1500
    assert not occurring(instructions | titles | reviews, laptop_messages)


def test_the_search_for_occurrences_finds_them(laptop, updater):
    task, other = laptop.tasks["test"][:2]
    title = laptop.products[task.target].title
    told = f"User U5000:\n{task.instruction.upper()} ({title.replace(',', ' -')})"
    assert occurring({task.instruction, title, other.instruction}, [told]) == {task.instruction, title}
    # Made-up products would have real titles now and then, did they not keep clear of them.
    careless = make_text(updater, laptop, taken=frozenset(laptop.products))
    said = [whole(message) for n in range(1500) for message in careless.dialogue(n)[1:]]
    assert occurring({product.title for product in laptop.products.values()}, said)


# --- the same text for the same seed ----------------------------------------------------------------


def test_the_same_seed_gives_the_same_text_in_any_order(text, updater, benchmark):
    again = make_text(updater, benchmark)
    forwards = [(text.dialogue(n), text.exercise(n, 3)) for n in range(30)]
    assert forwards == [(again.dialogue(n), again.exercise(n, 3)) for n in reversed(range(30))][::-1]
    assert len({json.dumps(made) for pair in forwards for made in pair}) == 60
    other = make_text(updater, benchmark, seed=1)
    assert not any(other.dialogue(n) == forwards[n][0] for n in range(30))


def test_the_content_hash_follows_seed_products_and_the_shops_words(text, updater, benchmark, monkeypatch):
    hashes = {content_hash(text), content_hash(make_text(updater, benchmark, seed=1))}
    hashes.add(content_hash(make_text(updater, benchmark, taken={"B0BABABA"})))
    assert content_hash(make_text(updater, benchmark)) == content_hash(text) and len(hashes) == 3
    real = dialogues.domains()
    for i in (0, len(real) - 1):  # one value of one corner of the shop under another name
        *slots, (last, values) = real[i].values.items()
        renamed = replace(real[i], values={**dict(slots), last: ("renamed", *values[1:])})
        changed = (*real[:i], renamed, *real[i + 1 :])
        monkeypatch.setattr(dialogues, "domains", lambda changed=changed: changed)
        hashes.add(content_hash(text))
    assert len(hashes) == 5


# --- the agents' format -----------------------------------------------------------------------------

FORMS = {
    "heading": r"|</?data>|[A-Z][a-z ]+:|The task has ended\.|The review is published\.",
    "task": r"User U\d{4}: .+",
    "bought": r"\d{4}-\d\d .+ \| [\w, ]+ \| B0[A-Z]{6}",
    "result": r"\d+\. B0[A-Z]{6} .+ \(\$[\d.]+, [\d.]+ stars\)",
    "wanted": r"- \[\w+\] (?!not )[a-z]+: .+",
    "unwanted": r"- \[\w+\] not [a-z]+: .+",
    "thought": r"<think>(search|recommend|review), open: [a-z]+(, [a-z]+){0,2}</think>",
    "page": r"(?P<key>[A-Z][a-z]+( rating)?): .+",
}


def shape(line):
    """A line without what it tells: what it is."""
    for name, form in FORMS.items():
        if found := re.fullmatch(form, line):
            return line if name == "heading" else found.groupdict().get("key", name)
    return "words"


def neighbours(messages):
    """All pairs of shapes of lines that follow each other, with the role of who says them."""
    pairs = set()
    for message in messages:
        calls = [f"{call['name']}({', '.join(json.loads(call['arguments']))})" for call in calls_of(message)]
        shapes = ["begin", *map(shape, message["content"].split("\n")), *calls, "end"]
        pairs |= {(message["role"], *pair) for pair in pairwise(shapes)}
    return pairs


@pytest.fixture(scope="module")
def real_messages(study):
    """Of real episodes, played by the teacher."""
    teacher = make_teacher(study, 0, 2)
    ends = [play(study, teacher, task)[0][-1] for task in study.train_tasks]
    return [message for end in ends for message in orion_messages(end, SHOWN)]


def test_every_message_is_built_as_in_real_episodes(text, real_messages):
    made = [text.dialogue(n) for n in range(300)] + [text.exercise(n, 3) for n in range(300)]
    assert all(messages[0] == real_messages[0] for messages in made), "the rules"
    shapes = neighbours(message for messages in made for message in messages)
    functions = [tool["function"] for tool in orion_tools()]
    calls = {f"{each['name']}({', '.join(each['parameters'].get('required', ()))})" for each in functions}
    assert calls <= {pair[1] for pair in shapes}
    assert all(calls_of(messages[-2])[0]["name"] == "stop" for messages in made[:300])
    nothing_known = ("user", "task", "end")  # of some exercises
    assert shapes - neighbours(real_messages) <= {nothing_known}
    assert nothing_known not in neighbours(m for messages in made[:300] for m in messages)


def test_a_call_is_made_of_what_was_told(text):
    """A query of words, a recommendation of purchases in their order; exercises end with it."""
    kinds = Counter()
    made = [text.dialogue(n) for n in range(300)] + [text.exercise(n, n % 4) for n in range(300)]
    for messages in made:
        for i, message in enumerate(messages):
            for call in calls_of(message):
                (value, *_) = (*json.loads(call["arguments"]).values(), "")
                told = " ".join(whole(m) for m in messages[1:i])
                if call["name"] == "search_product_by_query":
                    assert set(words(value)) <= set(words(told))
                    kinds["query"] += 1
                elif call["name"] == "get_recommendations_by_history":
                    listed = re.findall(r"\| (B0\w{6})$", told, re.MULTILINE)
                    assert value == [asin for asin in listed if asin in value] != []
                    kinds["all" if len(value) == len(listed) else "some"] += 1
    assert min(kinds["query"], kinds["all"], kinds["some"]) > 30
    roles = [[m["role"] for m in messages] for messages in made[300:]]
    assert all(each[-1] == "assistant" and len(each) % 2 for each in roles)


def test_profiles_follow_answers_as_the_real_updater_has_them_or_not_at_all(updater, benchmark):
    seen, counts = [], Counter()

    def watched(profile, instruction, session):
        update = updater(profile, instruction, session)
        seen.append((profile, update.profile))
        return update

    text = make_text(watched, benchmark)
    for n in range(200):
        seen.clear()
        answers = text.dialogue(n)[3::2]
        for answer, (before, after) in zip(answers, seen, strict=False):
            told = answer["content"].partition("\n\nProfile:\n")[2]
            assert told == (fence(after.describe()) if after != before else "")
            counts["changed" if told else "same"] += 1
        counts["not updated"] += not seen
    assert min(counts.values()) > 20


def test_the_tokenizer_knows_the_words(text, real_messages, tokenizer):
    """No token is unknown, and hardly a word is in pieces: some numbers. Ids are by design."""
    made = [message for n in range(300) for message in (*text.dialogue(n), *text.exercise(n, 3))]
    tokens = [token for message in made for token in tokenizer.tokenize(IDS.sub("", whole(message)))]
    in_pieces = [token for token, after in pairwise(tokens) if token[:2] != "##" == after[:2]]
    n_words = sum(not token.startswith("##") for token in tokens)
    assert len(in_pieces) < 0.005 * n_words, Counter(in_pieces)
    real = [token for message in real_messages for token in tokenizer.tokenize(whole(message))]
    assert tokenizer.unk_token not in {*tokens, *real}


# --- what is learned from it ------------------------------------------------------------------------

SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 96}
LESSONS = (
    Lesson(limit=0, batch_size=16, learning_rate=4e-3, accuracy=ALL_STEPS, most_steps=180),
    Lesson(limit=2, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=120),
)


@pytest.mark.slow
def test_a_model_learns_the_form_of_a_thought_and_a_call(text, tmp_path, monkeypatch):
    """Measured by transformers itself, on what was never trained on."""
    monkeypatch.setattr(DialogueText, "lessons", LESSONS)
    with one_core():  # on more, the last bit depends on how many
        small_base(folder := tmp_path, text, 5, SIZE)
    tokenizer = read_tokenizer(folder)
    examples = [text.example(tokenizer, 10**8 + i, LESSONS[0]) for i in range(8)]
    pairs = [(torch.tensor([each.input_ids]), torch.tensor([each.labels])) for each in examples]

    def loss(model):
        with torch.inference_mode():
            losses = [model(ids, labels=labels).loss for ids, labels in pairs]
        return torch.stack(losses).mean().item()

    assert loss(make_small_model(tokenizer, 5, SIZE)) > 0.8 * math.log(len(tokenizer))
    assert loss(read_model(folder, torch.float32)) < 2.5
    state = state_of("Find me a new yoga mat.", ("color: navy", True, "history"))
    action = OrionAgent(LocalModel(folder), sampling={"temperature": 0, "max_tokens": 60})(state)
    assert (action.name, action.problem) == ("search_product_by_query", "")
    assert action.thought.startswith("<think>")


@pytest.mark.parametrize("end", ["}</tool_call><|end|>", "}<|end|>", "}</tool_call>"])
@pytest.mark.parametrize("arguments", ['{"content": "Which color?"}', '{"content": "Which "color', "{}"])
def test_servers_find_its_calls_also_those_that_are_no_json(tokenizer, arguments, end):
    turn = f'<think>open: color</think><tool_call>{{"name": "respond", "arguments": {arguments}{end}'
    written = tokenizer(turn, add_special_tokens=False)["input_ids"]
    message = tokenizer.parse_response(written, prefix="<|user|> Hi <|end|> <|assistant|>")
    (call,) = message["tool_calls"]
    assert message["content"].replace(" ", "") == "<think>open:color</think>"
    assert call["function"]["name"] == "respond"
    assert call["function"]["arguments"].replace(" ", "") == arguments.replace(" ", "")
    unclosed = tokenizer.parse_response('<tool_call>{"name": "respond", "arguments": {"con<|end|>', prefix="")
    assert unclosed["tool_calls"][0]["function"] == {"name": "respond", "arguments": '{"con'}
