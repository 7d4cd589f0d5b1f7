"""With the published prompts, what reaches the endpoint is what the published agents send, byte for byte."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

from pwagents.agents.chat import Setup
from pwagents.agents.interec import first_profile, play_interec
from pwagents.agents.methods import METHODS, PUMA_BY_FILE, PumaByFile
from pwagents.data.personalwab import load_personalwab
from pwagents.llm.chat import Reply, ToolCall
from pwagents.llm.prompts import official_prompts
from pwagents.schema import FUNCTION_OF, Behavior, Benchmark, Product, Review, Task, UserProfile
from pwagents.seeds import rng
from pwagents.shop.environment import Environment, Shop
from pwagents.shop.sasrec import RecommendersByTime
from pwagents.users.llm import LlmUser

from ..official_code import CLONE, Endpoint, canonical, needs_clone, published_code, published_functions
from ..personalwab_files import records, write_records
from .conftest import ScriptedModel

HASHES = Path(__file__).with_name("official_sent.json")
HITS = ["B03", "B01", "B12"]
PROFILE = {"like": ["B01"], "dislike": [], "expect": ["a lamp"], "unread": 0}
ITEMS = 10  # as the published code runs
# Our method -> strategy and memory of the published code.
METHODS_THERE = {
    "No memory": ("function_calling", "none"),
    "Random memory": ("function_calling", "random"),
    "Last memory": ("function_calling", "last"),
    "Relevant memory": ("function_calling", "relevant"),
    "ReAct": ("react", "last"),
    "Reflection": ("react_reflect", "last"),
    "RecMind": ("recmind", "recmind"),
    "InteRecAgent": ("function_calling", "interecagent"),
    PUMA_BY_FILE: ("function_calling", "taskspe"),
}
ONLY_MULTI_TURN = ("Reflection", "InteRecAgent")
CASES = [
    (track, method, task_type)
    for track in ("single_turn", "multi_turn")
    for method in METHODS_THERE
    for task_type in FUNCTION_OF
    if track == "multi_turn" or method not in ONLY_MULTI_TURN
]


def vectors(texts):
    """Unit vectors that every letter of a text decides."""
    made = [np.random.default_rng(list(text.encode())).normal(size=16) for text in texts]
    return np.array([vector / np.linalg.norm(vector) for vector in made])


class Embedding:
    encode = staticmethod(lambda texts, **_: vectors(texts))
    cosine = staticmethod(lambda a, b: 0.5)


class Engine:
    search = staticmethod(lambda query, k: [(asin, 1.0) for asin in HITS])
    recommend = staticmethod(lambda ids, k: list(HITS))


@pytest.fixture(scope="module")
def raw():
    """One user: twelve purchases, then a task of each type; some fields are missing, nested or odd."""
    products = {}
    for i in range(1, 16):
        fields = {"title": f"Lamp no. {i} \u201cgl\u00fchend\u201d", "description": ("A lamp.",)}
        fields |= {"category": "Home" if i % 2 else "Electronics"}
        fields |= {"average_rating": 4.5, "rating_number": 10 * i}
        if i % 4:  # the others are bare
            fields |= {"store": "Lumo", "features": ("bright", 'it\'s "cool"'), "price": [i, i / 4][i % 2]}
            ranks = {"Home & Kitchen": 90_210, "Lamps": i}
            fields |= {"details": {"Farbe": "gr\u00fcn", "Best Sellers Rank": ranks, "Sizes": ["S", None]}}
        products[f"B{i:02}"] = Product(parent_asin=f"B{i:02}", **fields)
    review = lambda i: Review(rating=float(1 + i % 5), text=f"Text {i}.\nIt glows, \u00e4hm.")  # noqa: E731
    time = 1_500_000_000_000
    past = tuple(Behavior(parent_asin=f"B{i:02}", timestamp=time + i, review=review(i)) for i in range(1, 16))
    tasks = []
    for i, task_type in enumerate(FUNCTION_OF, start=13):
        fields = {"task_id": f"t{i}", "user_id": "U1", "type": task_type, "timestamp": time + i}
        about = {"instruction": f"Please, a {task_type} of a lamp!", "target": f"B{i:02}"}
        tasks.append(Task(**fields, **about, review=review(i)))
    words = {"price_sensitivity": "High", "diversity_preference": "Low", "interaction_complexity": "Medium"}
    profile = UserProfile(**dict.fromkeys(UserProfile.model_fields, "x") | words)
    split = {"train": (tasks[0].model_copy(update={"task_id": "t0"}),), "test": (*tasks,)}
    return records(Benchmark("fixture", products, {"U1": past}, split, {"U1": profile}))


@pytest.fixture(scope="module")
def benchmark(raw, tmp_path_factory):
    return load_personalwab(write_records(raw, tmp_path_factory.mktemp("raw")), protocol="published")


def script(method, track, task_type):
    """What the agent's model says in turn, in both codes."""
    arguments = {
        "search": {"query": "lamp"},
        "recommend": {"product_sequence": ["B01", "B02"]},
        "review": {"review": "It's fine."},
    }
    types = [task_type] if track == "single_turn" else arguments
    calls = [(FUNCTION_OF[each], arguments[each]) for each in types]
    if method == "RecMind":
        calls.insert(0, ("get_product_details_by_asin", {"product_asin": "B02"}))
    if track == "multi_turn":
        calls = [("respond", "Which one do you mean?"), *calls, ("respond", "Better?"), ("stop", {})]
    if method in ("ReAct", "Reflection"):
        form = "Thought:\nHm.\nAction:\n{}\nArguments:\n{}\n"
        return [
            {"content": form.format(name, what if name == "respond" else json.dumps(what))}
            for name, what in calls
        ]
    said = []
    for name, what in calls:
        call = {"id": "x", "type": "function", "function": {"name": name, "arguments": json.dumps(what)}}
        said.append({"content": what} if name == "respond" else {"content": None, "tool_calls": [call]})
    return said


