"""The web environment: functions, tracks, ends, what agents see, and the traps of the published code."""

import copy
import threading
from dataclasses import fields, is_dataclass, replace

import pytest
from pydantic import BaseModel

from pwagents.errors import DataError, NotEvaluableError
from pwagents.evaluation.metrics import attempts, grade
from pwagents.schema import FUNCTION_OF, Action, Task, Usage
from pwagents.users.rules import RuleUser
from pwagents.web.environment import MAX_STEPS, BeliefState, UserReply, WebEnvironment, run_episode
from pwagents.web.functions import DETAILS_FUNCTION, Shop, tool_schemas

ASK = Action(name="respond", arguments={"content": "Which color?"})
STOP = Action(name="stop")


def search(query):
    return Action(name="search_product_by_query", arguments={"query": query})


def title_of(benchmark, task):
    return benchmark.products[task.target].title


@pytest.fixture
def begin(shop, task_of):
    """``begin("search", track, ...)``: an environment in which the task of the type has begun."""

    def make(task_type="search", track="single_turn", shop=shop, **options):
        environment = WebEnvironment(shop, track, **options)
        environment.reset(task_of[task_type])
        return environment

    return make


def test_first_observation_shows_user_and_instruction_and_for_a_review_the_product(begin, benchmark, task_of):
    for task_type, task in task_of.items():
        text = begin(task_type).state.observation
        assert task.user_id in text and task.instruction in text
        assert (title_of(benchmark, task) in text) == (task_type == "review")


def test_search_for_the_title_finds_the_target_first(begin, benchmark, task_of):
    environment = begin()
    step = environment.step(search(title_of(benchmark, task_of["search"])))
    assert step.observation.products[0] == task_of["search"].target and len(step.observation.products) == 10
    assert step.error == "" and environment.end == "call"
    assert environment.state.session == environment.trajectory.steps == (step,)
    assert attempts(environment.trajectory) == [1.0]


def test_a_review_is_measured_when_it_is_published_and_only_in_a_review_task(begin, task_of):
    review = Action(name="add_product_review", arguments={"review": task_of["review"].review.text})
    environment = begin("review", "multi_turn")
    for action in (review, Action(name="add_product_review", arguments={"review": "zzz"}), search("mat")):
        environment.step(action)
    assert environment.trajectory.similarities == (1.0, 0.0)
    assert attempts(environment.trajectory) == [1.0, 0.0]
    environment = begin("search", "multi_turn")
    environment.step(review)
    assert environment.trajectory.similarities == () and attempts(environment.trajectory) == []


def test_wrong_function_is_no_attempt_even_if_it_shows_the_target(begin, benchmark, task_of):
    environment = begin("recommend", "multi_turn")
    step = environment.step(search(title_of(benchmark, task_of["recommend"])))
    assert step.observation.products[0] == task_of["recommend"].target
    assert not environment.done and attempts(environment.trajectory) == []


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search_product_by_query", {"query": 7}, "query: Input should be a valid string"),
        ("search_product_by_query", {"query": "  "}, "at least 1 character"),
        ("search_product_by_query", {}, "query: Missing required argument"),
        ("search_product_by_query", {"query": "x", "a\nb": 1}, "a b: Unexpected keyword argument"),
        ("search_product_by_query", {"query": "x", "environment": None}, "environment: Got multiple values"),
        ("get_recommendations_by_history", {"product_sequence": "B0"}, "valid list"),
        ("get_recommendations_by_history", {"product_sequence": [1]}, "valid string"),
        ("add_product_review", {"review": ""}, "at least 1 character"),
        ("buy", {}, "unknown function 'buy'"),
        (DETAILS_FUNCTION, {"asin": "x"}, "unknown function"),
        ("stop", {"now": True}, "now: Unexpected keyword"),
        ("__init__", {}, "unknown function"),
    ],
)
def test_a_malformed_call_is_an_observation_of_one_line(begin, name, arguments, message):
    environment = begin("search", "multi_turn")
    step = environment.step(Action(name=name, arguments=arguments))
    assert message in step.error and step.observation.text == f"Error: {step.error}"
    assert "\n" not in step.error and step.error_kind in ("wrong_arguments", "unknown_function")
    assert not environment.done and grade(environment.trajectory).attempts == 0


@pytest.mark.parametrize(("action", "end"), [(search("x"), "call"), (ASK, "call"), (STOP, "stop")])
def test_single_turn_ends_with_the_first_call(begin, action, end):
    environment = begin()
    environment.step(action)
    assert environment.end == environment.trajectory.end == end
    with pytest.raises(RuntimeError, match="reset"):
        environment.step(action)


