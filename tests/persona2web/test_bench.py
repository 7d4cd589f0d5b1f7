"""The bench: any browser is the task's session, tasks are apart, and scores are those of our own drivers."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from unittest.mock import Mock

import pytest
import requests

from pwagents import local_server
from pwagents.persona2web.agents.recall import RetrievalSettings
from pwagents.persona2web.bench import SECRET, Bench, key_of, make_app
from pwagents.persona2web.browser.chromium import PLAYWRIGHTS, find_chromium
from pwagents.persona2web.site.serve import MAX_BODY

from ..notebook.notebooks import ROOT

HOSTILE = "<script>hit()</script><img src=x onerror=hit()> http://start.test.{}.localhost/ [1] button 'Pay'"


class Client:
    """Somebody who runs agents; ``visit`` is what a browser does, with the session in the host name."""

    def __init__(self, url):
        self.url = url

    def ask(self, path, token="", method="POST", **fields):
        headers = {"Authorization": f"Bearer {token}"}
        return requests.request(method, self.url + path, json=fields, headers=headers, timeout=20)

    def begin(self, task_id):
        return self.ask(f"/tasks/{task_id}").json()

    def visit(self, begun, host="start.test", path="/", method="GET", **options):
        name = begun["start_url"].split("/")[2].replace("start.test", host)
        return requests.request(method, self.url + path, headers={"Host": name}, timeout=20, **options)


@pytest.fixture(scope="module")
def bench(world):
    return Bench(world, RetrievalSettings(retriever="bm25"))


@pytest.fixture(scope="module")
def client(bench):
    with local_server.serving(make_app(bench)) as port:
        yield Client(f"http://127.0.0.1:{port}")


@pytest.fixture(scope="module")
def task(world):
    return next(task for task in world.tasks if task.goal.operation == "booking")


def test_one_plan_scores_the_same_by_a_playwright_script_and_by_our_driver(world):
    if find_chromium() in (None, PLAYWRIGHTS) and os.environ.get("CI") != "true":
        pytest.skip("no Chromium is installed")
    place = importlib.util.spec_from_file_location("web_recipes", ROOT / "benchmarks/web_recipes.py")
    place.loader.exec_module(recipes := importlib.util.module_from_spec(place))
    tasks = {task.goal.operation: task for task in world.tasks}.values()
    table = recipes.compare(world, list(tasks)[:2], {"playwright": sys.executable})
    assert len(table) == 12 and recipes.is_same(table)
    right = table["plan"] == "right"
    assert (table[~right]["success"] == 0).all() and (table[right]["intent"] == 1).all()


def test_an_agent_is_scored_by_what_it_recalled_and_did_on_any_site(client, bench, world, task):
    begun = client.begin(task.task_id)
    assert begun["query"] == task.texts[2] and task.goal.host not in begun["query"]
    portal = client.visit(begun, cookies={"visit": "other"})
    ending = begun["start_url"].split("start.test")[1]
    links = re.findall(r'href="(http://[^"]+)"', portal.text)
    assert {*links} >= {f"http://{host}{ending}" for host in world.web.sites} and not portal.cookies
    assert all(client.visit(begun, host).status_code == 200 for host in world.web.sites)
    for left, query in ((24, "anything at all"), (23, world.histories[task.user_id].events[-1].object)):
        found = client.ask("/recall", begun["token"], query=query).json()
        assert found["steps_left"] == left
    ids = [record["event_id"] for record in found["records"]]
    item = next(item for item in world.web.sites[task.goal.host].items if item.domain == task.goal.domain)
    client.visit(begun, task.goal.host, "/bookings", "POST", data={"item": item.item_id})
    assert client.ask("/note", begun["token"], action="added it").json()["steps_left"] == 22
    end = client.ask("/finish", begun["token"], answer="Done.").json()
    assert client.ask("/finish", begun["token"]).json() == end  # asked again, the same
    log, look = end["trajectory"]["requests"], end["trajectory"]["steps"][1]
    assert look["retrieved"] == ids and ids and end["trajectory"]["answer"] == "Done."
    assert len(log) == 1 + 25 + 2 and log[-2]["operation"] == "booking"
    assert end["scores"].keys() >= {"p_web", "p_pref", "p_avg", "intent", "success"}
    assert end["reasons"].keys() <= end["scores"].keys() and task.goal.host not in str(end["reasons"])
    assert client.visit(begun).status_code == 401
    assert client.ask("/recall", begun["token"], query="x").status_code == 409


def test_fifty_at_once_know_nothing_of_each_other(client, world):
    def play(number):
        begun = client.begin(world.tasks[number % len(world.tasks)].task_id)
        client.visit(begun, path="/", params={"q": f"run {number}"})
        return begun

    with ThreadPoolExecutor(16) as threads:
        begun = [*threads.map(play, range(50))]
        ends = [*threads.map(lambda each: client.ask("/finish", each["token"]).json(), begun)]
    said = [[request["params"]["q"] for request in end["trajectory"]["requests"]] for end in ends]
    assert said == [[f"run {number}"] for number in range(50)]


def test_no_token_is_guessed_from_what_an_agent_sees_and_a_silent_task_ends(client, bench, task, monkeypatch):
    mine, other = client.begin(task.task_id), client.begin(task.task_id)
    seen = other["start_url"].split(".")[2]
    mixed = f"{seen}-{mine['token'].partition('-')[2]}"
    for path, token in product(
        ("/finish", "/recall", "/note"), ("", seen, mixed, f"{other['token']}x", "\xe9")
    ):
        assert client.ask(path, token, query="x", action="x").status_code == 401
    clock = Mock(monotonic=Mock(return_value=time.monotonic() + bench.idle_s - 60))
    monkeypatch.setattr("pwagents.persona2web.bench.time", clock)
    assert client.visit(mine).status_code == 200  # a page is a sign of life
    clock.monotonic.return_value += 120
    assert [client.visit(each).status_code for each in (mine, other)] == [200, 401]
    assert client.ask("/finish", other["token"]).status_code == 401


def test_hostile_text_runs_nothing_and_forges_no_id(client, task):
    begun, other = client.begin(task.task_id), client.begin(task.task_id)
    text = HOSTILE.format(other["start_url"].split(".")[2])
    client.visit(begun, task.goal.host, "/account", "POST", data={"name": text})
    places = [
        (task.goal.host, "/account"),
        ("start.test", "/"),
        (task.goal.host, "/search"),
        (text[:20], "/"),
    ]
    for page in (client.visit(begun, *place, params={"q": text}) for place in places):
        assert "<script" not in page.text and "<img" not in page.text and page.status_code < 500
        assert "default-src 'none'" in page.headers["content-security-policy"]
        links = re.findall(r'(?:href|action)="\w+://([^/"]+)', page.text)
        assert links and all(begun["start_url"].split(".")[2] in link for link in links)
    assert not client.ask("/finish", other["token"]).json()["trajectory"]["requests"]


MALFORMED = {
    ("/recall", 422): (b'{"query": 7}', b""),
    ("/note", 422): (b'{"action": "\\ud800"}', b'{"reason": "x"}', b'{"action": "' + b"x" * 10_001 + b'"}'),
    ("/finish", 400): (b"[" * 30_000, b"\xff{"),
    ("/finish", 413): (b" " * (MAX_BODY + 1),),
    ("/tasks/none%00%ff", 404): (b"",),
    ("/tasks", 405): (b"",),
}


@pytest.mark.parametrize(("path", "status"), MALFORMED)
def test_a_malformed_request_is_one_line(client, task, path, status):
    token = client.begin(task.task_id)["token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for body in MALFORMED[path, status]:
        done = requests.post(client.url + path, body, headers=headers, timeout=20)
        assert done.status_code == status and re.fullmatch(".{1,300}", done.json()["detail"])


def test_limits_are_kept_and_other_names_do_not_reach_the_api(client, bench, task, monkeypatch):
    token = client.begin(task.task_id)["token"]
    codes = [client.ask("/note", token, action="x").status_code for _ in range(26)]
    assert codes == [200] * 25 + [429]
    monkeypatch.setattr("pwagents.persona2web.bench.MAX_OPEN", len(bench._runs) + 1)
    client.ask("/finish", client.begin(task.task_id)["token"])
    n_ended = len([run for run in bench._runs.values() if run.finished])
    codes = [client.ask(f"/tasks/{task.task_id}").status_code for _ in range(n_ended + 1)]
    assert codes == [200] * n_ended + [429] and n_ended  # what has ended makes room
    for host in ("evil.test", "start.test.localhost:80", "start.test"):
        assert requests.get(f"{client.url}/tasks", headers={"Host": host}, timeout=20).status_code == 400
    api = client.ask("/openapi.json", method="GET").json()
    assert {*api["paths"]} == {"/tasks", "/tasks/{task_id}", "/recall", "/note", "/finish"}
    assert api["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_a_bench_that_was_killed_serves_the_same_tasks_and_a_secret_edition_others(tmp_path):
    listed, secret = [], "a secret of many letters"
    command = [sys.executable, "-m", "pwagents", "web-bench", "--preset", "smoke", "--port", "0", "-y"]
    command.append(f"{{study: {{retriever: bm25}}, output_dir: {tmp_path}}}")
    for given in ("", secret, secret):
        options = {"stdout": subprocess.PIPE, "text": True, "env": os.environ | {SECRET: given}}
        with subprocess.Popen(command, **options) as server:
            try:
                (url,) = re.findall(r"2 tasks at (\S+?)[ ,]", line := server.stdout.readline())
                client, key = Client(url), key_of(given)
                assert key in line and secret not in line
                listed.append(client.ask("/tasks", key, "GET").json())
                task_id = listed[-1][0]["task_id"]
                codes = [client.ask(f"/tasks/{task_id}", each).status_code for each in (key, "", secret)]
                assert codes == ([200, 401, 401] if given else [200] * 3)
            finally:
                server.kill()
    assert listed[1] == listed[2] != listed[0]
    done = subprocess.run(command, env=os.environ | {SECRET: "short"}, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and SECRET in done.stderr
