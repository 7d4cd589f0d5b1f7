"""A recipe: browser-use visits the bench with a model that follows a plan; prints the scores as JSON.

    make web-bench                                             # in pwagents' environment
    pip install browser-use==0.13.14                           # in one of its own: its pins exclude ours
    python benchmarks/web_browser_use.py http://127.0.0.1:8011 TASK "$(cat plan.json)"

With ``llm=ChatOpenAI(model=...)`` of browser-use in place of :class:`PlanModel`, that model decides. The plan
is as in ``web_playwright.py``, whose way to the API this file shares.
"""

import asyncio
import json
import os
import re
import sys
from typing import Any

os.environ |= {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_SETUP_LOGGING": "false"}

from browser_use import Agent, Browser, Tools
from browser_use.llm.views import ChatInvokeCompletion
from web_playwright import BROWSER, address, ask, begin


class PlanModel:
    """A chat model whose replies are the steps of a plan; it finds buttons in what browser-use shows it."""

    model = name = model_name = provider = "plan"
    _verified_api_keys = True

    def __init__(self, plan: list[list[str]], start_url: str):
        self.steps, self.start_url = iter([["open", "start.test/"], *plan]), start_url

    async def ainvoke(self, messages: list[Any], output_format: Any, **_: Any) -> ChatInvokeCompletion:
        """Return the next step as browser-use's own actions; after the last one it is done."""
        verb, text = next(self.steps, ("answer", ""))
        if verb == "recall":
            action = {"recall": {"query": text}}
        elif verb == "open":
            action = {"navigate": {"url": address(text, self.start_url)}}
        elif verb == "press":
            action = {"click": {"index": find_button("\n".join(each.text for each in messages), text)}}
        else:
            action = {"done": {"text": text, "success": True}}
        reply = output_format.model_validate({"memory": f"{verb} {text}", "action": [action]})
        return ChatInvokeCompletion(completion=reply, usage=None)


def find_button(shown: str, name: str) -> int:
    """Return the number that browser-use gives the first button of a name: its label, or the text in it."""
    for number, attributes, text in re.findall(r"\[(\d+)\]<button([^>]*)/>\s*([^\n]*)", shown):
        if f"aria-label={name}" in attributes or ("aria-label" not in attributes and text.strip() == name):
            return int(number)
    raise ValueError(f"there is no button {name!r} in: {shown}")


async def main(bench: str, task_id: str, plan: list[list[str]]) -> dict:
    """Let the agent play; return scores, reasons and trajectory."""
    task, tools = begin(bench, task_id), Tools()

    @tools.action("Ask the user's browsing history a question.")
    async def recall(query: str) -> str:
        found = ask(f"{bench}/recall", task["token"], query=query)
        return json.dumps(found["records"])

    async def note(_: Any, output: Any, number: int) -> None:
        if number > 1 and "recall" not in (done := output.action[0].model_dump(exclude_none=True)):
            ask(f"{bench}/note", task["token"], action=json.dumps(done), reason=output.memory or "")

    options = {"headless": True, "chromium_sandbox": False, "enable_default_extensions": False}
    browser = Browser(executable_path=BROWSER, **options)
    model = PlanModel(plan, task["start_url"])
    options = {"use_vision": False, "flash_mode": True, "use_judge": False, "directly_open_url": False}
    agent = Agent(
        task["query"], llm=model, browser=browser, tools=tools, register_new_step_callback=note, **options
    )
    history = await agent.run(max_steps=len(plan) + 2)
    return ask(f"{bench}/finish", task["token"], answer=history.final_result() or "")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
