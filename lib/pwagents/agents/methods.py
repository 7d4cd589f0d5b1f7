"""The prompting methods by name: PersonalWAB's baselines (6, A.2) and those of Orion's Table 1.

An agent is made by ``METHODS["ReAct"](setup)``. A method of your own is a subclass of ``ChatAgent`` like
those below.
"""

import json

from pwagents.agents import published
from pwagents.agents.chat import ONLY_MULTI_TURN, RULES, ChatAgent, Setup
from pwagents.agents.interec import InteRecAgent
from pwagents.agents.messages import (
    TASK_SPECIFIC,
    answer_text,
    assistant,
    call_messages,
    task_text,
    transcript,
    user,
)
from pwagents.agents.offline import CODE as OFFLINE
from pwagents.agents.replies import problem_of, read_published_react, read_react
from pwagents.llm.chat import Message
from pwagents.llm.fence import FENCE_NOTE
from pwagents.llm.prompts import fill
from pwagents.schema import FUNCTION_OF, Action, Step
from pwagents.shop.environment import DETAILS_FUNCTION, BeliefState, Track
from pwagents.users.llm import CODE as USER

# The modules that decide an episode of a prompting method, whoever plays the user.
_AGENTS = ("messages", "replies", "chat", "published", "methods", "play", "interec")
CODE = tuple(dict.fromkeys((*OFFLINE, *USER, *(f"agents.{name}" for name in _AGENTS))))


class NoMemory(ChatAgent):
    """Native function calling on the instruction alone; Orion's "Raw"."""


class RandomMemory(ChatAgent):
    """Function calling with behaviors drawn at random from the user's past (6)."""

    strategy = "random"


class LastMemory(ChatAgent):
    """Function calling with the user's latest behaviors (6)."""

    strategy = "last"


class RelevantMemory(ChatAgent):
    """Function calling with the behaviors closest to the instruction, by MiniLM cosine (6)."""

    strategy = "relevant"


class ChainOfThought(ChatAgent):
    """Think aloud, then call. Orion names the method (5.1) and gives no memory or prompt."""

    advice = """\
Before each call think step by step, in plain text: what does the customer ask for, what is known about it,
what is missing, which function fits, and which arguments are best? Make the call in the same reply."""


class ChatShop(ChatAgent):
    """Asks before it acts, and knows nothing of the user's past (Orion, 5.1; Chen et al., 2024)."""

    rules = ONLY_MULTI_TURN
    advice = """\
The request leaves open much of what the customer wants. Before you act on it, ask the customer about what
would tell the products in question apart (brand, color, material, price, use), one short question at a time,
and about nothing that was answered already. Put every answer into your next call. Ask again when its results
still differ in something that matters, and stop asking when they do not."""


_LOOK_UP = f"""

With {DETAILS_FUNCTION} you can look at a product of the customer's past more closely before you act. A
look-up does not end the task."""


class RecMind(ChatAgent):
    """Ratings and reviews of up to 400 behaviors in short form, and a look-up of products (A.2)."""

    rules = {track: rules + _LOOK_UP for track, rules in RULES.items()}  # noqa: RUF012
    published_rules = published.RECMIND_RULES
    strategy, length = "last", 400
    entry_form = """\
Purchase <NUM>: <TITLE> (id <PARENT_ASIN>, <MAIN_CATEGORY>)
  The user's review: <RATING> stars. <TEXT>
  Time: <TIMESTAMP>
"""
    published_form, published_memory = "MINI_HISTORY_PROMPT", "recmind"
    functions = (*ChatAgent.functions, DETAILS_FUNCTION)


REACT = """\
Reply in this form and add nothing to it:

Thought:
your reasoning, in one line
Action:
the name of one of the functions
Arguments:
its arguments as one JSON object

For example, with a function that tells the time in a city:

Thought:
The customer wants to know the time in Oslo, and I can look it up.
Action:
tell_time
Arguments:
{"city": "Oslo"}

Make no values up, and choose the function with care: the wrong one is worth nothing whatever its results."""


