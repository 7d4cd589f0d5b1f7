"""One plan, three ways: our own driver, a plain Playwright script, browser-use. Scores and logs are the same.

    make recipes
    .venv/bin/python benchmarks/web_recipes.py outputs/recipes    # with environments by recipe in it

The plans come from the truth of some tasks: one that is right, one that leaves a preference out, one for
another website, each as a list of questions to the history, addresses to open and buttons to press. Our
driver plays them in process, as any agent's episode. The two recipes, in environments of their own, play them
on a bench behind a port. Exits with status 1 where a score or a request differs.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from pwagents import local_server
from pwagents.persona2web.agents.episode import Brief, Condition, Played, World, run_episode
from pwagents.persona2web.agents.navigator import Navigator, Plan
from pwagents.persona2web.agents.offline import true_plan
from pwagents.persona2web.agents.recall import RetrievalSettings, question_for
from pwagents.persona2web.bench import Bench, make_app
from pwagents.persona2web.browser.driver import HtmlDriver, Visit
from pwagents.persona2web.judge.scores import judge
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.history import make_histories
from pwagents.persona2web.world.queries import make_tasks
from pwagents.persona2web.world.types import WEBSITE, MemoryStep, WebStep, WebTask
from pwagents.settings import HistorySettings, QuerySettings

SEARCH = RetrievalSettings(retriever="bm25")
RECIPES = {"playwright": "web_playwright.py", "browser-use": "web_browser_use.py"}
SHOWN = ("p_web", "p_pref", "intent", "success")
HERE = Path(__file__).parent


def make_world() -> World:
    histories, sites = make_histories(HistorySettings(n_users=6, records=600), seed=0), make_sites(0)
    tasks = make_tasks(histories, sites, QuerySettings(), seed=0)
    return World(histories, tasks, LocalWeb(sites.values()), None, data="recipes")


def plans_of(task: WebTask) -> dict[str, Plan]:
    """Return a right plan, one without a preference, and one for another site."""
    plan, last = true_plan(task), list(task.goal.masked)[-1]
    some = {name: value for name, value in plan.values.items() if name != last}
    other = next(host for host in plan.domain.hosts if host != plan.host)
    return {"right": plan, "partial": replace(plan, values=some), "other site": replace(plan, host=other)}


def write_down(plan: Plan, task: WebTask, web: LocalWeb) -> Iterator[tuple[str, str]]:
    """Yield what a walk by rules comes to: questions, pages opened, buttons pressed, an answer."""
    for name in (WEBSITE, *task.goal.masked):
        yield "recall", question_for(plan.domain, name)
    driver, navigator = HtmlDriver(web), Navigator(plan, "occam")
    driver.begin(web.begin(task.now))
    visit = Visit(driver, "occam")
    while (move := navigator.next(visit.observe())).actions:
        (action,), before = move.actions, driver.page
        visit.act(action)
        found = re.match(r"click \[(\d+)\]", action)
        node = before.elements[int(found[1])] if found else before.root
        form = next(node.element.iterancestors("form"), None) if node.role == "button" else None
        if form is not None and form.get("method") == "post":
            yield "press", node.name
        elif driver.page.url != before.url:
            yield "open", driver.page.url.removeprefix("http://")
    yield "answer", move.answer


def follow(steps: Iterable[tuple[str, str]], brief: Brief, visit: Visit) -> Played:
    """Play written steps through our own driver."""
    played = Played()
    for verb, text in steps:
        if verb == "recall":
            ids = tuple(record.event_id for record in brief.recall(text))
            played.steps.append(MemoryStep(query=text, retrieved=ids, answer=""))
            continue
        played.steps.append(WebStep(observation=visit.observe(), action=f"{verb} {text}"))
        if verb == "open":
            visit.driver.go_to(text)
        elif verb == "press":
            nodes = visit.driver.page.elements.items()
            visit.driver.click(next(i for i, node in nodes if (node.role, node.name) == ("button", text)))
        else:
            played.answer = text
    return played


def compare(world: World, tasks: Iterable[WebTask], pythons: Mapping[str, str]) -> pd.DataFrame:
    """Return a row a task, plan and way to play it; each recipe runs in the Python that is given for it."""
    bench, truth, rows = Bench(world, SEARCH), world.truth("implicit"), []
    with local_server.serving(make_app(bench)) as port:
        for task, (name, plan) in ((one, each) for one in tasks for each in plans_of(one).items()):
            steps = list(write_down(plan, task, world.web))
            brief, driver = Brief(task.texts[2], bench.recalls[task.user_id]), HtmlDriver(world.web)
            agent = partial(follow, steps)
            ours = run_episode(task, Condition("indexed", "on_demand"), agent, brief, world.web, driver)
            scored = judge(task, ours, truth)
            played = {
                "our driver": ({each: getattr(scored, each) for each in SHOWN}, ours.model_dump(mode="json"))
            }
            for recipe, python in pythons.items():
                url = f"http://127.0.0.1:{port}"
                command = [python, HERE / RECIPES[recipe], url, task.task_id, json.dumps(steps)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                end = json.loads(done.stdout.splitlines()[-1])
                played[recipe] = end["scores"], end["trajectory"]
            for recipe, (scores, trajectory) in played.items():
                facts = {"task": task.task_id, "operation": task.goal.operation, "plan": name}
                facts |= {"recipe": recipe, "steps": len(trajectory["steps"])}
                log = json.dumps(trajectory["requests"])
                rows.append(facts | {"log": log} | {each: scores[each] for each in SHOWN})
    return pd.DataFrame(rows)


def is_same(table: pd.DataFrame) -> bool:
    """Return whether all ways to play a plan have the same steps, logs and scores."""
    return bool(table.drop(columns="recipe").groupby(["task", "plan"]).nunique().eq(1).all(axis=None))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", type=Path, help="folder of the environments, by recipe")
    parser.add_argument("--tasks", type=int, default=5, help="each of another operation")
    given, world = parser.parse_args(), make_world()
    tasks = list({task.goal.operation: task for task in reversed(world.tasks)}.values())
    pythons = {recipe: f"{given.environments / recipe}/bin/python" for recipe in RECIPES}
    table = compare(world, tasks[: given.tasks], pythons)
    same = is_same(table)
    table["log"] = table["log"].map(lambda text: f"{len(json.loads(text))} requests")
    print(table.to_string(index=False))
    print("All the same." if same else "They differ.")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
