"""Tasks of the local web for any browser agent: sites and a control API behind one port of this machine.

    python -m pwagents web-bench --preset laptop --port 8011

Whoever runs an agent begins a task by the API (described at ``/openapi.json``) and gets two secrets. The
start address, ``http://start.test.ID.localhost:8011/``, holds one: whatever browser opens it is in the task's
session on all sites, without a cookie or a header. The other is a token that the agent's browser never sees:
by it the API recalls records of the user's history, takes notes and, at the end, scores as our own drivers'
episodes are scored. Tasks follow from the preset and its seed; the variable ``WEB_BENCH_SECRET`` makes an
edition whose answers nobody has. Its tasks are listed and begun by a key that is derived from the secret.
"""

import argparse
import asyncio
import gc
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pwagents import local_server
from pwagents.persona2web.agents.episode import Condition, Played, World, record
from pwagents.persona2web.agents.recall import RetrievalSettings
from pwagents.persona2web.experiment import Experiment
from pwagents.persona2web.judge.scores import SCORES, explain, judge
from pwagents.persona2web.site import serve
from pwagents.persona2web.site.web import WebSession
from pwagents.persona2web.world import types
from pwagents.persona2web.world.types import PORTAL, BrowsingEvent, MemoryStep, WebStep, WebTask
from pwagents.settings import load_settings, read_changes

SECRET = "WEB_BENCH_SECRET"
IDLE_S = 1800.0  # what nobody used for so long is gone
MAX_OPEN = 1000
Words = Annotated[str, Body(embed=True, max_length=10_000)]


class Listed(BaseModel):
    """A task that can be begun, as often as wished."""

    task_id: str
    user_id: str
    query: str


class Begun(Listed):
    """A task that was begun: ``start_url`` is for the agent's browser, ``token`` for the API."""

    token: str
    start_url: str
    steps_left: int


class Recalled(BaseModel):
    """Records of the history that a question found, best first; none for a note."""

    steps_left: int
    records: tuple[BrowsingEvent, ...] = ()


class Finished(BaseModel):
    """Scores from 0 to 1 (null: does not apply), why, and all that is stored of an episode."""

    scores: dict[str, float | None]
    reasons: dict[str, str]
    trajectory: types.WebTrajectory


class Wrong(BaseModel):
    """What is wrong with a request, in a line."""

    detail: str


@dataclass
class Run:
    """A task that was begun, until it is forgotten."""

    task: WebTask
    session: WebSession
    token: str
    used: float
    played: Played = field(default_factory=Played)
    finished: Finished | None = None

    @property
    def steps_left(self) -> int:
        """Steps that our own agents had left; looks into the history and notes are steps."""
        return self.played.left("indexed", "on_demand")

    def take(self, step: types.Step) -> None:
        """Keep a step; an HTTPException if there is none left, or the task has ended."""
        if self.finished:
            raise HTTPException(409, "This task has ended.")
        if self.steps_left <= 0:
            raise HTTPException(429, "No steps are left: finish the task.")
        self.played.steps.append(step)


class Bench:
    """Begins, keeps and ends runs of a world's tasks, at one level of ambiguity; for one thread."""

    def __init__(self, world: World, search: RetrievalSettings, level: types.Level = 2, idle_s=IDLE_S):
        self.world, self.level, self.idle_s = world, level, idle_s
        self.tasks = {task.task_id: task for task in world.tasks}
        self.recalls = world.recalls("implicit", search)
        self._truth = world.truth("implicit")
        self._runs: dict[str, Run] = {}  # by the session's id

    def listed(self, task: WebTask) -> dict[str, str]:
        """Return what an agent may know of a task."""
        return {"task_id": task.task_id, "user_id": task.user_id, "query": task.texts[self.level]}

    def begin(self, task_id: str) -> Run:
        """Begin a task in a session of its own."""
        self.forget()
        if task_id not in self.tasks:
            raise HTTPException(404, "There is no such task; GET /tasks lists them.")
        if len(self._runs) >= MAX_OPEN:  # one that has ended makes room
            ended = next((each for each, run in self._runs.items() if run.finished), None)
            if ended is None:
                raise HTTPException(429, f"{MAX_OPEN:,} tasks are open: finish some.")
            del self._runs[ended]
        task = self.tasks[task_id]
        session = self.world.web.begin(task.now)
        token = f"{session.session_id}-{secrets.token_urlsafe(24)}"
        self._runs[session.session_id] = run = Run(task, session, token, time.monotonic())
        return run

    def use(self, session_id: str) -> Run | None:
        """Return the run of a session, which somebody just used."""
        self.forget()
        if run := self._runs.get(session_id):
            run.used = time.monotonic()
        return run

    def forget(self) -> None:
        """End the sessions that nobody used for long."""
        oldest = time.monotonic() - self.idle_s
        for session_id in [each for each, run in self._runs.items() if run.used < oldest]:
            self.world.web.end(self._runs.pop(session_id).session)

    def finish(self, run: Run, answer: str) -> Finished:
        """End a task and score it; asked again, the same."""
        if run.finished is None:
            looks, run.played.answer = any(step.kind == "memory" for step in run.played.steps), answer
            condition = Condition("indexed", "on_demand" if looks else "none", self.level)
            failed = any(request.status >= 500 for request in run.session.log)
            played = record(run.task, condition, run.played, run.session, self.world.web, failed)
            self.world.web.end(run.session)
            scores = judge(run.task, played, self._truth)
            run.finished = Finished(
                scores={name: getattr(scores, name) for name in (*SCORES, "reached")},
                reasons=explain(scores, run.task, played, self._truth),
                trajectory=played,
            )
        return run.finished


