"""The shop behind the Model Context Protocol: any client plays, from a process and an environment of its own.

Tools are the verbs of :class:`pwagents.adapters.sessions.Sessions` and the functions of the shop. Every call
stands for itself (the protocol of July 2026 knows no connection that lasts), so each names its session.
"""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from pwagents.adapters.sessions import VERBS, BadRequestError, Sessions
from pwagents.errors import InfrastructureError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.applications import Starlette

_SESSION = {"type": "string", "description": "What reset returned."}


def make_server(sessions: Sessions) -> "Server":
    """An MCP server of the sessions. What is wrong with a request is told as one line, marked as an error."""
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    tools = [Tool(**each) for each in schemas(sessions)]

    async def list_tools(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(_: Any, asked: Any) -> CallToolResult:
        try:
            answer = await asyncio.to_thread(sessions.call, asked.name, asked.arguments or {})
        except (BadRequestError, InfrastructureError, OSError) as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        text = TextContent(text=json.dumps(answer, ensure_ascii=False))
        return CallToolResult(content=[text], structured_content=answer)

    return Server("pwagents", on_list_tools=list_tools, on_call_tool=call_tool)


def make_app(sessions: Sessions) -> "Starlette":
    """The server at ``/mcp`` as an ASGI application, for requests from this machine alone."""
    return make_server(sessions).streamable_http_app(json_response=True, stateless_http=True)


def schemas(sessions: Sessions) -> list[dict[str, Any]]:
    """All tools in the form of the protocol."""
    from transformers.utils import get_json_schema

    verbs = [get_json_schema(getattr(sessions, name).raw_function)["function"] for name in VERBS]
    functions = [tool["function"] for tool in sessions.task_set.tools]
    made = []
    for each in (*verbs, *functions):
        schema = each["parameters"]
        if each in functions:
            properties, required = {"session": _SESSION, **schema["properties"]}, schema.get("required", [])
            schema = {**schema, "properties": properties, "required": ["session", *required]}
        made.append({"name": each["name"], "description": each["description"], "input_schema": schema})
    return made
