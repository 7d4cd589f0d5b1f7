"""What a conversation with a model consists of: remembered behaviors, the task, and each past step.

Messages are in OpenAI's format. Forms of behaviors have the placeholders of PersonalWAB's published prompts.
What products and reviews say is fenced (:mod:`pwagents.llm.fence`), so that a model can distinguish it from
instructions.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from pwagents.agents.memory import Entry
from pwagents.llm.chat import Message, assistant
from pwagents.llm.fence import fence
from pwagents.llm.prompts import fill
from pwagents.schema import Product, Step
from pwagents.shop.environment import BeliefState, full_text

HISTORY = """\
Purchase <NUM>
  Title: <TITLE>
  Id: <PARENT_ASIN>
  Category: <MAIN_CATEGORY>
  Price: <PRICE>
  Store: <STORE>
  Average rating: <AVERAGE_RATING> (<RATING_NUMBER> ratings)
  Features: <FEATURES>
  Description: <DESCRIPTION>
  Details: <DETAILS>
  The user's rating: <RATING>
  The user's review: <TEXT>
  Time: <TIMESTAMP>
"""
# Task-specific memory (PUMA, 5.1): a form for the fields that each function keeps.
TASK_SPECIFIC = {
    "search_product_by_query": "<TITLE> (category: <MAIN_CATEGORY>, price: <PRICE>, store: <STORE>)\n",
    "get_recommendations_by_history": "<TITLE> (category: <MAIN_CATEGORY>, id: <ASIN>)\n",
    "add_product_review": "<RATING> stars: <TEXT>\n",
}

_FIELDS = {  # placeholder -> field of an entry; published forms have two placeholders for the id
    "<TITLE>": "title",
    "<PARENT_ASIN>": "parent_asin",
    "<ASIN>": "parent_asin",
    "<MAIN_CATEGORY>": "category",
    "<PRICE>": "price",
    "<STORE>": "store",
    "<RATING>": "rating",
    "<TEXT>": "text",
    "<TIMESTAMP>": "timestamp",
}


def write_entries(form: str, entries: Iterable[Entry], products: Mapping[str, Product]) -> str:
    """Return remembered behaviors, each in ``form``; what is not known is "None"."""
    texts = []
    for number, entry in enumerate(entries, start=1):
        values = {mark: str(entry[field]) for mark, field in _FIELDS.items() if field in entry}
        product = products.get(entry.get("parent_asin"))
        if product is not None:
            values |= {
                "<AVERAGE_RATING>": str(product.average_rating),
                "<RATING_NUMBER>": str(product.rating_number),
                "<FEATURES>": " ".join(product.features),
                "<DESCRIPTION>": " ".join(product.description),
                "<DETAILS>": json.dumps(product.flat_details, ensure_ascii=False),
            }
        texts.append(fill(form, {"<NUM>": str(number), **values}).strip("\n"))
    return "\n".join(texts)


def user(content: str) -> Message:
    """Return a message of the user's."""
    return {"role": "user", "content": content}


def task_text(state: BeliefState) -> str:
    """Return the first observation, the product in it (if any) fenced."""
    if state.product is None:
        return state.observation
    product = full_text(state.product)
    return state.observation.removesuffix(product) + fence(product)


def answer_text(step: Step) -> str:
    """Return what the environment answered; what it shows of products is fenced."""
    return fence(step.observation.text) if step.observation.products else step.observation.text


def call_messages(i: int, step: Step) -> list[Message]:
    """Return step ``i`` as a native tool call and its answer.

    Talk is shown as talk, also if ``respond`` was called as a function: the user's answer is the user's. A
    reply that held no call is shown as it was written, and what was wrong with it as the answer.
    """
    action, answer = step.action, answer_text(step)
    # No call was made, so none may be shown: providers refuse a tool's answer without one.
    if action.problem:
        return [assistant(action.thought or "(nothing)", action.extras), user(answer)]
    if step.is_talk:
        text = "\n".join(filter(None, [action.thought, action.arguments["content"]]))
        return [assistant(text, action.extras), user(answer)]
    # A model may have called a function that does not exist, by a name that providers refuse to be sent.
    name = re.sub(r"[^\w-]", "_", action.name, flags=re.ASCII)[:64] or "_"
    function = {"name": name, "arguments": json.dumps(action.arguments)}
    call = {"id": f"call{i:05}", "type": "function", "function": function}
    return [
        {**assistant(action.thought, action.extras), "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": answer},
    ]


def transcript(messages: Sequence[Message]) -> str:
    """Return messages as text, a line "role: ..." each, for a model that reads a conversation."""
    lines = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls", ())]
        parts = [message["content"], *(f"{call['name']}({call['arguments']})" for call in calls)]
        lines.append(f"{message['role']}: {' '.join(filter(None, parts))}")
    return "\n".join(lines)