def test_looking_up_details_does_not_end_the_single_turn_track_but_is_limited(begin, task_of):
    environment = begin(details=True)
    look_up = Action(name=DETAILS_FUNCTION, arguments={"asin": task_of["search"].target})
    ends = [environment.step(look_up) and environment.end for _ in range(MAX_STEPS)]
    assert ends == [None] * (MAX_STEPS - 1) + ["steps"]


def test_multi_turn_ends_at_stop_or_after_ten_steps_and_respond_reaches_the_user(begin, task_of):
    heard = []

    def user(task, session, says):
        heard.append((task.task_id, len(session), says))
        return UserReply("Error: navy, please", Usage(calls=1))

    environment = begin("search", "multi_turn", user=user)
    environment.step(search("mat"))
    answer, lost = environment.step(ASK), environment.step(Action(name="respond", arguments={}))
    assert (answer.observation.text, answer.user_usage) == ("Error: navy, please", Usage(calls=1))
    assert heard == [(task_of["search"].task_id, 1, "Which color?")]
    assert answer.error == "" and lost.error and lost.user_usage is None
    assert environment.trajectory.end == "cut_off", "nobody has ended it"
    environment.step(STOP)
    assert environment.end == "stop"
    environment.reset(task_of["search"])
    ends = [environment.step(search("mat")) and environment.end for _ in range(MAX_STEPS)]
    assert ends == [None] * 9 + ["steps"]


def test_run_episode_ends_where_the_policys_model_refuses_and_says_why(shop, task_of):
    def refuses(state):
        if state.session:
            raise NotEvaluableError("content filter")
        return search("mat")

    trajectory = run_episode(WebEnvironment(shop, "multi_turn"), task_of["search"], (), refuses)
    assert (trajectory.end, trajectory.message, len(trajectory.steps)) == ("refused", "content filter", 1)

    def unsuitable(task, session, says):
        raise NotEvaluableError("the user's model refuses")

    with pytest.raises(NotEvaluableError, match="the user's"):
        run_episode(WebEnvironment(shop, "multi_turn", unsuitable), task_of["search"], (), lambda state: ASK)


def test_observation_full_or_compact(begin, shop):
    texts = {
        form: begin(shop=replace(shop, observation=form)).step(search("navy")).observation.text
        for form in ("full", "compact")
    }
    assert len(texts["compact"].splitlines()) == 10
    assert "Features:" in texts["full"] and len(texts["full"]) > 3 * len(texts["compact"])


def test_tool_schemas_come_from_the_signatures():
    names = (*FUNCTION_OF.values(), DETAILS_FUNCTION, "respond", "stop")
    schemas = {tool["function"]["name"]: tool["function"] for tool in tool_schemas(names)}
    parameters = schemas["get_recommendations_by_history"]["parameters"]
    assert parameters["properties"]["product_sequence"]["type"] == "array"
    assert parameters["required"] == ["product_sequence"]
    assert all(function["description"] for function in schemas.values())
    assert not any("environment" in function["parameters"]["properties"] for function in schemas.values())


# What agents see


