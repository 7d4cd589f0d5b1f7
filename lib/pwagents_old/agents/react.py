"""ReAct and Reflection (PersonalWAB, A.2): reasoning in text, no native function calls."""

import json

from pwagents.llm.chat import Message
from pwagents.schema import Action, Step
from pwagents.shop.environment import BeliefState
from pwagents_old.agents import official
from pwagents_old.agents.chat_agent import ONLY_MULTI_TURN, ChatAgent
from pwagents_old.agents.conversation import answer_text, assistant, fill, transcript, user
from pwagents_old.agents.replies import read_published_react, read_react

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
    """A thought, an action and its arguments in text; with the latest behaviours."""

    strategy = "last"
    in_text = True

    @property
    def advice(self) -> str:
        return f"Functions:\n{json.dumps(self.tools)}\n\n{REACT}"

    def tell_step(self, i: int, step: Step) -> list[Message]:
        action, answer = step.action, answer_text(step)
        if action.problem:
            return super().tell_step(i, step)
        # What the user says is no result of a function.
        call = f"Action:\n{action.name}\nArguments:\n{json.dumps(action.arguments)}"
        answer = answer if step.is_talk else f"Result:\n{answer}"
        return [assistant(f"Thought:\n{action.thought}\n{call}"), user(answer)]

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
    """ReAct that takes each answer of the user for feedback and reflects on it, in a call of its own.

    In our words the reflection stands below the answer, not in a message of the assistant, which many models
    refuse as the last one; and it is asked for at temperature 0, as a user.
    """

    rules = ONLY_MULTI_TURN

    def __call__(self, state: BeliefState) -> Action:
        if self.offline or not state.session or not state.session[-1].is_talk:
            return super().__call__(state)
        messages, prompts = self.messages(state), self.setup.prompts
        write = official.transcript if prompts else transcript
        values = {
            "<TASK>": state.instruction,
            "<ACTIONS>": write(messages[1:-1]),
            "<FEEDBACK>": answer_text(state.session[-1]),
        }
        reflection = self.setup.answer(fill(prompts.get("REFLECTION_INST", REFLECT), values))
        # It is told after the answer in this call, and by its note in all later ones.
        *earlier, last = messages
        told = [last, assistant(reflection.text)] if prompts else [_below(last, reflection.text)]
        action = self.ask([*earlier, *told])
        notes = action.notes | {"reflection": reflection.text}
        return action.model_copy(update={"notes": notes, "usage": reflection.usage + action.usage})

    def messages(self, state: BeliefState) -> list[Message]:
        """Tell the conversation, each reflection below the answer it is about."""
        messages = super().messages(state)
        if self.setup.prompts:
            return messages
        # Each step is two messages, and its reflection is a note of the step after it.
        for i, step in enumerate(state.session[1:]):
            messages[3 + 2 * i] = _below(messages[3 + 2 * i], step.action.notes.get("reflection", ""))
        return messages


def _below(answer: Message, reflection: str) -> Message:
    """The answer with a reflection (if any) below it."""
    text = f"\n\nYour reflection on this answer:\n{reflection}" if reflection else ""
    return answer | {"content": answer["content"] + text}