def speaker(turns):
    """Plays every role: the agent says its turns, the user and who looks back on a conversation one thing."""
    turns = list(turns)

    def reply(request):
        system = request["messages"][0]
        if request.get("temperature") == 1.0:
            return {"content": "The blue\none."}  # the user
        if len(request["messages"]) == 1:
            is_profile = "json" in system["content"]
            return {"content": '{"like": ["B02"], "dislike": []}' if is_profile else "I was wrong."}
        return turns.pop(0)

    return reply


def digest(requests):
    text = json.dumps(requests, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def sent_here(benchmark):
    """``sent_here(track, method, task_type)``: what our agent sends."""
    prompts = official_prompts(CLONE).texts

    def sent(track, method, task_type):
        said, requests = speaker(script(method, track, task_type)), []

        def answer(request):
            requests.append(canonical({**request.model_dump(), **request.sampling}))
            message = said(requests[-1])
            calls = [ToolCall(id="x", **call["function"]) for call in message.get("tool_calls", ())]
            return Reply(text=message["content"] or "", tool_calls=calls)

        task = next(task for task in benchmark.tasks["test"] if task.type == task_type)
        model, user = ScriptedModel(answer), None
        if track == "multi_turn":
            user = LlmUser(model, benchmark.products, benchmark.profiles, prompts=prompts, may_leak=True)
        by_file = FUNCTION_OF[task_type] if method == PUMA_BY_FILE else None
        setup = Setup(model, benchmark.products, track, Embedding(), length=ITEMS, prompts=prompts)
        shop = Shop(benchmark, Engine, RecommendersByTime([0], [Engine]), Embedding, searched="labels, too")
        environment = Environment(shop, task, track, "published", user, details=True)
        if method == "InteRecAgent":
            play_interec(setup, environment, PROFILE)
        elif method == PUMA_BY_FILE:
            setup = Setup(**vars(setup) | {"identify": lambda _: by_file})
            environment.play(PumaByFile(setup))
        else:
            environment.play(METHODS[method](setup))
        return requests

    return sent


@pytest.fixture(scope="module")
def sent_there(raw, benchmark, tmp_path_factory):
    """``sent_there(track, method, task_type)``: what the published agent sends."""
    folder, data = tmp_path_factory.mktemp("there"), raw

    def sent(track, method, task_type):
        strategy, memory = METHODS_THERE[method]
        endpoint = Endpoint(speaker(script(method, track, task_type)))
        ((i, task),) = [pair for pair in enumerate(benchmark.tasks["test"]) if pair[1].type == task_type]
        steps = 10 if track == "multi_turn" else -1
        with published_code(endpoint, vectors) as load, pytest.MonkeyPatch.context() as patch:
            base = load("PersonalWAB.envs.base")
            base.compute_similarity = lambda *_: 0.5
            functions = published_functions(lambda query: HITS, lambda ids: HITS, raw["all_products"])
            rules = official_prompts(CLONE).texts["SYS_PROMPT_MULTI" if steps > 0 else "SYS_PROMPT_SINGLE"]
            rules, mode = rules.replace("<NUM>", str(steps)), "naive" if steps > 0 else "no"
            tests = data["instructions"]["test"]
            env = base.PWABaseEnv(data, functions, tests, mode, "gpt-4o-mini", rules, steps)
            # The sample that our random memory draws.
            n = len([b for b in benchmark.behaviors["U1"] if b.timestamp < task.timestamp])
            order = rng(0, "memory", "U1", task.instruction).permutation(n)
            patch.setattr(random, "sample", lambda latest, k: [latest[::-1][j] for j in order[:k]])
            tools = [t for t in env.functions_info if "details" not in t["function"]["name"]]
            tools = env.functions_info if strategy == "recmind" else tools
            if strategy.startswith("react"):
                module = load("PersonalWAB.agents.chat_react_agent")
                module.initialize_create()
                reflects = strategy == "react_reflect"
                agent = module.ChatReActAgent(tools, env.sys_prompt, "gpt-4o-mini", reflects)
            else:
                module = load("PersonalWAB.agents.gpt_function_calling_agent")
                module.initialize_client()
                files = folder / "functions.json", folder / "memory.json"
                files[0].write_text(json.dumps({task.instruction: [FUNCTION_OF[task_type]]}))
                files[1].write_text(json.dumps({"U1": PROFILE}))
                agent = module.GPTFunctionCallingAgent(tools, env.sys_prompt, "gpt-4o-mini", *files)
            agent.act(env, i, temperature=0.0, max_steps=steps, memory=memory)
        return endpoint.requests

    return sent


@needs_clone
@pytest.mark.parametrize(("track", "method", "task_type"), CASES)
def test_what_is_sent_is_what_the_published_agents_send(sent_here, sent_there, track, method, task_type):
    sent = sent_here(track, method, task_type)
    assert sent == sent_there(track, method, task_type)
    assert digest(sent) == json.loads(HASHES.read_text())[f"{track}, {method}, {task_type}"]


@needs_clone
def test_interecagents_first_profile_is_asked_for_as_the_published_script_does(raw, benchmark, tmp_path):
    asked = []

    def answer(request):
        asked.append(canonical({**request.model_dump(), **request.sampling}))
        return Reply(text='{"like": [], "dislike": []}')

    setup = Setup(ScriptedModel(answer), benchmark.products, prompts=official_prompts(CLONE).texts)
    first_profile(setup, benchmark.behaviors["U1"])
    (tmp_path / "history.json").write_text(json.dumps(raw["user_history"]))
    endpoint = Endpoint(lambda request: {"content": "{}"})
    with published_code(endpoint, vectors) as load:
        script = load("scripts.tools.init_interecagent_memory")
        history = "".join(script.get_user_history(tmp_path / "history.json", "U1"))
        system = script.USER_PROFILE_PROMPT.replace("{History}", history)
        script.generate_user_profile_GPT(history, "gpt-4o-mini", system, 0.0)
    assert asked == endpoint.requests
    assert digest(asked) == json.loads(HASHES.read_text())["first profile"]
