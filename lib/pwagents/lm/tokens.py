"""A conversation as tokens, and which of them the assistant wrote.

Chat templates mark no assistant tokens, or differ in what they mark. So the mask is made from the one thing
that every template for agents must do: keep the beginning of a conversation as it was when more is said. The
result is, token for token, what a rollout holds: the prompt as the policy is given it, its turn up to and
with the end token, the answer, the next turn. Rollouts get prompts and answers from here, too.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.errors import DataError
from pwagents.llm.chat import Message, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


NO_LOSS = -100  # a label that PyTorch's cross-entropy passes over


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
    """The tokens of a conversation up to the end of its last assistant turn.

    Each turn and each text between two turns is tokenised by itself, as it is when turns are sampled. A turn
    begins where the generation prompt ends and reaches up to and with the end token; what the template
    adds after that belongs to the answer.

    Args:
        messages: in OpenAI's format.
        tools: what the template tells the model about its functions; the same as when it acts.

    Raises:
        DataError: there is no assistant turn, the template does not keep the beginning of a conversation
            as it was, or a turn does not end with the end token; the message is named.
    """
    told = _told(tokenizer, messages)
    turns = [i for i, message in enumerate(told) if message["role"] == "assistant"]
    if not turns:
        raise DataError("conversation", 0, "messages", "no assistant message", "at least one")
    ids, mask, text = [], [], ""
    for i in turns:
        prompt = _render(tokenizer, told[:i], tools, add_generation_prompt=True)
        between = _rest(prompt, text, i)
        turn = _turn(tokenizer, _rest(_render(tokenizer, told[: i + 1], tools), prompt, i), i)
        for part, written in ((between, 0), (turn, 1)):
            tokens = _tokens(tokenizer, part)
            ids += tokens
            mask += [written] * len(tokens)
        text = prompt + turn
    return Example(ids, mask)


def prompt_tokens(
    tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Message], tools: Sequence[Tool] = ()
) -> list[int]:
    """The tokens that the assistant's first turn follows; ``messages`` are what was said before it."""
    return _tokens(
        tokenizer, _render(tokenizer, _told(tokenizer, messages), tools, add_generation_prompt=True)
    )


def answer_tokens(tokenizer: "PreTrainedTokenizerBase", answers: Sequence[Message]) -> list[list[int]]:
    """Of each answer the tokens between the end of a turn (its end token is the turn's) and the next turn.

    They are cut out of a conversation with another turn in this one's place, so that the turn itself is
    never tokenised again.
    """
    said = [{"role": "user", "content": "."}, {"role": "assistant", "content": "."}]
    before, end, _ = _render(tokenizer, said, ()).rpartition(tokenizer.eos_token)
    whole = [
        _render(tokenizer, [*said, answer], (), add_generation_prompt=True)
        for answer in _told(tokenizer, answers)
    ]
    return [_tokens(tokenizer, _rest(text, before + end, len(said))) for text in whole]


def _told(tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as templates want them: arguments as objects, no control token in what others wrote."""
    control, told = _control_tokens(tokenizer), []
    for message in messages:
        message = {**message, "content": message.get("content") or ""}
        if message["role"] != "assistant":
            message["content"] = _defused(message["content"], control)
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [{**call, "function": _parsed(call["function"])} for call in calls]
        told.append(message)
    return told


def without_control_tokens(tokenizer: "PreTrainedTokenizerBase", text: str) -> str:
    """A foreign text that can neither end a turn nor begin one: "<|end|>" becomes "< |end|>"."""
    return _defused(text, _control_tokens(tokenizer))


def _control_tokens(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    added = tokenizer.added_tokens_decoder.values()
    return list(dict.fromkeys([*tokenizer.all_special_tokens, *(t.content for t in added if t.special)]))


def _defused(text: str, control: Sequence[str]) -> str:
    for token in control:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def _parsed(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    return {**function, "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments}


def _render(tokenizer, messages: list[dict], tools: Sequence[Tool], add_generation_prompt=False) -> str:
    return tokenizer.apply_chat_template(
        messages, tools=list(tools) or None, tokenize=False, add_generation_prompt=add_generation_prompt
    )


def _tokens(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _rest(text: str, beginning: str, i: int) -> str:
    """What follows ``beginning`` in ``text``, at the turn that is message ``i``."""
    if not text.startswith(beginning):
        same = next((k for k, (a, b) in enumerate(zip(text, beginning, strict=False)) if a != b), len(text))
        found = f"{text[same : same + 40]!r} in place of {beginning[same : same + 40]!r}"
        expected = "a chat template that keeps the beginning of a conversation as it was"
        raise DataError("conversation", f"message {i}", "chat template", found, expected)
    return text[len(beginning) :]


def _turn(tokenizer: "PreTrainedTokenizerBase", text: str, i: int) -> str:
    """A turn's text up to and with the end token."""
    turn, end, after = text.partition(tokenizer.eos_token)
    if not end or after.strip():
        expected = f"one {tokenizer.eos_token}, at the end of the assistant's turn"
        raise DataError("conversation", f"message {i}", "end token", repr(text[-60:]), expected)
    return turn + end
