"""The published scorer, rule by rule, against ours and against the published code."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from pwagents.agents import methods
from pwagents.agents.chat import Setup
from pwagents.agents.offline import FunctionClassifier, OfflinePolicy
from pwagents.results.leaderboard import (
    BEST,
    MALFORMED,
    NEGATIVE,
    NUMBER,
    REFUSED,
    RULES,
    TEXTS,
    export_results,
    score_calls,
    score_episode,
    score_rules,
)
from pwagents.schema import FUNCTION_OF, TASK_TYPES, Action, Behavior, Benchmark, Product, Review, Task
from pwagents.seeds import rng
from pwagents.shop.environment import Environment, Shop, run_episode
from pwagents.shop.sasrec import RecommendersByTime
from pwagents.shop.score import grade
from pwagents.shop.search import build_search_engine
from pwagents.users.rules import RuleUser

from ..official_code import CLONE, Endpoint, needs_clone, published_code, published_functions
from ..personalwab_files import records

EPISODES = 500
ARGUMENTS = {
    "search_product_by_query": ("query", ["lamp", "mug", "red mug", "", "  ", 7]),
    "get_recommendations_by_history": ("product_sequence", [["B1"], ["B2", "B3"], ["x"], [], "B1", 7]),
    "add_product_review": ("review", ["Fine.", "Bad.", "It is so so.", "", "  "]),
}


def find(text):
    """Up to ten products, by a text: few for some, the target somewhere for others."""
    generator = rng(0, "hits", text)
    n = int(generator.integers(0, 11))
    return [f"B{i}" for i in generator.permutation(12)[:n]] if text.strip() else []


def cosine(text, other):
    return float(rng(0, "cosine", text, other).uniform(-0.5, 1.0)) if text != other else 1.0


class Engine:
    search = staticmethod(lambda query, k: [(asin, 1.0) for asin in find(query)])

    @staticmethod
    def recommend(ids, k):
        known = [asin for asin in ids if asin in PRODUCTS]
        return find(" ".join(known)) if known else []


NAMES = {f"B{i}": f"Not B{i + 20}x, B{(i + 1) % 12}." for i in range(12)}  # id -> a text that names others
PRODUCTS = {
    asin: Product(parent_asin=asin, title=f"Lamp {asin}", category="Home", description=(text,))
    for asin, text in NAMES.items()
}


@pytest.fixture(scope="module")
def shop():
    past, tasks = [], []
    for i, asin in enumerate(PRODUCTS):
        about = {"timestamp": i + 1, "review": Review(rating=4.0, text=f"Text {i}.")}
        past.append(Behavior(parent_asin=asin, **about))
        fields = {"task_id": f"t{i}", "user_id": "U", "type": TASK_TYPES[i % 3], "instruction": f"Do {i}"}
        tasks.append(Task(**fields, target=asin, **about))
    benchmark = Benchmark("fixture", PRODUCTS, {"U": tuple(past)}, {"train": (), "test": tuple(tasks)})
    recommenders = SimpleNamespace(at=lambda timestamp: Engine)
    return Shop(benchmark, Engine, recommenders, SimpleNamespace(cosine=cosine))


@pytest.fixture(scope="module")
def episodes(shop):
    """Random calls on random tasks, single-turn and multi-turn, and the trajectories that they make."""
    made = []
    for number in range(EPISODES):
        generator = rng(0, "episode", str(number))
        i = int(generator.integers(12))
        task = shop.benchmark.tasks["test"][i].model_copy(update={"task_id": f"e{number}"})
        actions, any_name = [], list(ARGUMENTS)
        for _ in range(1 if number % 2 == 0 else int(generator.integers(1, 7))):
            name = any_name[generator.integers(3)] if generator.random() < 0.4 else FUNCTION_OF[task.type]
            parameter, values = ARGUMENTS[name]
            parameter = "other" if generator.random() < 0.05 else parameter
            actions.append(Action(name=name, arguments={parameter: values[generator.integers(len(values))]}))
        environment = Environment(shop, task, ("single_turn", "multi_turn")[number % 2])
        for action in [*actions, Action(name="stop")]:
            if environment.end is None:
                environment.step(action)
        made.append((i, task, environment.trajectory))
    return made


def test_without_a_rule_the_scores_are_ours(shop, episodes):
    for _, task, played in episodes:
        ours, last = grade(played), score_episode(shop, task, played, ())
        assert last == (ours.function_accuracy, ours.result_final)
        assert score_episode(shop, task, played, (BEST,)) == (ours.function_accuracy, ours.result_official)


def test_each_rule_changes_what_it_should(shop, episodes):
    tasks = [task for _, task, _ in episodes]
    played = [SimpleNamespace(trajectory=t) for *_, t in episodes[:-1]]
    played.append(SimpleNamespace(trajectory=episodes[-1][-1].model_copy(update={"end": "refused"})))
    table = score_rules(shop, tasks, {"mine": played}).set_index("rule")
    assert list(table.index) == ["ours", *RULES, "all, as the published code"]
    assert table.loc["ours", "episodes"] == 0 and (table["episodes"].drop("ours") > 0).all()
    better = table["result accuracy"] - table.loc["ours", "result accuracy"]
    assert better[TEXTS] > 0 and better[BEST] > 0 and better[NEGATIVE] < 0 and better[NUMBER] < 0
    function = table["function accuracy"] > table.loc["ours", "function accuracy"]
    assert function[MALFORMED] and function[REFUSED] and not function[[NUMBER, TEXTS, BEST]].any()


def test_an_empty_review_is_compared_as_the_published_code_does(shop):
    task = next(task for task in shop.benchmark.tasks["test"] if task.type == "review")
    environment = Environment(shop, task)
    environment.step(Action(name="add_product_review", arguments={"review": ""}))
    (score,) = score_calls(shop, task, environment.trajectory)
    assert score == (1, cosine("No review provided.", task.review.text))


@pytest.mark.parametrize(  # without a name: as an agent of one's own
    ("name", "track"), [("Last memory", "single_turn"), ("InteRecAgent", "multi_turn"), ("", "multi_turn")]
)
def test_a_run_is_exported_with_prompts_and_both_accuracies(benchmark, embedder, name, track, tmp_path):
    engine = build_search_engine(benchmark.products)
    market, tasks = Shop(benchmark, engine, RecommendersByTime((), ()), embedder), benchmark.tasks["test"][:6]
    policy = OfflinePolicy(FunctionClassifier(benchmark.tasks["train"]))
    setup = Setup(policy, benchmark.products, track, embedder)
    agent = methods.METHODS[name or "Last memory"](setup)
    user = RuleUser(benchmark.products) if track == "multi_turn" else None
    played = [run_episode(market, task, agent, track, user=user) for task in tasks]
    records = [SimpleNamespace(trajectory=each, memory=None) for each in played]
    file = tmp_path / "new" / "results.json"
    talk, options = (lambda record: agent) if name else None, {"track": track, "arguments": {"model": "mine"}}
    assert export_results(market, tasks, [*records, *records], talk, file, **options) == file
    first, *results = json.loads(file.read_text())
    assert list(first) == ["run_args", "total cost", "results"]
    filled = {argument for argument, value in first["run_args"].items() if value is not None}
    rest = {"env", "task_split", "start_index", "end_index", "num_trials", "max_steps", "user_mode", "model"}
    assert filled == rest and first["run_args"]["num_trials"] == 2 and len(first["run_args"]) == 26
    if CLONE:  # the published scorer reads the file
        with published_code(None, lambda texts: np.zeros((len(texts), 1))) as load:
            theirs = load("run").calculate_statistics([first, *results])
        assert theirs == {kind: pytest.approx(of_kind) for kind, of_kind in first["results"].items()}
    scores = np.mean([score_episode(market, *each) for each in zip(tasks, played, strict=True)], axis=0)
    overall = first["results"]["overall"]
    assert [overall["avg_action_acc"], overall["avg_res_acc"]] == pytest.approx(scores)
    assert [result["trial"] for result in results] == [0] * len(tasks) + [1] * len(tasks)
    for result, task, episode in zip(results, [*tasks] * 2, played * 2, strict=True):
        assert benchmark.tasks["test"][result["task_id"]] is task
        assert result["info"]["task"]["target"] == task.target
        messages = result["traj"]
        assert messages[0]["role"] == ("system" if name else "user")
        assert task.instruction in messages[bool(name)]["content"]
        n_calls = [step for step in episode.steps if step.action.name in FUNCTION_OF.values()]
        assert len(result["action_acc"]) == len(result["res_acc"]) == len(n_calls)
        assert len(result["info"]["usage"]["completion_tokens"]) == len(episode.steps)


@needs_clone
def test_the_published_environment_and_scorer_give_our_numbers_with_all_rules(shop, episodes):
    data, results = records(shop.benchmark), []
    with published_code(Endpoint(lambda request: {}), lambda texts: np.zeros((len(texts), 1))) as load:
        base = load("PersonalWAB.envs.base")
        base.compute_similarity = lambda real, written: cosine(written, real)
        functions = published_functions(find, lambda ids: find(" ".join(ids)), data["all_products"])
        for number, (i, task, played) in enumerate(episodes):
            steps = -1 if number % 2 == 0 else 10
            env = base.PWABaseEnv(data, functions, data["instructions"]["test"], "no", "gpt-4o", "", steps)
            _, info = env.reset(index=i)
            accuracies = []
            for step in played.steps:
                call = {"name": step.action.name, "arguments": step.action.arguments}
                _, accuracy, done, info = env.step(call)
                accuracies += [tuple(accuracy)] if done else []
                if steps == -1 and done:
                    break
            ours = score_calls(shop, task, played)
            # A call of another function shows results, too; no accuracy of function, no result that counts.
            assert [(f, r if f else 0) for f, r in accuracies] == [pytest.approx((*each,)) for each in ours]
            info["usage"] = {"completion_tokens": [1] * len(played.steps)}
            of_function, of_result = ([each[i] for each in accuracies] for i in (0, 1))
            results.append({"action_acc": of_function, "res_acc": of_result, "info": info})
        theirs = load("run").calculate_statistics(results)
    for task_type in TASK_TYPES:
        ours = [score_episode(shop, task, played) for _, task, played in episodes if task.type == task_type]
        scores, there = np.array(ours), theirs[task_type]
        assert there["total_count"] == len(scores)
        assert [there["avg_action_acc"], there["avg_res_acc"]] == pytest.approx(scores.mean(axis=0))
