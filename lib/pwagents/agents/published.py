"""The messages of the agents published with PersonalWAB, in their words, order and form.

The words come from a clone (:mod:`pwagents.llm.prompts`) as ``setup.prompts``; a method contributes its
rules, memory and functions. Nothing is fenced. Methods that are not PersonalWAB's add their advice to its
rules.

Departures: a reply that holds no call is a lost step, and the model is shown why (the published agents ask
again, ten times, then give up); a call of an unknown function ends a single-turn task, too; a malformed call
has our error; calls have ids of ours.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pwagents.agents.memory import Entry, memory_entry
from pwagents.agents.messages import assistant, call_messages, user
from pwagents.llm.chat import Message, Tool
from pwagents.llm.prompts import FUNCTIONS, MARK, fill_marks, write_product
from pwagents.schema import FUNCTION_OF, Behavior, Step
from pwagents.shop.environment import DETAILS_FUNCTION, MAX_STEPS, BeliefState
from pwagents.shop.search import published_results, published_text

if TYPE_CHECKING:
    from pwagents.agents.chat import ChatAgent, Setup

# The names of our prompts' counterparts in the published code.
RULES = {"single_turn": "SYS_PROMPT_SINGLE", "multi_turn": "SYS_PROMPT_MULTI"}
RECMIND_RULES = {"single_turn": "RECMIND_ST_PROMPT", "multi_turn": "RECMIND_MT_PROPMT"}  # misspelled there
TWO_STEP_RULES = {"single_turn": "TS_AGENT_PROMPT", "multi_turn": "TS_AGENT_MT_PROMPT"}
TASK_SPECIFIC = dict(
    zip(FUNCTION_OF.values(), ("TS_SEARCH_PROMPT", "TS_REC_PROMPT", "TS_REV_PROMPT"), strict=True)
)
_SEARCH, _RECOMMEND, _REVIEW = FUNCTION_OF.values()
_TYPE_OF = {function: task_type for task_type, function in FUNCTION_OF.items()}


def tools(agent: "ChatAgent") -> tuple[Tool, ...]:
    """Return the functions that the method offers; ``stop`` is one in both tracks, ``respond`` in none."""
    offered = (*agent.functions, "stop")
    return tuple(agent.setup.prompts[f"{name}.__info__"] for name in FUNCTIONS if name in offered)


def messages(agent: "ChatAgent", state: BeliefState) -> list[Message]:
    """Return the conversation so far: rules and memory, the task, and each step."""
    prompts = agent.setup.prompts
    system = prompts[agent.published_rules[agent.setup.track]].replace("<NUM>", str(MAX_STEPS))
    if agent.in_text:
        system = fill_marks(prompts["react"], system, json.dumps(tools(agent)), prompts["REACT_INST"])
    elif agent.advice and not agent.function:
        system += f"\n{agent.advice}\n"
    system += agent.memory_text(agent.memory.recall(state, agent.function))

    # Only review tasks show a product, behind the second mark.
    task = MARK.join([*prompts["task"].split(MARK)[:2], ""])
    values = [state.user_id, state.instruction]
    if state.product is not None:
        task, values = prompts["task"], [*values, write_product(prompts["PRODUCT_PROMPT"], state.product)]
    written = [{"role": "system", "content": system}, user(fill_marks(task, *values))]
    for i, step in enumerate(state.session):
        written += _step(agent, i, step)
        later = state.session[i + 1].action.notes if i + 1 < len(state.session) else {}
        if "reflection" in later:
            written.append(assistant(later["reflection"], later.get("reflection_extras", "")))
    return written


def memory_text(agent: "ChatAgent", entries: Sequence[Entry], name: str, *lists: str) -> str:
    """Return what a memory recalls.

    Args:
        name: of the published memory.
        lists: what else it shows.
    """
    prompts, form = agent.setup.prompts, agent.published_form
    records = [_entry(agent.setup, form, entry, i) for i, entry in enumerate(entries)]
    if name == "taskspe":
        task = _TYPE_OF[agent.function], agent.function
        return fill_marks(prompts[name], *task, "|".join(records)) if records else ""
    return fill_marks(prompts[name], "\n".join(records), *lists)


def behavior_text(setup: "Setup", i: int, behavior: Behavior) -> str:
    """Return the i-th behavior of a history as it is compared with an instruction: the whole record."""
    return _entry(setup, "HISTORY_PROMPT", memory_entry(behavior, setup.products), i)


def first_history(setup: "Setup", entries: Sequence[Entry]) -> str:
    """Return a history, oldest first, for the first profile of InteRecAgent."""
    return "".join(_entry(setup, "FIRST_HISTORY", entry) for entry in entries)


def transcript(messages: Sequence[Message]) -> str:
    """Return messages as text, for a model that reads a conversation."""
    lines = []
    for message in messages:
        content = message["content"]
        for call in message.get("tool_calls", ()):
            content = "Function(arguments={arguments!r}, name={name!r})".format(**call["function"])
        lines.append(f"{message['role']}:{content}\n")
    return "".join(lines)


def _entry(setup: "Setup", form: str, entry: Entry, number: int = 0) -> str:
    said = {"RATING": str(entry["rating"]), "TEXT": entry["text"], "REVIEW_TEXT": entry["text"]}
    said["TIMESTAMP"] = str(entry["timestamp"])
    return write_product(setup.prompts[form], setup.products[entry["parent_asin"]], number, **said)


def _step(agent: "ChatAgent", i: int, step: Step) -> list[Message]:
    """Return a step as native call or as text, and its answer."""
    action, answer = step.action, _answer(agent.setup, step)
    if action.problem:
        return call_messages(i, step)
    if agent.in_text:
        answer = answer if step.is_talk else agent.setup.prompts["react answer"] + answer
        return [assistant(action.notes["reply"], action.extras), user(answer)]
    if step.is_talk:
        return [assistant(action.arguments["content"], action.extras), user(answer)]
    call, answered = call_messages(i, step)
    name = call["tool_calls"][0]["function"]["name"]
    return [call | {"content": action.thought or None}, answered | {"name": name, "content": answer}]


def _answer(setup: "Setup", step: Step) -> str:
    """Return what a function returned: Python's own text of a list or an object."""
    name, products = step.action.name, [setup.products[asin] for asin in step.observation.products]
    if step.error or step.observation.verbatim:
        return step.observation.text
    if name == _SEARCH:
        return published_results([published_text(product) for product in products])
    if name == _RECOMMEND:
        form = setup.prompts["RECOMMENDED"]
        return str([write_product(form, product, i) for i, product in enumerate(products)])
    if name == DETAILS_FUNCTION:
        return write_product(setup.prompts["DETAILS"], *products)
    if name == _REVIEW:
        return str({"review": step.action.arguments["review"]})
    return "###STOP###" if name == "stop" else step.observation.text
