"""Orion's episodes as tokens. Rollouts and examples for fine-tuning are both made here, so that the policy is
told the same rules, functions and answers, token for token, when it learns and when it plays.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pwagents.agents.orion import answer_message, orion_messages, orion_tools
from pwagents.training.conversation_tokens import (
    Example,
    answer_tokens,
    prompt_tokens,
    tokenize_conversation,
)
from pwagents.web.episode import BeliefState

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def orion_example(tokenizer: "PreTrainedTokenizerBase", state: BeliefState, shown: int = 10) -> Example:
    """A whole episode to be learned from.

    Args:
        state: the belief state at its end.
        shown: products of a result that the policy is told about, at most.

    Raises:
        DataError: see :func:`tokenize_conversation`.
    """
    return tokenize_conversation(tokenizer, orion_messages(state, shown), orion_tools())


def orion_prompt(tokenizer: "PreTrainedTokenizerBase", state: BeliefState) -> list[int]:
    """Rules, functions, task and P_ctx,0: what the first turn of an episode follows."""
    return prompt_tokens(tokenizer, orion_messages(state), orion_tools())


def orion_answers(
    tokenizer: "PreTrainedTokenizerBase", states: Sequence[BeliefState], shown: int = 10
) -> list[list[int]]:
    """What came back at the last step of each episode, up to the beginning of the next turn.

    Args:
        states: after the step.
    """
    answers = [answer_message(len(state.session) - 1, state.session[-1], shown) for state in states]
    return answer_tokens(tokenizer, answers)
