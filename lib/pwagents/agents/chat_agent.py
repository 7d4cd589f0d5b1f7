"""The part that all prompting methods share: belief state -> messages -> the model's reply -> action.

A method is a subclass that changes what it has to: its prompts, its memory, the functions it may call. See
``methods`` for short ones and ``react`` for one that speaks another format. An agent keeps nothing between
steps, so that one serves all episodes and threads; what it must know again later it notes in the thought of
its action.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pwagents.agents.conversation import HISTORY, Prompt, call_messages, fill, task_text, tell_entries, user
from pwagents.agents.memory import Entry, Memory, Strategy
from pwagents.agents.plain import OfflinePolicy
from pwagents.agents.replies import read_call
from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Message, Reply, Request, Tool
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.schema import Action, Product, Step, check_choice
from pwagents.web.environment import MAX_STEPS, Track
from pwagents.web.episode import BeliefState
from pwagents.web.functions import FUNCTION_OF, tool_schemas

MEMORY_LENGTH: dict[Track, int] = {"single_turn": 50, "multi_turn": 20}  # behaviours (PersonalWAB, A.3)


@dataclass(frozen=True)
class Setup:
    """What every method is made from.

    Args:
        model: the language model, or the offline policy in its place.
        products: the catalogue, which remembered behaviours are told from.
        track: "single_turn" or "multi_turn".
        embedder: for memory strategies that compare texts.
        strategy, length: of the memory, in place of the method's own.
        identify: instruction -> function, for PUMA's first step; without one the model is asked.
        prompts: published prompts by the name of their constant; where one is missing, ours is used.
        sampling: of the agent's calls. Temperature 0 (PersonalWAB); no limit on tokens but the provider's.
        seed: of the random memory; also which of a model's replies to the same request is taken, so that
            each seed asks (and pays) anew, at temperature 0 too.
    """

    model: ChatModel | OfflinePolicy
    products: Mapping[str, Product]
    track: Track = "multi_turn"
    embedder: Embedder | None = None
    strategy: Strategy | None = None
    length: int | None = None
    identify: Callable[[str], str] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    seed: int = 0

    def __post_init__(self):
        check_choice("track", self.track, Track)

    @property
    def offline(self) -> bool:
        return isinstance(self.model, OfflinePolicy)

    def reply(self, messages: Sequence[Message], tools: tuple[Tool, ...] = ()) -> Reply:
        """What the language model answers."""
        options = {"sampling": dict(self.sampling), "sample": self.seed}
        return self.model.reply(Request(messages=tuple(messages), tools=tools, **options))


RULES_SINGLE = Prompt(
    "SYS_PROMPT_SINGLE",
    """\
You are the personal assistant of a customer of an online shop. The customer asks for one of three things: to
find a product they describe (search), to suggest products that suit them (recommendation), or to write a
review of a product they bought. Each has a function of its own.

Call the right function, once, with the best arguments you can think of. You cannot ask anything back, and the
task ends with your call. A search or a recommendation is the better the higher the product that the customer
has in mind stands in its results; a review, the closer it comes to what the customer would have written.""",
)
RULES_MULTI = Prompt(
    "SYS_PROMPT_MULTI",
    """\
You are the personal assistant of a customer of an online shop. The customer asks for one of three things: to
find a product they describe (search), to suggest products that suit them (recommendation), or to write a
review of a product they bought. Each has a function of its own.

At each step, either call one function or say something to the customer, never both. You may ask for what you
need to know, look at results and try again with better arguments, <NUM> steps at most; fewer are better. A
search or a recommendation is the better the higher the product that the customer has in mind stands in its
results; a review, the closer it comes to what the customer would have written. Use only what you were told or
shown. Once the customer is content, or you cannot do better, call stop.""",
)


class Rules(NamedTuple):
    """A method's rules by track; None where it does not run."""

    multi_turn: Prompt
    single_turn: Prompt | None = None

    def of(self, track: Track) -> Prompt | None:
        return getattr(self, track)


class ChatAgent:
    """A language model that calls functions, with the past behaviours that a memory recalls."""

    rules = Rules(single_turn=RULES_SINGLE, multi_turn=RULES_MULTI)
    advice = ""
    strategy: Strategy = "none"
    length: int | None = None  # behaviours; None: as many as the track allows
    entry_form = HISTORY
    functions: tuple[str, ...] = tuple(FUNCTION_OF.values())
    function = ""  # the one at hand, where the method knows it

    def __init__(self, setup: Setup):
        if self.rules.of(setup.track) is None:
            raise ValueError(f"{type(self).__name__} does not run in the {setup.track} track")
        strategy = setup.strategy or self.strategy
        if strategy == "task_specific" and not self.function:
            raise ValueError(f"{type(self).__name__} does not know the function that its memory would serve")
        self.setup = setup
        self.memory = Memory(
            strategy,
            setup.products,
            setup.embedder,
            length=next(n for n in (setup.length, self.length, MEMORY_LENGTH[setup.track]) if n is not None),
            seed=setup.seed,
        )
        self.allowed = self.functions + (("respond", "stop") if setup.track == "multi_turn" else ())

    def __call__(self, state: BeliefState) -> Action:
        if self.setup.offline:
            return self.setup.model.act(state, self.recall(state), self.allowed)
        return self.ask(self.messages(state))

    def ask(self, messages: list[Message]) -> Action:
        """The model's action after ``messages``."""
        return read_call(self.setup.reply(messages, tools_of(self.allowed)))

    def messages(self, state: BeliefState) -> list[Message]:
        """The conversation so far, in OpenAI's format: rules and memory, the task, and each step."""
        past = [message for i, step in enumerate(state.session) for message in self.tell_step(i, step)]
        return [{"role": "system", "content": self.system(state)}, user(task_text(state)), *past]

    def system(self, state: BeliefState) -> str:
        """Rules, the method's advice, what the fences mean, and what the memory recalls."""
        rules = fill(self.rules.of(self.setup.track).among(self.setup.prompts), {"<NUM>": str(MAX_STEPS)})
        return "\n\n".join(filter(None, [rules.strip(), self.how(), FENCE_NOTE, self.tell_memory(state)]))

    def how(self) -> str:
        """What the method says besides the rules."""
        return self.advice

    def recall(self, state: BeliefState) -> list[Entry]:
        """What the memory recalls."""
        return self.memory.recall(state, self.function)

    def tell_memory(self, state: BeliefState) -> str:
        entries = self.recall(state)
        if not entries:
            return ""
        told = tell_entries(self.entry_form.among(self.setup.prompts), entries, self.setup.products)
        return f"{MEMORY_HEADINGS[self.memory.strategy]}\n{fence(told)}"

    def tell_step(self, i: int, step: Step) -> list[Message]:
        return call_messages(i, step)


MEMORY_HEADINGS: dict[Strategy, str] = {
    "random": "Some of what this customer bought and wrote before:",
    "last": "What this customer bought and wrote before, latest first:",
    "relevant": "What this customer bought and wrote before, closest to the request first:",
    "task_specific": "What this customer's past says on this request:",
}


@cache
def tools_of(functions: tuple[str, ...]) -> tuple[Tool, ...]:
    """The functions as OpenAI tools, made once."""
    return tuple(tool_schemas(functions))
