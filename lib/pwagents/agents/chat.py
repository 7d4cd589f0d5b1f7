"""The part that all prompting methods share: belief state -> messages -> the model's reply -> action.

A method is a subclass of :class:`ChatAgent` that changes what it has to: its prompts, its memory, the
functions it may call (:mod:`pwagents.agents.methods`). An agent keeps nothing between steps, so one serves
all episodes and threads; what it must know again later it puts into the notes of its action, which are stored
with the step and reach no model by themselves.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from pwagents.agents.memory import Entry, Memory, Strategy
from pwagents.agents.offline import OfflinePolicy
from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Message, Reply, Request, Tool
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.schema import FUNCTION_OF, Action, ProblemKind, Product, Step
from pwagents.shop.environment import MAX_STEPS, BeliefState, Track, full_text, tool_schemas

MEMORY_LENGTH: dict[Track, int] = {"single_turn": 50, "multi_turn": 20}  # behaviors (PersonalWAB, A.3)


@dataclass(frozen=True)
class Setup:
    """What every method is made from.

    Args:
        model: the language model, or the offline policy in its place.
        embedder: for memory strategies that compare texts.
        length: of the memory, in place of the method's own.
        sampling: of the agent's calls. Temperature 0 (PersonalWAB).
        seed: of the random memory; also which of a model's replies to the same request is taken.
    """

    model: ChatModel | OfflinePolicy
    products: Mapping[str, Product]
    track: Track = "multi_turn"
    embedder: Embedder | None = None
    length: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=partial(dict, temperature=0.0))
    seed: int = 0

    def reply(self, messages: Sequence[Message], tools: tuple[Tool, ...] = ()) -> Reply:
        """Return the language model's reply."""
        request = Request(
            messages=tuple(messages), tools=tools, sampling=dict(self.sampling), sample=self.seed
        )
        return self.model.reply(request)


RULES_SINGLE = """\
You are the personal assistant of a customer of an online shop. The customer asks for one of three things: to
find a product they describe (search), to suggest products that suit them (recommendation), or to write a
review of a product they bought. Each has a function of its own.

Call the right function, once, with the best arguments you can think of. You cannot ask anything back, and the
task ends with your call. A search or a recommendation is the better the higher the product that the customer
has in mind stands in its results; a review, the closer it comes to what the customer would have written."""
RULES_MULTI = """\
You are the personal assistant of a customer of an online shop. The customer asks for one of three things: to
find a product they describe (search), to suggest products that suit them (recommendation), or to write a
review of a product they bought. Each has a function of its own.

At each step, either call one function or say something to the customer, never both. You may ask for what you
need to know, look at results and try again with better arguments, <NUM> steps at most; fewer are better. A
search or a recommendation is the better the higher the product that the customer has in mind stands in its
results; a review, the closer it comes to what the customer would have written. Use only what you were told or
shown. Once the customer is content, or you cannot do better, call stop.""".replace("<NUM>", str(MAX_STEPS))
RULES: Mapping[Track, str] = {"single_turn": RULES_SINGLE, "multi_turn": RULES_MULTI}

HISTORY = """\
Purchase {number}
  Title: {title}
  Id: {parent_asin}
  Category: {category}
  Price: {price}
  Store: {store}
  Average rating: {average_rating} ({rating_number} ratings)
  Features: {features}
  Description: {description}
  Details: {details}
  The user's rating: {rating}
  The user's review: {text}
  Time: {timestamp}
"""
MEMORY_HEADINGS: dict[Strategy, str] = {
    "random": "Some of what this customer bought and wrote before:",
    "last": "What this customer bought and wrote before, latest first:",
    "relevant": "What this customer bought and wrote before, closest to the request first:",
    "task_specific": "What this customer's past says on this request:",
}


class ChatAgent:
    """A language model that calls functions, with the past behaviors that a memory recalls.

    Attributes:
        rules: by the tracks in which the method runs.
        advice: what the method tells the model besides the rules.
        strategy, length: of the memory, in behaviors; None for as many as the track allows.
        entry_form: how a remembered behavior is written.
        functions: what the model may call, beside talk.
        function: the one at hand, if the method knows it.
    """

    rules: Mapping[Track, str] = RULES
    advice = ""
    strategy: Strategy = "none"
    length: int | None = None
    entry_form = HISTORY
    functions: tuple[str, ...] = tuple(FUNCTION_OF.values())
    function = ""

    def __init__(self, setup: Setup):
        if setup.track not in self.rules:
            raise ValueError(f"{type(self).__name__} does not run in the {setup.track} track")
        # The setup's length counts before the method's own, which counts before the track's; 0 is one, too.
        lengths = (setup.length, self.length, MEMORY_LENGTH[setup.track])
        length = next(length for length in lengths if length is not None)
        self.setup, self.offline = setup, isinstance(setup.model, OfflinePolicy)
        self.memory = Memory(self.strategy, setup.products, setup.embedder, length, setup.seed)
        self.allowed = self.functions + (("respond", "stop") if setup.track == "multi_turn" else ())

    def __call__(self, state: BeliefState) -> Action:
        if self.offline:
            return self.setup.model.act(state, self.memory.recall(state, self.function), self.allowed)
        return self.ask(self.messages(state))

    def ask(self, messages: list[Message]) -> Action:
        """Return the model's action after ``messages``."""
        return read_call(self.setup.reply(messages, self.tools))

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """The functions as the model is offered them, in OpenAI's format."""
        return tuple(tool_schemas(self.allowed))

    def messages(self, state: BeliefState) -> list[Message]:
        """Return the conversation so far, in OpenAI's format: rules and memory, the task, and each step."""
        # The beginning is the same at every step: providers charge less for a known one.
        memory = self.tell_memory(self.memory.recall(state, self.function))
        system = "\n\n".join(filter(None, [self.rules[self.setup.track], self.advice, FENCE_NOTE, memory]))
        past = [message for i, step in enumerate(state.session) for message in self.step_messages(i, step)]
        return [{"role": "system", "content": system}, user(task_text(state)), *past]

    def tell_memory(self, entries: list[Entry]) -> str:
        """Return what the memory recalls, below a heading; nothing if it recalls nothing."""
        if not entries:
            return ""
        text = write_entries(self.entry_form, entries, self.setup.products)
        return f"{MEMORY_HEADINGS[self.strategy]}\n{fence(text)}"

    def step_messages(self, i: int, step: Step) -> list[Message]:
        """Return step ``i`` and its answer."""
        return call_messages(i, step)