class ReAct(ChatAgent):
    """A thought, an action and its arguments in text; with the latest behaviors (A.2)."""

    strategy = "last"
    in_text = True

    @property
    def advice(self) -> str:
        return f"Functions:\n{json.dumps(self.tools)}\n\n{REACT}"

    def step_messages(self, i: int, step: Step) -> list[Message]:
        action, answer = step.action, answer_text(step)
        if action.problem:
            return super().step_messages(i, step)
        # What the user says is no result of a function.
        call = f"Action:\n{action.name}\nArguments:\n{json.dumps(action.arguments)}"
        answer = answer if step.is_talk else f"Result:\n{answer}"
        return [assistant(f"Thought:\n{action.thought}\n{call}", action.extras), user(answer)]

    def ask(self, messages: list[Message]) -> Action:
        read = read_published_react if self.setup.prompts else read_react
        return read(self.setup.reply(messages))


REFLECT = """\
An assistant of a shop works on a customer's request and has just heard back from the customer. Look at
what it did so far: did it choose the right function, and the right arguments? Say in a few sentences what the
answer shows to be wrong or missing, and what the assistant should do next.

Request: <TASK>

So far:
<ACTIONS>

The customer's answer: <FEEDBACK>"""


class Reflection(ReAct):
    """ReAct that takes each answer of the user for feedback and reflects on it, in a call of its own (A.2).

    In our words the reflection is put below the answer, not in a message of the assistant, which many models
    refuse as the last one; and it is asked for at temperature 0, as a user.
    """

    rules = ONLY_MULTI_TURN

    def __call__(self, state: BeliefState) -> Action:
        if self.offline or not state.session or not state.session[-1].is_talk:
            return super().__call__(state)
        messages, prompts = self.messages(state), self.setup.prompts
        write = published.transcript if prompts else transcript
        values = {
            "<TASK>": state.instruction,
            "<ACTIONS>": write(messages[1:-1]),
            "<FEEDBACK>": answer_text(state.session[-1]),
        }
        reflection = self.setup.answer(fill(prompts.get("REFLECTION_INST", REFLECT), values))
        # It is shown after the answer in this call, and by its note in all later ones.
        *earlier, last = messages
        shown = [last, assistant(reflection.text, reflection.extras)]
        shown = shown if prompts else [_below(last, reflection.text)]
        action = self.ask([*earlier, *shown])
        notes = action.notes | {"reflection": reflection.text}
        notes |= {"reflection_extras": reflection.extras} if reflection.extras else {}
        return action.model_copy(update={"notes": notes, "usage": reflection.usage + action.usage})

    def messages(self, state: BeliefState) -> list[Message]:
        """Return the conversation, each reflection below the answer it is about."""
        messages = super().messages(state)
        if self.setup.prompts:
            return messages
        # Each step is two messages, and its reflection is a note of the step after it.
        for i, step in enumerate(state.session[1:]):
            messages[3 + 2 * i] = _below(messages[3 + 2 * i], step.action.notes.get("reflection", ""))
        return messages


def _below(answer: Message, reflection: str) -> Message:
    """Return the answer with a reflection (if any) below it."""
    text = f"\n\nYour reflection on this answer:\n{reflection}" if reflection else ""
    return answer | {"content": answer["content"] + text}


# Of PUMA's first step.
IDENTIFY = """\
A customer of an online shop sends a request. Which function does it ask for?

- search_product_by_query: the customer describes a product to be found.
- get_recommendations_by_history: the customer wants suggestions that suit them and describes no product.
- add_product_review: the customer wants a review written of a product they bought.

Reply with the name of the function and nothing else."""


