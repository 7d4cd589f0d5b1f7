"""The PUMA agent (PersonalWAB, 5): which function, then its parameters, each by a fine-tuned model.

Step 1 reads the instruction alone and names a function. Step 2 reads the instruction and the task-specific
memory of that function, and makes one call. Both are single-turn, as in the paper: what is not known cannot
be asked. All prompts of a set of tasks are known beforehand, so :meth:`PumaAgent.act` answers many at once.

Departures: the paper does not print its prompts, so the words are ours; a review's input also holds one line
of the product, which the environment tells with the task. :mod:`pwagents.agents.methods` is the same
method without fine-tuning, for models behind an endpoint.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from pwagents.agents.conversation import assistant, user
from pwagents.agents.memory import Entry, memory_entry
from pwagents.agents.replies import problem_of, read_turn
from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Message, Reply, Request, Tool, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.catalogue import section
from pwagents.profiles.global_micro import item_text
from pwagents.puma.recurring import recurring_word
from pwagents.schema import FUNCTION_OF, Action, Behavior, Product
from pwagents.web.environment import BeliefState
from pwagents.web.functions import tool_schemas

SEARCH, RECOMMEND, REVIEW = FUNCTION_OF["search"], FUNCTION_OF["recommend"], FUNCTION_OF["review"]

IDENTIFY_RULES = f"""\
A customer of an online shop sends a request. Name the function it asks for, and write nothing else:
{SEARCH} to find a product that they describe, {RECOMMEND} to suggest products that suit
them, {REVIEW} to write their review of a product."""

# Of step 2, by function.
PARAMETER_RULES = {
    SEARCH: f"""\
A customer of an online shop describes a product. Call {SEARCH} once, with the query that finds it.
Let what they bought before decide what they leave open; a word that recurs there stands at its end.

{FENCE_NOTE}""",
    RECOMMEND: f"""\
A customer of an online shop wants suggestions. Call {RECOMMEND} once. In the place of ids
write the numbers of those products among what they bought before that tell best what they want now, oldest
first.

{FENCE_NOTE}""",
    REVIEW: f"""\
A customer of an online shop wants a review of a product they bought. Call {REVIEW} once, with the text
as they would write it themselves, in the manner of their earlier reviews.

