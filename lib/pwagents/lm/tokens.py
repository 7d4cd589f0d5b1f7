"""A conversation as tokens, and which of them the assistant wrote.

Rollouts of a policy hold, token for token, what a conversation is here: the prompt, a turn up to and with the
end token, the answer, the next turn. They get prompts and answers from here, too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.errors import DataError
from pwagents.llm.chat import Message, Tool
from pwagents.llm.fence import without_control_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NO_LOSS = -100  # a label that PyTorch's cross-entropy passes over
_MARKS_TURNS = re.compile(r"\{%-?\s*generation")


class Example(NamedTuple):
    """A conversation as tokens; ``mask`` is 1 where the assistant wrote, which is what the loss is on."""

    input_ids: list[int]
    mask: list[int]

    @property
    def labels(self) -> list[int]:
        """The tokens that the loss is on; :data:`NO_LOSS` in place of the others."""
        return [token if written else NO_LOSS for token, written in zip(*self, strict=True)]


def tokenize_conversation(
    tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Message], tools: Sequence[Tool] = ()
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
    tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Message], tools: Sequence[Tool] = ()
) -> list[int]:
    """Return the tokens that the assistant's first turn follows; ``messages`` are what was said before it."""
    return _tokens(tokenizer, _render(tokenizer, for_template(tokenizer, messages), tools))


def answer_tokens(tokenizer: "PreTrainedTokenizerBase", answers: Sequence[Message]) -> list[list[int]]:
    """Return of each answer the tokens between a turn, whose end token is its own, and the next turn.

    They are cut out of a conversation with another turn in this one's place, so that the turn itself is
    never tokenised again.

    Raises:
        DataError: the template does not keep the beginning of a conversation as it was.
    """
    before = [{"role": "user", "content": "."}, {"role": "assistant", "content": "."}]
    end = tokenizer.eos_token
    beginning = _render(tokenizer, before, (), goes_on=False).rpartition(end)[0] + end
    texts = [_render(tokenizer, [*before, answer], ()) for answer in for_template(tokenizer, answers)]
    for text in texts:
        if not text.startswith(beginning):
            expected = "a chat template that keeps the beginning of a conversation as it was"
            raise DataError("conversation", "message 1", "chat template", repr(text[:80]), expected)
    return [_tokens(tokenizer, text[len(beginning) :]) for text in texts]


def for_template(tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as templates want them: arguments as objects, no control token in any text."""
    made = []
    for message in messages:
        message = {**message, "content": without_control_tokens(tokenizer, message.get("content") or "")}
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": _arguments(tokenizer, call)}}
                for call in calls
            ]
        made.append(message)
    return made


def _arguments(tokenizer: "PreTrainedTokenizerBase", call: Mapping[str, Any]) -> Any:
    arguments = call["function"]["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return json.loads(without_control_tokens(tokenizer, text))


def _render(tokenizer, messages: list[dict], tools: Sequence[Tool], goes_on: bool = True) -> str:
    return tokenizer.apply_chat_template(
        messages, tools=list(tools) or None, tokenize=False, add_generation_prompt=goes_on
    )


def _tokens(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]
