"""The part that all prompting methods share: belief state -> messages -> the model's reply -> action.

A method is a subclass of :class:`ChatAgent` that changes what it has to: its prompts, its memory, the
functions it may call (:mod:`pwagents.agents.methods`). An agent keeps nothing between steps, so one serves
all episodes and threads; what it must know again later it puts into the notes of its action, which are stored
with the step and reach no model by themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from pwagents.agents import published
from pwagents.agents.memory import Entry, Memory, Strategy
from pwagents.agents.messages import HISTORY, call_messages, task_text, user, write_entries
from pwagents.agents.offline import OfflinePolicy
from pwagents.agents.replies import read_call
from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Message, Reply, Request, Tool
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.prompts import Prompts
from pwagents.schema import FUNCTION_OF, Action, Product, Step
from pwagents.shop.environment import MAX_STEPS, BeliefState, Track, tool_schemas

MEMORY_LENGTH: dict[Track, int] = {"single_turn": 50, "multi_turn": 20}  # behaviors (PersonalWAB, A.3)


@dataclass(frozen=True)
class Setup:
    """What every method is made from.

    Args:
        model: the language model, or the offline policy in its place.
        embedder: for memory strategies that compare texts.
        length: of the memory, in place of the method's own.
        identify: instruction -> function, for PUMA's first step; without one the model is asked.
        prompts: the published ones (:func:`pwagents.llm.prompts.official_prompts`), with which all messages
            are those of the published agents (:mod:`pwagents.agents.published`); empty for ours.
        sampling: of the agent's calls. Temperature 0 (PersonalWAB); no limit on tokens but the provider's.
        seed: of the random memory; also which of a model's replies to the same request is taken, so that
            each seed asks (and pays) anew, at temperature 0 too.
    """

    model: ChatModel | OfflinePolicy
    products: Mapping[str, Product]
    track: Track = "multi_turn"
    embedder: Embedder | None = None
    length: int | None = None
    identify: Callable[[str], str] | None = None
    prompts: Prompts = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=partial(dict, temperature=0.0))
    seed: int = 0

    def reply(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...] = (),
        sampling: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Return the language model's reply; ``sampling`` in place of the setup's."""
        sampling = dict(self.sampling if sampling is None else sampling)
        request = Request(messages=tuple(messages), tools=tools, sampling=sampling, sample=self.seed)
        return self.model.reply(request)

    def answer(self, prompt: str, **sampling: Any) -> Reply:
        """Return the reply to one prompt that is no part of the episode's conversation.

        A published prompt is a message of the system, sent with this ``sampling``; ours is the user's, with
        the setup's sampling.
        """
        if self.prompts:
            return self.reply([{"role": "system", "content": prompt}], sampling=sampling)
        return self.reply([user(f"{prompt.strip()}\n\n{FENCE_NOTE}")])


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
ONLY_MULTI_TURN: Mapping[Track, str] = {"multi_turn": RULES_MULTI}

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
        published_rules, published_form, published_memory: the published counterparts' names; of the memory if
            it differs from that of the strategy.
        functions: what the model may call, besides talk.
        function: the one at hand, if the method knows it.
        in_text: whether calls are written as text, and no function is offered natively.
        offline: whether the offline policy takes the language model's place.

    Raises:
        ValueError: the method does not run in the track, or lacks the function that its memory would serve.
    """

    rules: Mapping[Track, str] = RULES
    advice = ""
    strategy: Strategy = "none"
    length: int | None = None
    entry_form = HISTORY
    published_rules: Mapping[Track, str] = published.RULES
    published_form = "HISTORY_PROMPT"
    published_memory = ""
    functions: tuple[str, ...] = tuple(FUNCTION_OF.values())
    function = ""
    in_text = False

    def __init__(self, setup: Setup):
        if setup.track not in self.rules:
            raise ValueError(f"{type(self).__name__} does not run in the {setup.track} track")
        if self.strategy == "task_specific" and not self.function:
            raise ValueError(f"{type(self).__name__} has no function to choose a task-specific memory for")
        # The setup's length counts before the method's own, which counts before the track's; 0 is one, too.
        lengths = (setup.length, self.length, MEMORY_LENGTH[setup.track])
        length = next(length for length in lengths if length is not None)
        text_of = partial(published.behavior_text, setup) if setup.prompts else None
        self.setup, self.offline = setup, isinstance(setup.model, OfflinePolicy)
        self.memory = Memory(self.strategy, setup.products, setup.embedder, length, setup.seed, text_of)
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
        return published.tools(self) if self.setup.prompts else tuple(tool_schemas(self.allowed))

    def messages(self, state: BeliefState) -> list[Message]:
        """Return the conversation so far, in OpenAI's format: rules and memory, the task, and each step."""
        if self.setup.prompts:
            return published.messages(self, state)
        # The beginning is the same at every step: providers charge less for a known one.
        memory = self.memory_text(self.memory.recall(state, self.function))
        system = "\n\n".join(filter(None, [self.rules[self.setup.track], self.advice, FENCE_NOTE, memory]))
        past = [message for i, step in enumerate(state.session) for message in self.step_messages(i, step)]
        return [{"role": "system", "content": system}, user(task_text(state)), *past]

    def memory_text(self, entries: list[Entry]) -> str:
        """Return what the memory recalls, below a heading; in our words nothing if it recalls nothing."""
        if self.setup.prompts and self.strategy != "none":
            name = self.published_memory or {"task_specific": "taskspe"}.get(self.strategy, self.strategy)
            return published.memory_text(self, entries, f"react {name}" if self.in_text else name)
        if not entries:
            return ""
        text = write_entries(self.entry_form, entries, self.setup.products)
        return f"{MEMORY_HEADINGS[self.strategy]}\n{fence(text)}"

    def step_messages(self, i: int, step: Step) -> list[Message]:
        """Return step ``i`` and its answer."""
        return call_messages(i, step)
