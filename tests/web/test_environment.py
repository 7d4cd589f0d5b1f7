"""The web environment: functions, tracks, rewards, and the traps of the published code."""

import copy
import threading
from dataclasses import replace

import pytest

from pwagents.errors import DataError, NotEvaluableError
from pwagents.schema import Action, Usage
from pwagents.web.environment import MAX_STEPS, UserReply, WebEnvironment
from pwagents.web.episode import BeliefState, Episode, run_episode
from pwagents.web.functions import DETAILS_FUNCTION, FUNCTION_OF, Shop, tool_schemas
from pwagents.web.reward import rank_accuracy


def search(query):
    return Action(name="search_product_by_query", arguments={"query": query})


def title_of(benchmark, task):
    return benchmark.products[task.target].title


def test_first_observation_shows_user_and_instruction_and_for_a_review_the_product(shop, benchmark, task_of):
    environment = WebEnvironment(shop)
    for task_type, task in task_of.items():
        text = environment.reset(task).text
        assert task.user_id in text and task.instruction in text
        assert (title_of(benchmark, task) in text) == (task_type == "review")


def test_search_for_the_title_finds_the_target_first(shop, benchmark, task_of):
    environment = WebEnvironment(shop)
    environment.reset(task_of["search"])
    observation, reward, done, info = environment.step(search(title_of(benchmark, task_of["search"])))
    assert observation.products[0] == task_of["search"].target and len(observation.products) == 10
    fine = {"error": "", "error_kind": "", "attempt": True, "user_usage": None}
    assert (reward, done, info) == (1.0, True, fine)


def test_review_is_scored_against_the_real_one(shop, task_of):
    task = task_of["review"]
    environment = WebEnvironment(shop)
    environment.reset(task)
    _, reward, done, _ = environment.step(
        Action(name="add_product_review", arguments={"review": task.review.text})
    )
    assert reward == 1.0 and done


def test_wrong_function_is_no_attempt_even_if_it_shows_the_target(shop, benchmark, task_of):
    environment = WebEnvironment(shop, "multi_turn")
    environment.reset(task_of["recommend"])
    observation, reward, done, info = environment.step(search(title_of(benchmark, task_of["recommend"])))
    assert observation.products[0] == task_of["recommend"].target
    assert (reward, done, info["attempt"]) == (0.0, False, False)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search_product_by_query", {"query": 7}, "query: Input should be a valid string"),
        ("search_product_by_query", {"query": "  "}, "at least 1 character"),
        ("search_product_by_query", {}, "query: Missing required argument"),
        ("search_product_by_query", {"query": "a", "k": 3}, "k: Unexpected keyword"),
        ("get_recommendations_by_history", {"product_sequence": "B0"}, "valid list"),
        ("get_recommendations_by_history", {"product_sequence": [1]}, "valid string"),
        ("add_product_review", {"review": ""}, "at least 1 character"),
        ("buy", {}, "unknown function 'buy'"),
        (DETAILS_FUNCTION, {"asin": "x"}, "unknown function"),
        ("stop", {"now": True}, "now: Unexpected keyword"),
        ("__init__", {}, "unknown function"),
    ],
)
def test_malformed_call_is_an_observation_not_an_exception(shop, task_of, name, arguments, message):
    environment = WebEnvironment(shop, "multi_turn")
    environment.reset(task_of["search"])
    observation, reward, done, info = environment.step(Action(name=name, arguments=arguments))
    assert message in observation.text and info["error"] in observation.text
    assert (reward, done, info["attempt"]) == (0.0, False, False)


@pytest.mark.parametrize(
    "action", [search("x"), Action(name="respond", arguments={"content": "hi"}), Action(name="stop")]
)
def test_single_turn_ends_with_the_first_call(shop, task_of, action):
    environment = WebEnvironment(shop)
    environment.reset(task_of["search"])
    assert environment.step(action)[2]
    with pytest.raises(RuntimeError, match="reset"):
        environment.step(action)


def test_looking_up_details_does_not_end_the_single_turn_track_but_is_limited(shop, task_of):
    environment = WebEnvironment(shop, details=True)
    environment.reset(task_of["search"])
    look_up = Action(name=DETAILS_FUNCTION, arguments={"asin": task_of["search"].target})
    ends = [environment.step(look_up)[2] for _ in range(MAX_STEPS)]
    assert ends == [False] * (MAX_STEPS - 1) + [True]


