"""The shop as a verifiers environment, installed apart: verifiers' pins and ours exclude each other.

    make serve PRESET=smoke                                # in pwagents' environment
    pip install ./lib/pwagents-shop                        # in one of its own
    vf-eval pwagents_shop --env.agent.harness.id null      # there

It needs nothing of pwagents: tasks, tools and rewards come from the server.
"""

import json
import re
import urllib.request
from typing import Any

import verifiers.v1 as vf

PROMPT = """\
Begin with the tool reset, task {task!r}, once. It tells you what to do, and the session that every later \
call names."""
_SESSION = re.compile(r'"session": "([\w-]+)"')


def ask(config: "ShopConfig", path: str, method: str = "GET") -> Any:
    """Ask the server what is not for the model: the tasks, or the reward of a session."""
    url = config.tools.url.removesuffix("/mcp") + path
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as reply:
        return json.load(reply)


class ShopTools(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = None


class ShopConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig(url="http://127.0.0.1:8010/mcp")


class ShopTask(vf.Task[vf.TaskData, vf.State, ShopConfig]):
    @classmethod
    def toolsets(cls, config: ShopConfig) -> list[vf.Toolset]:
        return [ShopTools(config.tools)]

    @vf.reward
    async def result_accuracy(self, trace: vf.Trace) -> float:
        """The reward of the session; 0 where the model began none, or more than one to try things out in."""
        texts = [str(node.message.content) for node in trace.nodes if node.message.role == "tool"]
        sessions = {session for text in texts for session in _SESSION.findall(text)}
        return ask(self.config, f"/reward/{sessions.pop()}", "POST")["reward"] if len(sessions) == 1 else 0.0


class ShopTasksetConfig(vf.TasksetConfig):
    task: ShopConfig = ShopConfig()


class ShopTaskset(vf.Taskset[ShopTask, ShopTasksetConfig]):
    def load(self) -> list[ShopTask]:
        config = self.config.task
        rows = [vf.TaskData(name=name, prompt=PROMPT.format(task=name)) for name in ask(config, "/tasks")]
        return [ShopTask(row, config) for row in rows]


__all__ = ["ShopTaskset"]
