"""The prompting methods by name: PersonalWAB's baselines (6, A.2) and those of Orion's Table 1.

An agent is made by ``METHODS["ReAct"](setup)``. A method of your own is a subclass of ``ChatAgent`` like
those below.
"""

import json
import re
from dataclasses import replace
from typing import Any

from pwagents.agents.chat import (
    RULES,
    RULES_MULTI,
    ChatAgent,
    Setup,
    answer_text,
    assistant,
    call_messages,
    parse_arguments,
    problem_of,
    read_call,
    task_text,
    transcript,
    user,
    write_entries,
)
from pwagents.agents.memory import Entry, memory_entry
from pwagents.agents.offline import CODE as OFFLINE
from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import Message, Reply
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.schema import FUNCTION_OF, Action, Behavior, Step, Task, Trajectory, Usage
from pwagents.shop.environment import DETAILS_FUNCTION, BeliefState, Shop, run_episode
from pwagents.users.rules import CODE as USER

# The modules that decide an episode of a prompting method.
CODE = tuple(
    dict.fromkeys(
        (*OFFLINE, *USER, "agents.chat", "agents.methods", "llm.chat", "llm.fence", "llm.parts", "words")
    )
)
ONLY_MULTI_TURN = {"multi_turn": RULES_MULTI}


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


class RecMind(ChatAgent):
    """Ratings and reviews of up to 400 behaviors in short form, and a look-up of products (A.2)."""

    advice = f"""\
With {DETAILS_FUNCTION} you can look at a product of the customer's past more closely before you act. A
look-up does not end the task."""
    strategy, length = "last", 400
    entry_form = """\
Purchase {number}: {title} (id {parent_asin}, {category})
  The user's review: {rating} stars. {text}
  Time: {timestamp}
"""
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
_NOT_REACT = "the reply must be Thought:, Action: and Arguments:, in this order, each on a line of its own"
_REACT_FORM = re.compile(
    r"\A\s*(?:```\w*\s*)?Thought:(?P<thought>.*?)^Action:(?P<name>.*?)^Arguments:(?P<arguments>.*?)"
    r"(?:^(?:Thought|Action|Observation|Result|API output):.*)?\Z",
    re.DOTALL | re.MULTILINE,
)


class ReAct(ChatAgent):
    """A thought, an action and its arguments in text; with the latest behaviors (A.2)."""

    strategy = "last"

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
        return [assistant(f"Thought:\n{action.thought}\n{call}"), user(answer)]

    def ask(self, messages: list[Message]) -> Action:
        return read_react(self.setup.reply(messages))


def read_react(reply: Reply) -> Action:
    """Return the action of a reply in ReAct's form: Thought, Action, Arguments (A.2).

    What follows the first action is the model talking to itself and left out. The arguments of ``respond``
    may be plain text.
    """
    if reply.tool_calls and not reply.text.strip():
        return read_call(reply)  # a model that was trained on calls makes one all the same
    match = _REACT_FORM.match(reply.text)
    if not match:
        return problem_of(reply, reply.text, "malformed_json" if reply.text.strip() else "empty", _NOT_REACT)
    name, text = match["name"].strip(), match["arguments"].strip().removesuffix("```").strip()
    arguments, mistake = parse_arguments(text)
    is_plain_text = name == "respond" and text and not text.startswith("{")
    if mistake and is_plain_text and not reply.is_cut:
        arguments, mistake = {"content": text}, ""
    if mistake:
        return problem_of(reply, reply.text, "malformed_json", f"the arguments of {name}: {mistake}")
    return Action(name=name, arguments=arguments, thought=match["thought"].strip(), usage=reply.usage)


REFLECT = """\
An assistant of a shop works on a customer's request and has just heard back from the customer. Look at
what it did so far: did it choose the right function, and the right arguments? Say in a few sentences what the
answer shows to be wrong or missing, and what the assistant should do next.

Request: {task}

So far:
{actions}

The customer's answer: {feedback}

{note}"""


