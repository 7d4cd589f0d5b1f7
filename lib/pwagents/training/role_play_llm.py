"""A language model as the teacher of the role-play (Orion, 4.3).

It is Orion's own agent: it gets the messages that the policy will be trained on, made of S_t alone. The user
is :class:`pwagents.users.llm.LlmUser`, which the environment talks to; the two share nothing else.
"""

from collections.abc import Callable, Mapping

from pwagents.agents.orion import orion_messages, orion_tools, read_turn
from pwagents.llm.chat import ChatModel, Request
from pwagents.schema import Action
from pwagents.web.episode import Agent, BeliefState

REVIEW_TEMPERATURE, TEMPERATURE = 1.0, 0.6  # the paper's for generation in training (5.1)
MAX_TOKENS = 500


def llm_teachers(
    model: ChatModel, shown: int = 10, sampling: Mapping[str, object] | None = None
) -> Callable[[int], Agent]:
    """The teacher of each round, for :func:`pwagents.training.role_play.play_roles`.

    Another round draws another reply to the same messages.

    Args:
        shown: products of a result that the model is told about, at most.
        sampling: in place of the paper's temperatures and :data:`MAX_TOKENS`.
    """

    def of_round(number: int) -> Agent:
        def act(state: BeliefState) -> Action:
            temperature = TEMPERATURE if state.product is None else REVIEW_TEMPERATURE
            request = Request(
                messages=tuple(orion_messages(state, shown)),
                tools=orion_tools(),
                sampling=dict(sampling or {"temperature": temperature, "max_tokens": MAX_TOKENS}),
                sample=number,
            )
            return read_turn(model.reply(request))

        return act

    return of_round