def test_multi_turn_ends_at_stop_or_after_ten_steps_and_respond_reaches_the_user(shop, task_of):
    heard = []

    def user(task, session, said):
        heard.append((task.task_id, len(session), said))
        return UserReply("navy, please", Usage(calls=1))

    environment = WebEnvironment(shop, "multi_turn", user)
    environment.reset(task_of["search"])
    environment.step(search("mat"))
    observation, *_, info = environment.step(Action(name="respond", arguments={"content": "Which color?"}))
    assert observation.text == "navy, please" and info["user_usage"] == Usage(calls=1)
    assert heard == [(task_of["search"].task_id, 1, "Which color?")]
    assert environment.step(Action(name="stop"))[2]
    environment.reset(task_of["search"])
    assert [environment.step(search("mat"))[2] for _ in range(MAX_STEPS)] == [False] * 9 + [True]


def test_a_session_tells_malformed_calls_from_answers_that_read_like_errors(shop, task_of):
    environment = WebEnvironment(shop, "multi_turn", lambda *_: UserReply("Error: I want navy"))
    environment.reset(task_of["search"])
    environment.step(Action(name="respond", arguments={"content": "Which color?"}))
    *_, info = environment.step(Action(name="respond", arguments={}))
    assert [exchange.error for exchange in environment.session] == ["", info["error"]] and info["error"]
    assert all(exchange.observation.text.startswith("Error: ") for exchange in environment.session)


def test_observation_full_or_compact(shop, task_of):
    texts = {}
    for form in ("full", "compact"):
        environment = WebEnvironment(replace(shop, observation=form))
        environment.reset(task_of["search"])
        texts[form] = environment.step(search("navy"))[0].text
    assert len(texts["compact"].splitlines()) == 10
    assert "Features:" in texts["full"] and len(texts["full"]) > 3 * len(texts["compact"])


def test_tool_schemas_come_from_the_signatures():
    schemas = {
        tool["function"]["name"]: tool["function"] for tool in tool_schemas(tuple(FUNCTION_OF.values()))
    }
    parameters = schemas["get_recommendations_by_history"]["parameters"]
    assert parameters["properties"]["product_sequence"]["type"] == "array" and parameters["required"] == [
        "product_sequence"
    ]
    assert all(function["description"] for function in schemas.values())


def test_review_task_without_a_real_review_cannot_be_evaluated(shop, task_of):
    task = task_of["review"]
    empty = task.model_copy(update={"review": task.review.model_copy(update={"text": " "})})
    with pytest.raises(NotEvaluableError, match=task.task_id):
        WebEnvironment(shop).reset(empty)


# The traps of the published code


def test_nothing_is_copied_at_reset(shop, task_of):
    class NeverCopied(dict):
        def refuse(self, *_):
            raise AssertionError("the data were copied")

        __copy__ = __deepcopy__ = copy = __reduce_ex__ = refuse

    products = NeverCopied(shop.benchmark.products)
    environment = WebEnvironment(replace(shop, benchmark=replace(shop.benchmark, products=products)))
    for task in task_of.values():
        environment.reset(task)
        environment.step(search("navy"))
    with pytest.raises(AssertionError, match="copied"):
        copy.deepcopy(products)


def test_what_breaks_inside_the_shop_is_no_malformed_call(shop, task_of):
    class Broken:
        def search(self, query, k=10):
            raise ValueError("the index is corrupt")

    environment = WebEnvironment(replace(shop, search_engine=Broken()))
    environment.reset(task_of["search"])
    with pytest.raises(ValueError, match="the index is corrupt"):
        environment.step(search("navy"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda shop: replace(shop, observation="Full"),
            "observation is 'Full'; expected one of full, compact",
        ),
        (lambda shop: WebEnvironment(shop, "single"), "track is 'single'; expected one of single_turn"),
    ],
)
def test_misspelt_settings_are_refused(shop, make, message):
    with pytest.raises(ValueError, match=message):
        make(shop)