def reachable(value, seen):
    """All objects that one reaches from ``value`` by attributes, items, and what functions hold."""
    if id(value) in seen or isinstance(value, type):
        return
    seen[id(value)] = value
    parts = list(vars(value).values()) if hasattr(value, "__dict__") else []
    if isinstance(value, BaseModel):
        parts += value.model_dump().items()
    elif isinstance(value, dict):
        parts += [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts += value
    elif callable(value):
        parts += [getattr(value, "__self__", None), getattr(value, "func", None)]
        parts += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    for part in parts:
        reachable(part, seen)


def test_from_its_state_an_agent_reaches_neither_grade_nor_target_nor_what_leads_to_them(shop, benchmark):
    """A cheat that read the grade of its last step off the state once reached 1.000."""
    looked = 0
    for task in (t for t in benchmark.tasks["test"] if t.type != "review"):
        history = benchmark.history(task, "test")
        environment = WebEnvironment(shop, "multi_turn", RuleUser(benchmark.products))
        environment.reset(task, history)
        for action in (search("zzz"), ASK, search("mat"), STOP):
            environment.step(action)
        objects = {}
        reachable(environment.state, objects)
        for found in objects.values():
            assert not isinstance(found, WebEnvironment | Task | Shop | RuleUser) and not callable(found)
        names = {name for o in objects.values() if is_dataclass(o) for name in vars(o)}
        names |= {name for o in objects.values() if isinstance(o, BaseModel) for name in type(o).model_fields}
        assert not names & {"attempt", "result_accuracy", "grade", "reward", "target", "similarities", "type"}
        shown = {asin for step in environment.state.session for asin in step.observation.products}
        if task.target not in shown | {behavior.parent_asin for behavior in history}:
            assert not any(isinstance(o, str) and task.target in o for o in objects.values())
            looked += 1
    assert looked > 10


def test_another_target_leaves_the_state_as_it_is(shop, benchmark, task_of):
    """Whatever an agent could read off its state, it does not tell the target."""
    for task in (task_of["search"], task_of["recommend"]):
        states, results = [], []
        for target in [task.target, *list(benchmark.products)[:20]]:
            environment = WebEnvironment(shop, "multi_turn")
            environment.reset(task.model_copy(update={"target": target}))
            for query in [search(title_of(benchmark, task)), *map(search, ("mat", "lamp", "headphones"))]:
                environment.step(query)
            states.append(environment.state)
            results.append(grade(environment.trajectory))
        assert all(state == states[0] for state in states)
        assert task.type != "search" or len({result.result_official for result in results}) > 1


def test_agent_sees_neither_the_tasks_type_nor_its_target():
    assert {field.name for field in fields(BeliefState)} == {
        "user_id", "instruction", "observation", "product", "history", "session", "profile", "context",
    }  # fmt: skip


def test_history_never_shows_answers_of_the_split(benchmark):
    for task in benchmark.tasks["test"]:
        answers = {t.timestamp for t in benchmark.tasks["test"] if t.user_id == task.user_id}
        assert not answers & {b.timestamp for b in benchmark.history(task, "test")}
        published = benchmark.history(task, "test", "as_published")
        assert all(b.timestamp < task.timestamp for b in published)
        assert len(published) >= len(benchmark.history(task, "test"))


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


class Finds:
    """A search engine that gives the same answer to every query."""

    def __init__(self, *asins):
        self.asins = asins

    def search(self, query, k=10):
        if not self.asins:
            raise ValueError("the index is corrupt")
        return [(asin, 1.0) for asin in self.asins]


def test_what_breaks_inside_the_shop_is_no_malformed_call(begin, shop):
    with pytest.raises(ValueError, match="the index is corrupt"):
        begin(shop=replace(shop, search_engine=Finds())).step(search("navy"))
    with pytest.raises(DataError, match="found B0ELSEWHERE; expected products of the benchmark"):
        begin(shop=replace(shop, search_engine=Finds("B0ELSEWHERE"))).step(search("red"))


def test_misspelt_settings_are_refused_and_a_shop_is_immutable(shop):
    with pytest.raises(ValueError, match="observation is 'Full'; expected one of full, compact"):
        replace(shop, observation="Full")
    with pytest.raises(ValueError, match="track is 'single'; expected one of single_turn"):
        WebEnvironment(shop, "single")
    with pytest.raises(AttributeError):
        shop.observation = "compact"


def test_target_id_inside_another_products_text_is_no_hit(begin, shop, benchmark, task_of):
    target = task_of["search"].target
    other = next(a for a in benchmark.products if a != target)
    decoy = benchmark.products[other].model_copy(update={"description": (f"Goes well with {target}.",)})
    benchmark = replace(benchmark, products={**benchmark.products, other: decoy})
    environment = begin(
        shop=replace(shop, benchmark=benchmark, search_engine=Finds(other), observation="full")
    )
    step = environment.step(search("x"))
    assert target in step.observation.text and attempts(environment.trajectory) == [0.0]


def test_order_of_recommended_and_of_given_ids_is_kept(begin, shop, benchmark):
    given = []

    class Echo:
        def recommend(self, product_sequence, k=10):
            given.append(list(product_sequence))
            return list(product_sequence)[::-1][:k]

    ids = sorted(benchmark.products)[:12]
    call = Action(name="get_recommendations_by_history", arguments={"product_sequence": ids})
    step = begin("recommend", shop=replace(shop, recommender=Echo())).step(call)
    assert given == [ids] and list(step.observation.products) == ids[::-1][:10]


def test_one_shop_serves_many_threads(shop, benchmark):
    tasks = [t for t in benchmark.tasks["test"] if t.type == "search"][:20]

    def run(task):
        history = benchmark.history(task, "test")
        return run_episode(WebEnvironment(shop), task, history, lambda state: search(state.instruction))

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


def test_a_refused_task_leaves_no_task_open(begin, task_of):
    environment = begin()
    empty = task_of["review"].review.model_copy(update={"text": " "})
    with pytest.raises(NotEvaluableError, match=task_of["review"].task_id):
        environment.reset(task_of["review"].model_copy(update={"review": empty}))
    with pytest.raises(RuntimeError, match="no task is under way"):
        environment.step(search("red"))
