"""ReAct and Reflection (PersonalWAB, A.2): reasoning in text, no native function calls."""

import json

from pwagents.agents.chat_agent import RULES_MULTI, ChatAgent, Rules, tools_of
from pwagents.agents.conversation import (
    Prompt,
    answer_text,
    fill,
    react_messages,
    read_note,
    transcript,
    user,
    with_note,
)
from pwagents.agents.replies import read_react
from pwagents.llm.chat import Message, Reply
from pwagents.llm.fence import FENCE_NOTE
from pwagents.schema import Action, Step
from pwagents.web.episode import BeliefState

REACT = Prompt(
    "REACT_INST",
    """\
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

Make no values up, and choose the function with care: the wrong one is worth nothing whatever its results.""",
)


class ReAct(ChatAgent):
    """A thought, an action and its arguments in text; with the latest behaviours."""

    strategy = "last"

    def how(self) -> str:
        functions = json.dumps(tools_of(self.allowed))
        return f"Functions:\n{functions}\n\n{REACT.among(self.setup.prompts).strip()}"

    def tell_step(self, i: int, step: Step) -> list[Message]:
        return react_messages(step)

    def ask(self, messages: list[Message]) -> Action:
        return read_react(self.setup.reply(messages))


REFLECT = Prompt(
    "REFLECTION_INST",
    """\
An assistant of a shop works on a customer's request and has just heard back from the customer. Look at
what it did so far: did it choose the right function, and the right arguments? Say in a few sentences what the
answer shows to be wrong or missing, and what the assistant should do next.

Request: <TASK>

So far:
<ACTIONS>

The customer's answer: <FEEDBACK>""",
)


class Reflection(ReAct):
    """ReAct that takes each answer of the user for feedback and reflects on it, in a call of its own.

    Departures from the published code: the reflection stands below the answer, not in a message of the
    assistant, which many models refuse as the last one; and it is asked for at temperature 0, as a user.
    """

    rules = Rules(multi_turn=RULES_MULTI)

    def __call__(self, state: BeliefState) -> Action:
        if self.setup.offline or not _has_answer(state):
            return super().__call__(state)
        reflection = self.reflect(state)
        action = self.ask(self.messages(state, reflection.text))
        action = action.model_copy(update={"usage": reflection.usage + action.usage})
        return with_note(action, "reflection", reflection.text)

    def reflect(self, state: BeliefState) -> Reply:
        values = {
            "<TASK>": state.instruction,
            "<ACTIONS>": transcript(self.messages(state)[1:-1]),
            "<FEEDBACK>": answer_text(state.session[-1]),
        }
        prompt = fill(REFLECT.among(self.setup.prompts), values)
        return self.setup.reply([user(f"{prompt.strip()}\n\n{FENCE_NOTE}")])

    def messages(self, state: BeliefState, reflection: str = "") -> list[Message]:
        """The conversation, each reflection below the answer it is about; ``reflection`` is the newest."""
        messages = super().messages(state)
        notes = [read_note(step.action, "reflection") for step in state.session[1:]] + [reflection]
        for answer, note in zip(messages[3::2], notes, strict=False):  # each step is two messages
            if note:
                answer["content"] += f"\n\nYour reflection on this answer:\n{note}"
        return messages


def _has_answer(state: BeliefState) -> bool:
    return bool(state.session) and state.session[-1].action.name == "respond" and not state.session[-1].error
