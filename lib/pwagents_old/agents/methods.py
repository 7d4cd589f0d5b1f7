"""The prompting methods by name: PersonalWAB's baselines (6, A.2) and those of Orion's Table 1.

An agent is made by ``METHODS["ReAct"](setup)``, with a :class:`pwagents_old.agents.chat_agent.Setup`. A method of
your own is a subclass of ``ChatAgent`` like those below: play it with
:func:`pwagents_old.evaluation.episodes.run_episodes`, or enter it here to play it beside the others. The longer
methods have modules of their own, ``react`` and ``interec``.
"""

from pwagents.llm.chat import Message
from pwagents.llm.fence import FENCE_NOTE
from pwagents.schema import FUNCTION_OF, Action
from pwagents.shop.environment import DETAILS_FUNCTION, BeliefState, Track
from pwagents_old.agents.chat_agent import ONLY_MULTI_TURN, RULES_MULTI, RULES_SINGLE, ChatAgent, Setup
from pwagents_old.agents.conversation import (
    MINI_HISTORY,
    TASK_SPECIFIC,
    Prompt,
    call_messages,
    task_text,
    user,
)
from pwagents_old.agents.interec import InteRecAgent
from pwagents_old.agents.react import ReAct, Reflection
from pwagents_old.agents.replies import problem_of


class NoMemory(ChatAgent):
    """Native function calling on the instruction alone; Orion's "Raw"."""


class RandomMemory(ChatAgent):
    """Function calling with behaviours drawn at random from the user's past (6)."""

    strategy = "random"


class LastMemory(ChatAgent):
    """Function calling with the user's latest behaviours (6)."""

    strategy = "last"


class RelevantMemory(ChatAgent):
    """Function calling with the behaviours closest to the instruction, by MiniLM cosine (6)."""

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

RECMIND_RULES = {
    "single_turn": Prompt("RECMIND_ST_PROMPT", RULES_SINGLE.text + _LOOK_UP),
    "multi_turn": Prompt("RECMIND_MT_PROPMT", RULES_MULTI.text + _LOOK_UP),  # misspelt in the code
}


class RecMind(ChatAgent):
    """Ratings and reviews of up to 400 behaviours in short form, and a look-up of products (A.2)."""

    rules = RECMIND_RULES
    strategy, length, entry_form, published_memory = "last", 400, MINI_HISTORY, "recmind"
    functions = (*ChatAgent.functions, DETAILS_FUNCTION)


# Of PUMA's first step.
IDENTIFY = """\
A customer of an online shop sends a request. Which function does it ask for?

- search_product_by_query: the customer describes a product to be found.
- get_recommendations_by_history: the customer wants suggestions that suit them and describes no product.
- add_product_review: the customer wants a review written of a product they bought.

Reply with the name of the function and nothing else."""

TWO_STEP_RULES = {
    "single_turn": Prompt("TS_AGENT_PROMPT", RULES_SINGLE.text),
    "multi_turn": Prompt("TS_AGENT_MT_PROMPT", RULES_MULTI.text),
}


class PumaPrompting:
    """PUMA without its fine-tuning (PersonalWAB, 5): a model names the function, then makes the call.

    Step 1 is done by ``setup.identify`` where there is one, else by the model, once an episode: its answer is
    noted in the first action. A reply that does not name exactly one function is a lost step.

    Departure from the published code: step 2 offers only the identified function, beside talk.

    Attributes:
        offered: what step 2 offers; the identified function alone where it is empty.
    """

    offered: tuple[str, ...] = ()

    rules = TWO_STEP_RULES

    def __init__(self, setup: Setup):
        self.setup = setup
        self.identify = setup.identify or getattr(setup.model, "identify", None)
        self.step_two = {
            function: ParameterAgent(setup, function, self.offered or (function,))
            for function in FUNCTION_OF.values()
        }

    def _function(self, state: BeliefState) -> str:
        """The function that is known by ``identify`` or the note of an earlier step; else empty."""
        noted = [step.action.notes["function"] for step in state.session if "function" in step.action.notes]
        return self.identify(state.instruction) if self.identify else "".join(noted[:1])

    def messages(self, state: BeliefState) -> list[Message]:
        """Tell step 2's conversation; nothing as long as no function is known."""
        function = self._function(state)
        return self.step_two[function].messages(state) if function else []

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


class ParameterAgent(ChatAgent):
    """Step 2: the parameters of one function, from the fields of memory that matter to it."""

    rules = TWO_STEP_RULES
    strategy = "task_specific"

    def __init__(self, setup: Setup, function: str, functions: tuple[str, ...]):
        self.function, self.functions = function, functions
        super().__init__(setup)
        self.advice = f"The function that this request asks for is {function}."
        if self.memory.strategy == "task_specific":
            self.entry_form = TASK_SPECIFIC[function]


class PumaByFile(PumaPrompting):
    """PUMA (gpt-4o) of Tables 3 and 4: the function comes from the fine-tuned model's answers.

    All functions are offered, as in the published code. Where these answers name no function, the policy is
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
# Each by the name that records, tables and figures give it. The papers' own rows keep the papers' names
# (pwagents.results.papers).
METHODS = {
    # PersonalWAB, Tables 3 and 4
    "No memory": NoMemory,
    "Random memory": RandomMemory,
    "Last memory": LastMemory,
    "Relevant memory": RelevantMemory,
    "ReAct": ReAct,
    "Reflection": Reflection,
    "RecMind": RecMind,
    "InteRecAgent": InteRecAgent,
    "PUMA (prompted)": PumaPrompting,
    # Orion, Table 1, which also has ReAct, PUMA and, as "Raw", the method without memory
    "Chain of thought": ChainOfThought,
    "ChatShop": ChatShop,
}
# With PumaByFile, all that a track may play: single-turn PersonalWAB's Table 3, multi-turn its Table 4 and
# Orion's Table 1, in their order.
AGENTS = METHODS | {PUMA_BY_FILE: PumaByFile}
# Our names of the methods in PersonalWAB's Tables 3 and 4.
PERSONALWAB = (
    *("No memory", "Random memory", "Last memory", "Relevant memory", "ReAct"),
    *("Reflection", "RecMind", "InteRecAgent", "PUMA (gpt-4o)", "PUMA (prompted)"),
)
TRACKS: dict[Track, tuple[str, ...]] = {
    "single_turn": tuple(name for name in PERSONALWAB if "single_turn" in AGENTS[name].rules),
    "multi_turn": tuple(dict.fromkeys([*PERSONALWAB, *METHODS])),
}


def looks_up(method: str) -> bool:
    """Whether a method offers the look-up of a product's details."""
    return DETAILS_FUNCTION in getattr(AGENTS[method], "functions", ())
