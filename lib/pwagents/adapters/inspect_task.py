"""The shop as a task: ``inspect eval pwagents/shop -T preset=smoke -T tasks=20 --model openai/NAME``."""

import asyncio

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ChatMessageUser, get_model
from inspect_ai.scorer import Score, mean, scorer, stderr
from inspect_ai.solver import solver
from inspect_ai.tool import ToolInfo

from pwagents.adapters import Session, TaskSet, load_tasks


@task
def shop(preset: str = "smoke", track: str = "multi_turn", tasks: int = 20) -> Task:
    return shop_task(load_tasks(preset, track, tasks=tasks))


def shop_task(tasks: TaskSet) -> Task:
    """The tasks as samples, in their order."""
    samples = [
        Sample(Session(tasks).reset(task_id), id=task_id, metadata={"user": each.user_id})
        for task_id, each in tasks.tasks.items()
    ]
    return Task(dataset=samples, solver=play(tasks), scorer=result_accuracy())


@solver
def play(tasks: TaskSet):
    """The model calls functions until the episode ends; what it says without a call is said to the user."""
    tools = [ToolInfo(**tool["function"]) for tool in tasks.tools]

    async def solve(state, generate):
        session = Session(tasks)
        session.reset(state.sample_id)
        while not session.done:
            state.output = await get_model().generate(state.messages, tools)
            message = state.output.message
            state.messages.append(message)
            for call in message.tool_calls or ():
                answer = await asyncio.to_thread(session.step, call.function, call.arguments)
                ids = {"tool_call_id": call.id, "function": call.function}
                state.messages.append(ChatMessageTool(content=answer.text, **ids))
            if not message.tool_calls:
                answer = await asyncio.to_thread(session.step, "respond", {"content": message.text})
                state.messages.append(ChatMessageUser(content=answer.text))
        state.metadata["reward"] = session.finish()
        return state

    return solve


@scorer(metrics=[mean(), stderr(cluster="user")])
def result_accuracy():
    """The reward of the episode: the result accuracy of its last attempt; errors clustered by user."""

    async def score(state, target):
        return Score(value=state.metadata["reward"])

    return score