def write_entries(form: str, entries: Iterable[Entry], products: Mapping[str, Product]) -> str:
    """Return remembered behaviors, each in ``form``; what is not known is "None"."""
    texts = []
    for number, entry in enumerate(entries, start=1):
        product = products.get(entry.get("parent_asin"))
        page = product.model_dump() if product else {}
        page |= {name: " ".join(page.get(name, ())) for name in ("features", "description")}
        page["details"] = json.dumps(page.get("details", {}), ensure_ascii=False)
        texts.append(form.format_map({**page, **entry, "number": number}).strip("\n"))
    return "\n".join(texts)


def user(content: str) -> Message:
    """Return a message of the user's."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    """Return a message of the model's own."""
    return {"role": "assistant", "content": content}


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
        return [assistant(action.thought or "(nothing)"), user(answer)]
    if step.is_talk:
        text = "\n".join(filter(None, [action.thought, action.arguments["content"]]))
        return [assistant(text), user(answer)]
    # A model may have called a function that does not exist, by a name that providers refuse to be sent.
    name = re.sub(r"[^\w-]", "_", action.name, flags=re.ASCII)[:64] or "_"
    function = {"name": name, "arguments": json.dumps(action.arguments)}
    call = {"id": f"call{i:05}", "type": "function", "function": function}
    return [
        {**assistant(action.thought), "tool_calls": [call]},
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


# From what a model says to the action it means. Whether the function that is called exists, and whether its
# arguments fit, is for the environment to judge.
MOST_BRACKETS = 100  # in a call's arguments: what is nested deeper than some 250 cannot be stored


def read_call(reply: Reply) -> Action:
    """Return the action of a reply: its first call, else what it says.

    As in the code published with PersonalWAB only the first call counts, and a reply without a call is said
    to the user.
    """
    if reply.tool_calls:
        call = reply.tool_calls[0]
        written = f"{reply.text}\n{call.name}({call.arguments})".strip()
        arguments, mistake = parse_arguments(call.arguments)
        if reply.is_cut and not call.arguments.strip():
            mistake = "they are missing"
        if mistake:
            return problem_of(reply, written, "malformed_json", f"the arguments of {call.name}: {mistake}")
        return Action(name=call.name, arguments=arguments, thought=reply.text, usage=reply.usage)
    if not reply.text.strip() or reply.is_cut:
        return problem_of(reply, reply.text, "empty", "the reply is empty")
    return Action(name="respond", arguments={"content": reply.text}, usage=reply.usage)


def parse_arguments(text: str) -> tuple[dict[str, Any], str]:
    """Return the arguments that ``text`` holds as a JSON object, and what is wrong with it."""
    # Brackets are counted first: what is nested too deep would overflow the parser's stack.
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        return {}, f"more than {MOST_BRACKETS} opening brackets"
    try:
        arguments = json.loads(text, parse_constant=_refuse, parse_float=_finite) if text.strip() else {}
    except ValueError as error:
        return {}, f"no valid JSON ({error})"
    if arguments is None:  # "arguments": null, as local models write a call without any
        arguments = {}
    if not isinstance(arguments, dict):
        return {}, "they must be a JSON object"
    # UTF-8 and back: half a surrogate pair may stand in any key or value.
    whole = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")
    return json.loads(whole), ""


def _finite(number: str) -> float:
    return float(number) if math.isfinite(float(number)) else _refuse(number)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def problem_of(reply: Reply, written: str, kind: ProblemKind, message: str) -> Action:
    """Return the action of a reply that holds no call.

    Args:
        written: all that the model wrote, for the thought.
        kind, message: what is wrong. Of a reply at the token limit it is that, whatever else is wrong.
    """
    if reply.finish_reason == "length":
        kind, message = "cut_off", "the reply was cut off at the token limit before its call was complete"
    return Action(thought=written, problem=" ".join(message.split()), problem_kind=kind, usage=reply.usage)
