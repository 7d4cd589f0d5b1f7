"""Replies as JSON objects; one that cannot be used is requested once more."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pwagents.llm.chat import ChatModel, Reply, Request, ask_all, assistant

REPAIR = "Your answer cannot be used: <PROBLEM>. Write the whole of it again, corrected."

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
# A reply -> what it says; a ValueError says what is wrong with it, in one line.
Reader = Callable[[Reply], Result]


class Stray(ValueError):
    """Something is wrong with a reply, but ``result``, which is what it says, is better than nothing."""

    def __init__(self, problem: str, result: Any):
        super().__init__(problem)
        self.result = result


def read_reply(reply: Reply, form: type[Model]) -> Model:
    """Return the JSON object of a reply as a ``form``. Text around the object is ignored.

    Raises:
        ValueError: what is wrong with it, in one line.
    """
    if reply.finish_reason == "length":
        raise ValueError("it was cut off at the length limit; write less")
    start, end = reply.text.find("{"), reply.text.rfind("}")
    if start < 0 or end < start:
        raise ValueError("it holds no JSON object")
    try:
        return form.model_validate(json.loads(reply.text[start : end + 1]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the object"
        raise ValueError(f"{where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no valid JSON ({error})") from None


def ask_twice(
    model: ChatModel,
    requests: Sequence[Request],
    readers: Sequence[Reader],
    what: str,
    failures: Counter[str],
) -> list[Result | None]:
    """Return what each reply says; it is sent back once if something is wrong with it.

    Args:
        what: is requested, for the progress bar.
        failures: counts "repaired" (usable at the second try), "unreadable" and "refused".

    Returns:
        A result for each request; None if its reply cannot be read in the end, or was refused.
    """

    def read(i: int, reply: Reply) -> tuple[Result | None, str]:
        try:
            return readers[i](reply), ""
        except ValueError as problem:
            return getattr(problem, "result", None), str(problem)

    replies = ask_all(model, requests, what)
    results = [read(i, reply) if reply else (None, "") for i, reply in enumerate(replies)]
    wrong = [i for i, (_, problem) in enumerate(results) if problem]
    again = []
    for i in wrong:  # the same conversation, with the reply and what is wrong with it
        own = assistant(replies[i].text or "(nothing)", replies[i].extras)  # some refuse empty texts
        repair = {"role": "user", "content": REPAIR.replace("<PROBLEM>", results[i][1])}
        messages = (*requests[i].messages, own, repair)
        again.append(requests[i].model_copy(update={"messages": messages}))
    for i, reply in zip(wrong, ask_all(model, again, f"{what}, again"), strict=True):
        result, problem = read(i, reply) if reply else (None, "refused")
        failures["repaired"] += not problem
        if result is None:  # a stray reply is better than an unreadable one
            result = results[i][0]
        results[i] = (result, problem)
    refused = replies.count(None)
    failures["refused"] += refused
    failures["unreadable"] += sum(result is None for result, _ in results) - refused
    return [result for result, _ in results]