# --- over HTTP ---------------------------------------------------------------------------------------------


def key_of(secret: str) -> str:
    """Return the key by which tasks of a secret edition are listed and begun; empty for the public one."""
    return hashlib.sha256(f"{secret}/key".encode()).hexdigest()[:32] if secret else ""


def make_app(bench: Bench, key: str = "") -> Callable:
    """Return sites and API as one ASGI application: names with a session's id are sites."""
    api, sites = _make_api(bench, key), serve.make_app(bench.world.web)

    async def app(scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        chosen: Callable = api
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            session_id = serve.split_host(headers.get("host", ""))[2]
            if session_id:
                bench.use(session_id)
                chosen = sites
            elif "transfer-encoding" in headers or int(headers.get("content-length", 0)) > serve.MAX_BODY:
                chosen = JSONResponse({"detail": "The body is too long, or does not say its length."}, 413)
        await chosen(scope, receive, send)

    return app


def _make_api(bench: Bench, key: str) -> FastAPI:
    wrong = {code: {"model": Wrong} for code in (401, 404, 409, 413, 422, 429)}
    api = FastAPI(title="pwagents web-bench", version="1", docs_url=None, redoc_url=None, responses=wrong)
    # Pages of other names, which lead here, must not use the API of whoever visits them.
    api.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    bearer = HTTPBearer(auto_error=False, description="The token of a task; to list and begin, the key.")
    Given = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]

    @api.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return JSONResponse({"detail": text.encode("utf-8", "replace").decode()[:300]}, 422)

    async def check_key(given: Given) -> None:
        if not (given and secrets.compare_digest(given.credentials.encode(), key.encode())):
            raise HTTPException(401, "This edition needs its key: Authorization: Bearer KEY.")

    async def find_run(given: Given) -> Run:
        token = given.credentials if given else ""
        run = bench.use(token.partition("-")[0])
        if run is None or not secrets.compare_digest(token.encode(), run.token.encode()):
            raise HTTPException(401, "No open task has this token: Authorization: Bearer TOKEN.")
        return run

    keyed = {"dependencies": [Depends(check_key)]} if key else {}
    OfRun = Annotated[Run, Depends(find_run)]

    @api.get("/tasks", **keyed)
    async def list_tasks() -> list[Listed]:
        """List all tasks."""
        return [Listed(**bench.listed(task)) for task in bench.tasks.values()]

    @api.post("/tasks/{task_id}", **keyed)
    async def begin(task_id: str, request: Request) -> Begun:
        """Begin a task in a session of its own."""
        run = bench.begin(task_id)
        url = f"http://{PORTAL}.{run.session.session_id}.localhost:{request.url.port or 80}/"
        about = bench.listed(run.task)
        return Begun(**about, token=run.token, start_url=url, steps_left=run.steps_left)

    @api.post("/recall")
    async def recall(run: OfRun, query: Words) -> Recalled:
        """Ask the user's history; this is a step. The records that are returned count as retrieved."""
        records = await asyncio.to_thread(bench.recalls[run.task.user_id], query)
        ids = tuple(each.event_id for each in records)
        run.take(MemoryStep(query=query, retrieved=ids, answer=""))
        return Recalled(records=tuple(records), steps_left=run.steps_left)

    @api.post("/note")
    async def note(run: OfRun, action: Words, reason: Words = "", observation: Words = "") -> Recalled:
        """Write down a step of the agent, for those who read its trajectory; scores do not depend on it."""
        run.take(WebStep(observation=observation, reason=reason, action=action))
        return Recalled(steps_left=run.steps_left)

    @api.post("/finish")
    async def finish(run: OfRun, answer: Words = "") -> Finished:
        """End the task and score it; its pages are then gone. Asked again, the answer is the same."""
        return bench.finish(run, answer)

    return api


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the tasks of a preset until the process is interrupted."""
    parser = argparse.ArgumentParser(prog="pwagents web-bench", description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="laptop", help="smoke, laptop or paper; default: %(default)s")
    parser.add_argument("--port", type=int, default=8011)
    parser.add_argument("--level", type=int, choices=(0, 1, 2), default=2, help="of ambiguity; default: 2")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds until a silent task is forgotten")
    parser.add_argument("-y", default="{}", metavar="YAML", help="changes of notebook 09's settings")
    given, secret = parser.parse_args(arguments), os.environ.get(SECRET, "")
    try:
        if 0 < len(secret) < 16:
            raise ValueError(f"{SECRET}: expected at least 16 characters, which nobody can guess")
        listener = local_server.listen(given.port)
        changes = read_changes(given.y) | {"preset": given.preset}
        if secret:
            changes["seed"] = int(hashlib.sha256(secret.encode()).hexdigest(), 16)
        settings = load_settings("09_persona2web", {"output_dir": f"outputs/{given.preset}", **changes})
        cache, store = settings.output_dir / "cache", settings.output_dir / "runs/replies.sqlite"
        experiment = Experiment(settings, cache, store)
        if settings.study.retriever == "minilm":
            experiment.embed()
        bench = Bench(experiment.world, experiment.condition().retrieval, given.level, given.idle)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    key, url = key_of(secret), f"http://127.0.0.1:{listener.getsockname()[1]}"
    begun = f", by the key {key}" if key else ""
    print(f"{len(bench.tasks):,} tasks at {url}{begun} (Ctrl+C ends it)", flush=True)
    gc.freeze()  # searching what stays for garbage made one page in a hundred wait
    local_server.serve(make_app(bench, key), listener)
    return 0