class Reflection(ReAct):
    """ReAct that takes each answer of the user for feedback and reflects on it, in a call of its own (A.2).

    The reflection is put below the answer, not in a message of the assistant, which many models refuse as
    the last one; and it is asked for at temperature 0, as a user.
    """

    rules = ONLY_MULTI_TURN

    def __call__(self, state: BeliefState) -> Action:
        if self.offline or not state.session or not state.session[-1].is_talk:
            return super().__call__(state)
        messages, feedback = self.messages(state), answer_text(state.session[-1])
        parts = {"task": state.instruction, "actions": transcript(messages[1:-1]), "feedback": feedback}
        reflection = self.setup.reply([user(REFLECT.format(**parts, note=FENCE_NOTE))])
        # It is shown after the answer in this call, and by its note in all later ones.
        action = self.ask([*messages[:-1], _below(messages[-1], reflection.text)])
        notes = action.notes | {"reflection": reflection.text}
        return action.model_copy(update={"notes": notes, "usage": reflection.usage + action.usage})

    def messages(self, state: BeliefState) -> list[Message]:
        """Return the conversation, each reflection below the answer it is about."""
        messages = super().messages(state)
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
# The fields that each function's memory keeps (PUMA, 5.1).
TASK_SPECIFIC = {
    "search_product_by_query": "{title} (category: {category}, price: {price}, store: {store})\n",
    "get_recommendations_by_history": "{title} (category: {category}, id: {parent_asin})\n",
    "add_product_review": "{rating} stars: {text}\n",
}


class PumaPrompting:
    """PUMA without its fine-tuning (PersonalWAB, 5): a model names the function, then makes the call.

    The model is asked for the function once an episode: its answer is noted in the first action. A reply that
    does not name exactly one function is a lost step.

    Departure from the published code: step 2 offers only the identified function, beside talk.
    """

    rules = RULES

    def __init__(self, setup: Setup):
        self.setup, self.identify = setup, getattr(setup.model, "identify", None)
        self.step_two = {function: ParameterAgent(setup, function) for function in FUNCTION_OF.values()}

    def __call__(self, state: BeliefState) -> Action:
        noted = [step.action.notes["function"] for step in state.session if "function" in step.action.notes]
        if function := self.identify(state.instruction) if self.identify else "".join(noted[:1]):
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
        return action.model_copy(
            update={"notes": {"function": named[0]}, "usage": reply.usage + action.usage}
        )


class ParameterAgent(ChatAgent):
    """Step 2: the parameters of one function, from the fields of memory that matter to it."""

    strategy = "task_specific"

    def __init__(self, setup: Setup, function: str):
        self.function, self.functions = function, (function,)
        self.advice, self.entry_form = (
            f"The function that this request asks for is {function}.",
            TASK_SPECIFIC[function],
        )
        super().__init__(setup)


# like, dislike: product ids; expect: what the user hopes for; unread: replies about them without sense.
Profile = dict[str, Any]
_PARTS = ("like", "dislike", "expect")
EXPECTATIONS = 30  # the latest so many are kept (published code)
FIRST_BEHAVIORS = 200  # at most, that the first profile is made from (published code)
ENTRY = "{title} (id {parent_asin}, {category}): {rating} stars. {text}\n"
FIRST = """\
From what a customer bought and wrote, tell which products they clearly like and which they clearly dislike;
leave the others out. Reply with a JSON object and nothing else: {"like": [ids], "dislike": [ids]}

"""
UPDATE = """\
Read how a customer and an assistant talked, and tell what it shows of the customer's taste. Reply with a JSON
object and nothing else: {"like": [ids of products they like], "dislike": [ids of products they do not like],
"expect": [names or kinds of things they hope to find]}. Leave a list empty where nothing was said.

"""


class InteRecAgent(ChatAgent):
    """Function calling with the latest behaviors and a profile that goes from task to task (A.2)."""

    rules, strategy, entry_form = ONLY_MULTI_TURN, "last", ENTRY

    def __init__(self, setup: Setup, profile: Profile | None = None):
        super().__init__(setup)
        self.profile = {"like": [], "dislike": [], "expect": [], "unread": 0} | (profile or {})

    def tell_memory(self, entries: list[Entry]) -> str:
        profile = fence("\n".join(f"{part}: {', '.join(self.profile[part]) or '-'}" for part in _PARTS))
        memory = super().tell_memory(entries)
        return f"{memory}\n\nWhat the customer likes, dislikes and expects:\n{profile}".strip()


