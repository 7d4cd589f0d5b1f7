"""What a language model is asked for its histories: JSON objects, of which a bad one is sent back once."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from pwagents.agents.replies import parse_arguments
from pwagents.llm.chat import ChatModel, Message, Reply, Request, ask_all
from pwagents.project import read_yaml

_SAMPLING = {"temperature": 1.0, "max_tokens": 1500}

Result = TypeVar("Result")
Read = Callable[[dict[str, Any]], Result]  # raises ValueError, with what is wrong, for the model


def prompt(name: str, **filled: Any) -> str:
    """A prompt of ``history_prompts.yaml``."""
    return read_yaml("pwagents.persona2web", "history_prompts.yaml")[name].format(**filled)


def ask_objects(
    model: ChatModel, prompts: Sequence[str], reads: Sequence[Read], what: str, failures: Counter[str]
) -> list[Result | None]:
    """What the reply to each prompt says; None where it could not be used at the second try either.

    Args:
        reads: one for each prompt. Of equal prompts, each gets another sample.
        what: what the progress bar says.
        failures: counts "repaired", "unusable" and "refused".

    Raises:
        InfrastructureError: the model cannot be reached.
    """
    asked = zip(prompts, _samples(prompts), strict=True)
    requests = [_request([_user(text)], sample) for text, sample in asked]
    replies = ask_all(model, requests, what)
    results = [_read(reply, read) for reply, read in zip(replies, reads, strict=True)]
    again = [i for i, (_, problem) in enumerate(results) if problem and replies[i] is not None]
    repairs = [_repair(requests[i], replies[i], results[i][1]) for i in again]
    for i, reply in zip(again, ask_all(model, repairs, what), strict=True):
        results[i] = _read(reply, reads[i])
        failures["unusable" if results[i][1] else "repaired"] += 1
    failures["refused"] += sum(reply is None for reply in replies)
    return [result for result, _ in results]


def _repair(request: Request, reply: Reply, problem: str) -> Request:
    said = {"role": "assistant", "content": reply.text}
    return _request([*request.messages, said, _user(prompt("repair", problem=problem))], request.sample)


def _read(reply: Reply | None, read: Read) -> tuple[Result | None, str]:
    """What a reply says, and what is wrong with it in one line."""
    if reply is None:
        return None, "refused"
    text = reply.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    data, mistake = parse_arguments(text)
    if mistake:
        return None, mistake
    try:
        return read(data), ""
    except ValidationError as error:
        first = error.errors()[0]
        return None, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ValueError as error:
        return None, str(error)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _request(messages: Sequence[Message], sample: int) -> Request:
    return Request(messages=tuple(messages), sampling=_SAMPLING, sample=sample)


def _samples(prompts: Sequence[str]) -> list[int]:
    """For each prompt, how many equal ones came before it."""
    seen: Counter[str] = Counter()
    samples = []
    for text in prompts:
        samples.append(seen[text])
        seen[text] += 1
    return samples
