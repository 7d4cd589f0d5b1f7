"""A conversation as tokens, and which of them the assistant wrote.

Rollouts of a policy hold, token for token, what a conversation is here: the prompt, a turn up to and with the
end token, the answer, the next turn. They get prompts and answers from here, too.
"""

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.errors import DataError
from pwagents.llm.fence import without_control_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pwagents.llm.chat import Message, Tool

NO_LOSS = -100  # a label that PyTorch's cross-entropy passes over
_MARKS_TURNS = re.compile(r"\{%-?\s*generation")


class Example(NamedTuple):
    """A conversation as tokens; ``mask`` is 1 where the assistant wrote, which is what the loss is on."""

    input_ids: list[int]
    mask: list[int]

    @property
    def labels(self) -> list[int]:
        """Return the tokens that the loss is on; :data:`NO_LOSS` in place of the others."""
        return [token if written else NO_LOSS for token, written in zip(*self, strict=True)]


def tokenize_conversation(
    tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]", tools: "Sequence[Tool]" = ()
) -> Example:
    """Return the tokens of a conversation up to the end of its last assistant turn.

    Args:
        messages: in OpenAI's format.
        tools: what the template tells the model about its functions; the same as when it acts.

    Raises:
        DataError: there is no assistant turn, or the chat template does not say what the assistant writes,
            and TRL has none for this model that does.
    """
    template = tokenizer.chat_template
    if not _MARKS_TURNS.search(template or ""):
        from trl.chat_template_utils import get_training_chat_template

        try:
            template = get_training_chat_template(tokenizer)
        except ValueError:
            expected = (
                "one that marks the assistant's turns ({% generation %}), or of a family that TRL knows"
            )
            raise DataError("tokenizer", 0, "chat template", "another one", expected) from None
    made = tokenizer.apply_chat_template(
        for_template(tokenizer, messages),
        tools=list(tools) or None,
        chat_template=template,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ids, mask = list(made["input_ids"]), list(made["assistant_masks"])
    if not any(mask):
        raise DataError("conversation", 0, "messages", "no assistant message", "at least one")
    length = len(mask) - mask[::-1].index(1)
    return Example(ids[:length], mask[:length])


def prompt_tokens(
    tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]", tools: "Sequence[Tool]" = ()
) -> list[int]:
    """Return the tokens that the assistant's first turn follows; ``messages`` are what was said before it."""
    text = tokenizer.apply_chat_template(
        for_template(tokenizer, messages),
        tools=list(tools) or None,
        tokenize=False,
        add_generation_prompt=True,
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def answer_tokens(tokenizer: "PreTrainedTokenizerBase", answers: "Sequence[Message]") -> list[list[int]]:
    """Return of each answer the tokens between a turn, whose end token is its own, and the next turn.

    They are cut out of a conversation with another turn in this one's place, so that the turn itself is
    never tokenised again.

    Raises:
        DataError: the template does not keep the beginning of a conversation as it was.
    """
    before = [{"role": "user", "content": "."}, {"role": "assistant", "content": "."}]
    render = partial(tokenizer.apply_chat_template, tokenize=False)
    beginning = render(before).rpartition(tokenizer.eos_token)[0] + tokenizer.eos_token
    tokens = []
    for answer in for_template(tokenizer, answers):
        text = render([*before, answer], add_generation_prompt=True)
        if not text.startswith(beginning):
            expected = "a chat template that keeps the beginning of a conversation as it was"
            raise DataError("conversation", "message 1", "chat template", repr(text[:80]), expected)
        tokens.append(tokenizer(text[len(beginning) :], add_special_tokens=False)["input_ids"])
    return tokens


def for_template(tokenizer: "PreTrainedTokenizerBase", messages: "Sequence[Message]") -> list[dict[str, Any]]:
    """Return messages as templates want them: arguments as objects, no control token in any text."""
    made = []
    for message in messages:
        message = {**message, "content": without_control_tokens(tokenizer, message.get("content") or "")}
        calls = []
        for call in message.get("tool_calls") or ():
            text = call["function"]["arguments"]
            text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
            arguments = json.loads(without_control_tokens(tokenizer, text))
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
        made.append(message | ({"tool_calls": calls} if calls else {}))
    return made