{FENCE_NOTE}""",
}
RECALLED = 50  # behaviours, at most, of which those are kept that fit ...
MOST_RECOMMENDED = 10  # ... and to recommend from
PAST = "Before:"
OFTEN = "Often:"
PRODUCT = "Product:"


class TaskMemory:
    """The memory bank and its task-specific retrieval (5.1, equation 2), cut to a number of tokens.

    A review is told the behaviours whose products are closest to the instruction (MiniLM cosine). A search or
    a recommendation is told one interest of the user's: what they bought of the section (the finest category
    that pages name) of the closest product. It selects, so that the model need not.

    Departures: the paper takes the closest behaviours for all three; they are of several interests, and what
    a user likes in one misleads in another. It cuts its memory to 256, 512 or 768 tokens and does not say
    how; here a line that does not fit is passed over, and shorter ones after it are kept. The published code
    tells recommendations latest first; the function takes them oldest first.

    Args:
        tokens: at most so many in the lines of all behaviours; 0 remembers nothing. The numbers of a
            recommendation's lines, and a search's last line, come on top.
        count: text -> its number of tokens.
    """

    def __init__(
        self, products: Mapping[str, Product], embedder: Embedder, tokens: int, count: Callable[[str], int]
    ):
        self.products, self.embedder = products, embedder
        self.tokens, self.count = tokens, cache(count)  # the same lines come again and again

    def prepare(self, states: Sequence[BeliefState]) -> None:
        """Embed instructions and products in one go, so that no :meth:`recall` has to wait for the model."""
        if self.tokens:
            bought = {b.parent_asin for state in states for b in state.history}
            texts = {item_text(self.products[asin]) for asin in bought}
            texts |= {state.instruction for state in states}
            self.embedder.encode(sorted(texts), show_progress=True)

    def recall(self, state: BeliefState, function: str) -> list[Entry]:
        """The remembered behaviours: for a review closest first; for a search latest first; for a
        recommendation each product once, oldest first."""
        if not self.tokens or not state.history:
            return []
        closest = self._closest_first(state)
        if function == REVIEW:
            return self._fitting(closest[:RECALLED], function)
        interest = section(self.products[closest[0].parent_asin])
        latest = [b for b in reversed(state.history) if section(self.products[b.parent_asin]) == interest]
        if function == SEARCH:
            return self._fitting(latest[:RECALLED], function)
        last_time = {b.parent_asin: b for b in reversed(latest)}
        once = [b for b in latest if b is last_time[b.parent_asin]]
        return self._fitting(once[:MOST_RECOMMENDED], function)[::-1]

    def _closest_first(self, state: BeliefState) -> list[Behavior]:
        history = state.history
        texts = [item_text(self.products[b.parent_asin]) for b in history]
        vectors = self.embedder.encode([state.instruction, *texts])
        cosines = np.round(vectors[1:] @ vectors[0], 6)  # rounded, so that batch sizes cannot decide a tie
        order = sorted(range(len(history)), key=lambda i: (-cosines[i], -i))  # ties: the later behaviour
        return [history[i] for i in order]

    def _fitting(self, behaviors: Sequence[Behavior], function: str) -> list[Entry]:
        """Those whose lines fit into the memory's tokens, in their order."""
        kept: list[Entry] = []
        room = self.tokens
        for entry in (memory_entry(behavior, self.products) for behavior in behaviors):
            size = self.count(entry_line(function, entry))
            if size <= room:
                kept.append(entry)
                room -= size
        return kept


def entry_line(function: str, entry: Entry) -> str:
    """A remembered behaviour in one line: the fields of :data:`pwagents.agents.memory.FIELDS_OF`, where the
    number of the line stands for an id."""
    if function == RECOMMEND:
        return f"{entry['title']} ({entry['category']})"
    if function == REVIEW:
        return f"{entry['rating']:g} stars: {entry['text']}"
    return _product_line(entry["title"], entry["category"], entry["price"], entry["store"])


def _product_line(title: str, category: str, price: float | None, store: str | None) -> str:
    priced = "no price" if price is None else f"${price:.2f}"
    return f"{title} ({', '.join(filter(None, [category, priced, store]))})"


def identify_messages(instruction: str) -> list[Message]:
    """The input of step 1."""
    return [{"role": "system", "content": IDENTIFY_RULES}, user(instruction)]


def parameter_messages(state: BeliefState, function: str, entries: Sequence[Entry]) -> list[Message]:
    """The input of step 2: the function's rules, the memory, the product of a review, the instruction.

    What is asked for stands last, next to the answer: a small model copies from near by best. The memory of
    a search ends with the word that recurs in it (a departure: the paper lets the model find it).
    """
    parts = []
    if entries:
        lines = [entry_line(function, entry) for entry in entries]
        if function == RECOMMEND:
            lines = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
        if function == SEARCH and (often := recurring_word(state.instruction, entries)):
            lines.append(f"{OFTEN} {often}")
        told = "\n".join(lines)
        parts.append(f"{PAST}\n{fence(told)}")
    if function == REVIEW and (product := state.product):
        line = _product_line(product.title, product.category, product.price, product.store)
        parts.append(f"{PRODUCT}\n{fence(line)}")
    parts.append(state.instruction)
    return [{"role": "system", "content": PARAMETER_RULES[function]}, user("\n\n".join(parts))]


