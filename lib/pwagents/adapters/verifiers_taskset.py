"""The shop as a verifiers taskset, in an environment of its own: their pins and ours exclude each other.

    make serve                                                        # here
    PYTHONPATH=lib/pwagents/adapters vf-eval verifiers_taskset ...    # there (pip install verifiers==0.4.0)

It needs this file alone: tasks, tools and rewards come from the server.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import verifiers.v1 as vf
from mcp.client.client import Client

PROMPT = """\
Begin with the tool reset, task {task!r}. It tells you what to do, and the session that every later call \
names. Leave the tools tasks, tools, step and reward alone."""
_SESSION = re.compile(r'"session": "([\w-]+)"')


async def ask(url: str, tool: str, **arguments: str) -> dict:
    async with Client(url) as client:
        return (await client.call_tool(tool, arguments)).structured_content


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
        """The reward of the first session that the model began; 0 where it began none."""
        told = [str(node.message.content) for node in trace.nodes if node.message.role == "tool"]
        session = next(filter(None, map(_SESSION.search, told)), None)
        return (await ask(self.config.tools.url, "reward", session=session[1]))["reward"] if session else 0.0


class ShopTasksetConfig(vf.TasksetConfig):
    task: ShopConfig = ShopConfig()


class ShopTaskset(vf.Taskset[ShopTask, ShopTasksetConfig]):
    def load(self) -> list[ShopTask]:
        with ThreadPoolExecutor(1) as thread:  # verifiers may have an event loop running in this one
            listed = thread.submit(asyncio.run, ask(self.config.task.tools.url, "tasks")).result()
        rows = [vf.TaskData(name=name, prompt=PROMPT.format(task=name)) for name in listed["tasks"]]
        return [ShopTask(row, self.config.task) for row in rows]


__all__ = ["ShopTaskset"]