def test_target_id_inside_another_products_text_is_no_hit(shop, benchmark, task_of):
    target = task_of["search"].target
    assert rank_accuracy([f"{target}X", "B0OTHER"], target) == 0.0
    other = next(a for a in benchmark.products if a != target)
    decoy = benchmark.products[other].model_copy(update={"description": (f"Goes well with {target}.",)})

    class OnlyDecoy:
        def search(self, query, k=10):
            return [(other, 1.0)]

    haunted = replace(
        shop,
        benchmark=replace(benchmark, products={**benchmark.products, other: decoy}),
        search_engine=OnlyDecoy(),
    )
    environment = WebEnvironment(haunted)
    environment.reset(task_of["search"])
    observation, reward, *_ = environment.step(search("x"))
    assert target in observation.text and reward == 0.0


def test_order_of_recommended_and_of_given_ids_is_kept(shop, benchmark, task_of):
    given = []

    class Echo:
        def recommend(self, product_sequence, k=10):
            given.append(list(product_sequence))
            return list(product_sequence)[::-1][:k]

    ids = sorted(benchmark.products)[:12]
    environment = WebEnvironment(replace(shop, recommender=Echo()))
    environment.reset(task_of["recommend"])
    observation, *_ = environment.step(
        Action(name="get_recommendations_by_history", arguments={"product_sequence": ids})
    )
    assert given == [ids] and list(observation.products) == ids[::-1][:10]


def test_agent_sees_neither_the_tasks_type_nor_its_target():
    assert set(BeliefState.__dataclass_fields__) == {
        "user_id", "instruction", "observation", "product", "history", "session", "profile", "context",
    }  # fmt: skip


def test_history_never_shows_answers_of_the_split(benchmark):
    for task in benchmark.tasks["test"]:
        answers = {t.timestamp for t in benchmark.tasks["test"] if t.user_id == task.user_id}
        assert not answers & {b.timestamp for b in benchmark.history(task, "test")}
        published = benchmark.history(task, "test", "as_published")
        assert all(b.timestamp < task.timestamp for b in published)
        assert len(published) >= len(benchmark.history(task, "test"))


def test_one_shop_serves_many_threads(shop, benchmark):
    tasks = [t for t in benchmark.tasks["test"] if t.type == "search"][:20]

    def agent(state):
        return search(state.instruction)

    def run(task):
        return run_episode(WebEnvironment(shop), task, benchmark.history(task, "test"), agent)

    alone = [run(task) for task in tasks]
    together = [None] * len(tasks)
    threads = [
        threading.Thread(target=lambda i=i: together.__setitem__(i, run(tasks[i]))) for i in range(len(tasks))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_episode_records_every_step(shop, benchmark, task_of):
    task = task_of["search"]
    episode = Episode(WebEnvironment(shop, "multi_turn"), task, benchmark.history(task, "test"))
    episode.advance(Action(name="buy"))
    episode.advance(search(title_of(benchmark, task)))
    state = episode.advance(Action(name="stop"))
    assert episode.done and state.session == episode.trajectory.steps
    assert [(s.action.name, s.attempt, s.result_accuracy, bool(s.error)) for s in state.session] == [
        ("buy", False, 0.0, True),
        ("search_product_by_query", True, 1.0, False),
        ("stop", False, 0.0, False),
    ]


def test_a_shop_is_immutable(shop):
    with pytest.raises(AttributeError):
        shop.observation = "compact"
    assert isinstance(shop, Shop)


def test_a_refused_task_leaves_no_task_open(shop, task_of):
    environment = WebEnvironment(shop)
    environment.reset(task_of["search"])
    empty = task_of["review"].review.model_copy(update={"text": " "})
    with pytest.raises(NotEvaluableError):
        environment.reset(task_of["review"].model_copy(update={"review": empty}))
    with pytest.raises(RuntimeError, match="no task is under way"):
        environment.step(search("red"))


def test_an_error_is_one_line_whatever_the_argument_is_called(shop, task_of):
    environment = WebEnvironment(shop)
    environment.reset(task_of["search"])
    arguments = {"query": "x", "a\nb": 1}
    *_, info = environment.step(Action(name="search_product_by_query", arguments=arguments))
    assert info["error"] == "search_product_by_query: a b: Unexpected keyword argument"


def test_an_engine_that_knows_other_products_is_named(shop, task_of):
    class Strange:
        def search(self, query, k=10):
            return [("B0ELSEWHERE", 1.0)]

    environment = WebEnvironment(replace(shop, search_engine=Strange()))
    environment.reset(task_of["search"])
    with pytest.raises(DataError, match="found B0ELSEWHERE; expected products of the benchmark"):
        environment.step(search("red"))