def numbers_for_ids(arguments: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """Arguments as the model of step 2 says them: a product is called by the number of its line.

    An id of several tokens is hard to copy for a small model, and dear for a large one. One that is not
    remembered stays.
    """
    number_of = {entry["parent_asin"]: str(number) for number, entry in enumerate(entries, start=1)}
    return _renamed(arguments, number_of)


def ids_for_numbers(arguments: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """The reverse of :func:`numbers_for_ids`: as the function takes them. A number without a line stays.

    Numbers may be written as such, or as texts.
    """
    id_of = {str(number): entry["parent_asin"] for number, entry in enumerate(entries, start=1)}
    return _renamed(arguments, id_of)


def _renamed(arguments: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments with other names for products; what is no list stays as it is."""
    told = arguments.get("product_sequence")
    if not isinstance(told, list):
        return dict(arguments)
    return {**arguments, "product_sequence": [names.get(str(product), product) for product in told]}


def call_message(function: str, arguments: Mapping[str, Any]) -> Message:
    """What the model of step 2 should say, as text: not all chat templates can tell a call."""
    call = json.dumps({"name": function, "arguments": arguments}, ensure_ascii=False)
    return assistant(f"<tool_call>\n{call}\n</tool_call>")


def read_function(reply: Reply) -> str:
    """The function that a reply of step 1 names; empty where it names none or several."""
    written = "".join(reply.text.split())  # small tokenizers put spaces around underscores
    named = [function for function in FUNCTION_OF.values() if function in written]
    return named[0] if len(named) == 1 else ""


class PumaAgent:
    """Lets one model name the function and another one write its parameters.

    Args:
        identifier, writer: the models of the two steps; may be the same.
        memory: of step 2.
        max_tokens: of a call.
    """

    def __init__(self, identifier: ChatModel, writer: ChatModel, memory: TaskMemory, max_tokens: int = 128):
        self.identifier, self.writer, self.memory, self.max_tokens = identifier, writer, memory, max_tokens

    def __call__(self, state: BeliefState) -> Action:
        return self.act([state])[0]

    def act(self, states: Sequence[BeliefState]) -> list[Action]:
        """One call for each state, computed in batches. A reply that cannot be used is a step lost."""
        self.memory.prepare(states)
        named = self.identify(states)
        functions = [read_function(reply) for reply in named]
        told = [i for i, function in enumerate(functions) if function]
        recalled = {i: self.memory.recall(states[i], functions[i]) for i in told}
        requests = [self._request(states[i], functions[i], recalled[i]) for i in told]
        written = dict(zip(told, ask_all(self.writer, requests, "parameters"), strict=True))
        return [
            _action(reply, function, written.get(i), recalled.get(i, ()))
            for i, (reply, function) in enumerate(zip(named, functions, strict=True))
        ]

    def identify(self, states: Sequence[BeliefState]) -> list[Reply]:
        """Step 1: the replies that name a function."""
        sampling = {"temperature": 0.0, "max_tokens": 16}
        requests = [
            Request(messages=tuple(identify_messages(state.instruction)), sampling=sampling)
            for state in states
        ]
        return [reply or Reply() for reply in ask_all(self.identifier, requests, "functions")]

    def _request(self, state: BeliefState, function: str, entries: Sequence[Entry]) -> Request:
        """The request of step 2."""
        messages = parameter_messages(state, function, entries)
        sampling = {"temperature": 0.0, "max_tokens": self.max_tokens}
        return Request(messages=tuple(messages), tools=parameter_tools(function), sampling=sampling)


@cache
def parameter_tools(function: str) -> tuple[Tool, ...]:
    """The one function that step 2 may call, as OpenAI tools."""
    return tuple(tool_schemas((function,)))


def _action(named: Reply, function: str, written: Reply | None, entries: Sequence[Entry]) -> Action:
    if not function:
        return problem_of(
            named, named.text, "unknown_function", f"name one of {', '.join(FUNCTION_OF.values())}"
        )
    if written is None:
        return problem_of(named, "", "empty", "the model refused the request for parameters")
    action = read_turn(written)
    arguments = ids_for_numbers(action.arguments, entries)
    return action.model_copy(update={"arguments": arguments, "usage": named.usage + written.usage})
