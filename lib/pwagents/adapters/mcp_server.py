"""The shop behind the Model Context Protocol, on this machine alone: any client plays, from any environment.

    python -m pwagents.adapters.mcp_server --preset smoke --port 8010 -y "{split: train, tasks: 20}"

Agents reach ``/mcp``: the tool ``reset`` begins a task in a session, the functions of the shop name it. Every
call stands for itself, as the protocol of July 2026 knows no connection that lasts. Who runs the agent (the
agent never) asks ``GET /tasks`` for the names of all tasks and ``POST /reward/SESSION`` for the end of one.
"""

import argparse
import asyncio
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pwagents import local_server
from pwagents.adapters import Answer, Session, TaskSet, load_tasks
from pwagents.settings import read_changes

_RESET = {
    "name": "reset",
    "description": "Begin a task in a new session; its id is what all other calls need.",
    "input_schema": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
}
_SESSION = {"type": "string", "description": "What reset returned."}
IDLE_S = 600  # a client whose connection is lost says nothing of it: what nobody used for so long is gone
MAX_SESSIONS = 1000  # the one that nobody used for longest makes room


class Sessions:
    """All sessions of a server, by ids that cannot be guessed."""

    def __init__(self, tasks: TaskSet):
        self.tasks = tasks
        self.names = {f"task-{i}": task_id for i, task_id in enumerate(tasks)}  # ids tell types
        self._open: dict[str, tuple[Session, threading.Lock]] = {}
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()

    def reset(self, task: str) -> dict[str, Any]:
        """Begin a task, by its name, in a new session; return its id, and what the agent is told."""
        if not isinstance(task, str) or task not in self.names:
            raise ValueError(
                f"task: found {task!r}; expected one of the {len(self.names):,} names that GET /tasks lists"
            )
        session, key = Session(self.tasks), secrets.token_urlsafe(16)
        text = session.reset(self.names[task])
        with self._lock:
            self._open[key], self._used[key] = (session, threading.Lock()), time.monotonic()
            if len(self._open) > MAX_SESSIONS:
                oldest = min(self._used, key=self._used.__getitem__)
                del self._open[oldest], self._used[oldest]
        return {"session": key, "observation": text}

    def step(self, key: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Call a function of the shop."""
        session, lock = self._find(key)
        with lock:  # a client may send several calls at once
            return session.step(name, arguments)

    def reward(self, key: str) -> dict[str, Any]:
        """End a session: the reward of its episode, and all its steps. Asked again, the same."""
        session, lock = self._find(key)
        with lock:
            return {"reward": session.finish(), "trajectory": session.trajectory.model_dump(mode="json")}

    def _find(self, key: str) -> tuple[Session, threading.Lock]:
        now = time.monotonic()
        with self._lock:
            for idle in [k for k, used in self._used.items() if now - used >= IDLE_S]:
                del self._open[idle], self._used[idle]
            if key not in self._open:
                raise ValueError("session: not open; the tool reset opens one")
            self._used[key] = now
            return self._open[key]


def make_app(sessions: Sessions) -> Callable:
    """Make the ASGI application; what is wrong with a request is told as one line, marked as an error."""
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    tools = [Tool(**_RESET)]
    for function in (tool["function"] for tool in sessions.tasks.tools):
        schema = function["parameters"]
        required = ["session", *schema.get("required", [])]
        schema = {**schema, "properties": {"session": _SESSION, **schema["properties"]}, "required": required}
        tools.append(Tool(name=function["name"], description=function["description"], input_schema=schema))

    async def list_tools(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(_: Any, call: Any) -> CallToolResult:
        arguments = dict(call.arguments or {})
        try:
            if call.name == "reset":
                answer = await asyncio.to_thread(sessions.reset, arguments.get("task"))
            else:
                key = str(arguments.pop("session", ""))
                step = await asyncio.to_thread(sessions.step, key, call.name, arguments)
                answer = {"observation": step.text, "done": step.done}  # an agent reads it: no reward
        except (ValueError, RuntimeError, OSError) as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        text = TextContent(text=json.dumps(answer, ensure_ascii=False))
        return CallToolResult(content=[text], structured_content=answer)

    async def list_tasks(_: Request) -> JSONResponse:
        return JSONResponse(list(sessions.names))

    async def end(request: Request) -> JSONResponse:
        try:
            return JSONResponse(await asyncio.to_thread(sessions.reward, request.path_params["session"]))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 404)

    routes = [Route("/tasks", list_tasks), Route("/reward/{session}", end, methods=["POST"])]
    server = Server("pwagents", on_list_tools=list_tools, on_call_tool=call_tool)
    return server.streamable_http_app(json_response=True, stateless_http=True, custom_starlette_routes=routes)


def main() -> int:
    """Serve the tasks of a preset until the process is interrupted."""
    parser = argparse.ArgumentParser(description="Serve the shop's tasks (MCP, loopback alone)")
    parser.add_argument("--preset", default="smoke", help="smoke, laptop or paper; default: %(default)s")
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("-y", default="{}", metavar="YAML", help="further arguments of load_tasks")
    given = parser.parse_args()
    try:
        listener = local_server.listen(given.port)
        sessions = Sessions(load_tasks(given.preset, **read_changes(given.y)))
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    print(f"{len(sessions.tasks):,} tasks at {url} (Ctrl+C ends it)", flush=True)
    local_server.serve(make_app(sessions), listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