class PumaPrompting:
    """PUMA without its fine-tuning (PersonalWAB, 5): a model names the function, then makes the call.

    Step 1 is done by ``setup.identify`` if there is one, else by the model, once an episode: its answer is
    noted in the first action. A reply that does not name exactly one function is a lost step.

    Departure from the published code: step 2 offers only the identified function, besides talk.

    Attributes:
        offered: what step 2 offers; the identified function alone if it is empty.
    """

    rules = RULES
    offered: tuple[str, ...] = ()

    def __init__(self, setup: Setup):
        self.setup = setup
        self.identify = setup.identify or getattr(setup.model, "identify", None)
        self.step_two = {
            function: ParameterAgent(setup, function, self.offered or (function,))
            for function in FUNCTION_OF.values()
        }

    def __call__(self, state: BeliefState) -> Action:
        if function := self._function(state):
            return self.step_two[function](state)
        # Step 1, and step 2 in the same turn: naming a function is no call of the shop.
        earlier = [message for i, step in enumerate(state.session) for message in call_messages(i, step)]
        request = user(f"{IDENTIFY}\n\n{FENCE_NOTE}\n\nThe request: {task_text(state)}")
        reply = self.setup.reply([request, *earlier])
        named = [function for function in self.step_two if function in reply.text]
        if len(named) != 1:
            problem = f"name one of {', '.join(self.step_two)}"
            return problem_of(reply, reply.text, "unknown_function", problem)
        action = self.step_two[named[0]](state)
        notes = {"function": named[0]}
        return action.model_copy(update={"notes": notes, "usage": reply.usage + action.usage})

    def messages(self, state: BeliefState) -> list[Message]:
        """Return step 2's conversation; nothing as long as no function is known."""
        function = self._function(state)
        return self.step_two[function].messages(state) if function else []

    def _function(self, state: BeliefState) -> str:
        """Return the function that ``identify`` or the note of an earlier step names; else an empty text."""
        noted = [step.action.notes["function"] for step in state.session if "function" in step.action.notes]
        return self.identify(state.instruction) if self.identify else "".join(noted[:1])


class ParameterAgent(ChatAgent):
    """Step 2: the parameters of one function, from the fields of memory that matter to it."""

    published_rules = published.TWO_STEP_RULES
    strategy = "task_specific"

    def __init__(self, setup: Setup, function: str, functions: tuple[str, ...]):
        self.function, self.functions = function, functions
        self.advice = f"The function that this request asks for is {function}."
        self.entry_form, self.published_form = TASK_SPECIFIC[function], published.TASK_SPECIFIC[function]
        super().__init__(setup)


class PumaByFile(PumaPrompting):
    """PUMA (gpt-4o) of Tables 3 and 4: the function comes from the fine-tuned model's answers.

    All functions are offered, as in the published code. If these answers name no function, the policy is
    asked, as in :class:`PumaPrompting`; the published code ends there.

    Raises:
        ValueError: ``setup.identify`` does not know these answers.
    """

    offered = ChatAgent.functions

    def __init__(self, setup: Setup):
        if setup.identify is None:
            raise ValueError("PUMA (gpt-4o) needs the functions that the fine-tuned model answered")
        super().__init__(setup)


PUMA_BY_FILE = "PUMA (gpt-4o)"  # the name of PumaByFile, which is no method by its setup alone
# Each by the name that records, tables and figures give it, in the order of PersonalWAB's Tables 3 and 4.
_PERSONALWAB = {
    "No memory": NoMemory,
    "Random memory": RandomMemory,
    "Last memory": LastMemory,
    "Relevant memory": RelevantMemory,
    "ReAct": ReAct,
    "Reflection": Reflection,
    "RecMind": RecMind,
    "InteRecAgent": InteRecAgent,
    PUMA_BY_FILE: PumaByFile,
    "PUMA (prompted)": PumaPrompting,
}
# Orion's Table 1 also has ReAct, PUMA and, as "Raw", the method without memory.
AGENTS = _PERSONALWAB | {"Chain of thought": ChainOfThought, "ChatShop": ChatShop}
METHODS = {name: method for name, method in AGENTS.items() if name != PUMA_BY_FILE}
# What a track plays: single-turn PersonalWAB's Table 3, multi-turn its Table 4 and Orion's Table 1.
TRACKS: dict[Track, tuple[str, ...]] = {
    "single_turn": tuple(name for name, method in _PERSONALWAB.items() if "single_turn" in method.rules),
    "multi_turn": tuple(AGENTS),
}