def play_interec(
    setup: Setup, shop: Shop, task: Task, profile: Profile, **how: Any
) -> tuple[Trajectory, Profile]:
    """Play one task of a user: the ``play`` that ``episodes`` wants of a method with a memory.

    An empty profile is first made from the history. Calls about the profile count to the last step's usage.

    Args:
        how: track, protocol and user, as of :func:`run_episode`.

    Returns:
        The episode, and the profile after it.
    """
    before, last_state = Usage(), None
    if not profile:
        history = shop.benchmark.history(task, "test", how.get("protocol", "leak_free"))
        profile, before = first_profile(setup, history)
    agent = InteRecAgent(setup, profile)

    def remember(state: BeliefState) -> Action:
        nonlocal last_state
        last_state = state
        return agent(state)

    trajectory = run_episode(shop, task, remember, **how)
    if agent.offline:
        answers = [step.observation.text for step in trajectory.steps if step.is_talk]
        return trajectory, merge(agent.profile, {"expect": answers})
    ended = replace(last_state, session=trajectory.steps)
    profile, after = _ask(setup, agent.profile, UPDATE + transcript(agent.messages(ended)[1:]))
    if not trajectory.steps:
        return trajectory, profile
    *earlier, last = trajectory.steps
    action = last.action.model_copy(update={"usage": before + after + (last.action.usage or Usage())})
    steps = (*earlier, last.model_copy(update={"action": action}))
    return trajectory.model_copy(update={"steps": steps}), profile


def first_profile(setup: Setup, history: tuple[Behavior, ...]) -> tuple[Profile, Usage]:
    """Tell likes from dislikes in past behaviors, by the model; offline by ratings: 4 and up, 2 and down."""
    profile: Profile = {"like": [], "dislike": [], "expect": [], "unread": 0}
    entries = [memory_entry(behavior, setup.products) for behavior in history[: -FIRST_BEHAVIORS - 1 : -1]]
    if not hasattr(setup.model, "reply") or not entries:
        liked = [entry["parent_asin"] for entry in entries if entry["rating"] >= 4]
        disliked = [entry["parent_asin"] for entry in entries if entry["rating"] <= 2]
        return merge(profile, {"like": liked, "dislike": disliked}), Usage()
    return _ask(setup, profile, FIRST + fence(write_entries(ENTRY, entries, setup.products)))


def merge(profile: Profile, news: Profile) -> Profile:
    """Merge what is new into a profile: the latest word on a product counts, as in the published code."""
    like, dislike = news.get("like", []), news.get("dislike", [])
    still_liked = [asin for asin in profile["like"] if asin not in dislike]
    still_disliked = [asin for asin in profile["dislike"] if asin not in like]
    expect = list(dict.fromkeys([*profile["expect"], *news.get("expect", [])]))
    return profile | {
        "like": list(dict.fromkeys([*still_liked, *like])),
        "dislike": list(dict.fromkeys([*still_disliked, *dislike])),
        "expect": expect[-EXPECTATIONS:],
    }


def _ask(setup: Setup, profile: Profile, prompt: str) -> tuple[Profile, Usage]:
    """Merge in what the model says of the user. A refusal or nonsense is counted and changes nothing."""
    unread = profile | {"unread": profile["unread"] + 1}
    try:
        reply = setup.reply([user(f"{prompt}\n\n{FENCE_NOTE}")])
    except NotEvaluableError:
        return unread, Usage()
    try:
        start = reply.text.index("{")
        _, end = json.JSONDecoder().raw_decode(reply.text, start)  # what stands around it does not matter
        news, mistake = parse_arguments(reply.text[start:end])
    except (ValueError, RecursionError):
        news, mistake = {}, "no JSON"
    lists = [news.get(part, []) for part in _PARTS]
    are_lists = all(isinstance(items, list) and all(isinstance(i, str) for i in items) for items in lists)
    return (unread if mistake or reply.is_cut or not are_lists else merge(profile, news)), reply.usage


# Each by the name that records, tables and figures give it, in the order of PersonalWAB's Tables 3 and 4; the
# last two are of Orion's Table 1, which also has ReAct, PUMA and, as "Raw", the method without memory.
METHODS = {
    "No memory": NoMemory,
    "Random memory": RandomMemory,
    "Last memory": LastMemory,
    "Relevant memory": RelevantMemory,
    "ReAct": ReAct,
    "Reflection": Reflection,
    "RecMind": RecMind,
    "InteRecAgent": InteRecAgent,
    "PUMA (prompted)": PumaPrompting,
    "Chain of thought": ChainOfThought,
    "ChatShop": ChatShop,
}
