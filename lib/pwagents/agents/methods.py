"""The prompting methods by name: PersonalWAB's baselines (6, A.2) and those of Orion's Table 1.

An agent is made by ``METHODS["react"](setup)``, with a :class:`pwagents.agents.chat_agent.Setup`. A method of
your own is a subclass of ``ChatAgent`` like those below: run it with
:func:`pwagents.evaluation.runner.run_episodes`, or enter it here to run it beside the others.
"""

from pwagents.agents.chat_agent import RULES_MULTI, RULES_SINGLE, ChatAgent, Rules
from pwagents.agents.interec import InteRecAgent
from pwagents.agents.prompting import MINI_HISTORY, Prompt
from pwagents.agents.puma_prompting import PumaPrompting
from pwagents.agents.react import ReAct, Reflection
from pwagents.web.functions import DETAILS_FUNCTION


class NoMemory(ChatAgent):
    """Native function calling on the instruction alone; Orion's "Raw"."""


class RandomMemory(ChatAgent):
    strategy = "random"


class LastMemory(ChatAgent):
    strategy = "last"


class RelevantMemory(ChatAgent):
    strategy = "relevant"


class ChainOfThought(ChatAgent):
    """Think aloud, then call. Orion names the method (5.1) and gives no memory or prompt."""

    advice = """\
Before each call think step by step, in plain text: what does the customer ask for, what is known about it,
what is missing, which function fits, and which arguments are best? Make the call in the same reply."""


class ChatShop(ChatAgent):
    """Asks before it acts, and knows nothing of the user's past (Orion, 5.1; Chen et al., 2024)."""

    rules = Rules(multi_turn=RULES_MULTI)
    advice = """\
The request leaves open much of what the customer wants. Before you act on it, ask the customer about what
would tell the products in question apart (brand, color, material, price, use), one short question at a time,
and about nothing that was answered already. Put every answer into your next call. Ask again when its results
still differ in something that matters, and stop asking when they do not."""


_LOOK_UP = f"""

With {DETAILS_FUNCTION} you can look at a product of the customer's past more closely before you act. A
look-up does not end the task."""


class RecMind(ChatAgent):
    """Ratings and reviews of up to 400 behaviours in short form, and a look-up of products (A.2)."""

    rules = Rules(
        single_turn=Prompt("RECMIND_ST_PROMPT", RULES_SINGLE.text + _LOOK_UP),
        multi_turn=Prompt("RECMIND_MT_PROPMT", RULES_MULTI.text + _LOOK_UP),  # sic
    )
    strategy, length, entry_form = "last", 400, MINI_HISTORY
    functions = (*ChatAgent.functions, DETAILS_FUNCTION)


METHODS = {
    # PersonalWAB, Tables 3 and 4
    "no_memory": NoMemory,
    "random_memory": RandomMemory,
    "last_memory": LastMemory,
    "relevant_memory": RelevantMemory,
    "react": ReAct,
    "reflection": Reflection,
    "recmind": RecMind,
    "interecagent": InteRecAgent,
    "puma_prompting": PumaPrompting,
    # Orion, Table 1, which also has ReAct and PUMA
    "raw": NoMemory,
    "cot": ChainOfThought,
    "chatshop": ChatShop,
}
