"""A language model's replies: JSON objects are read, and what cannot be used is asked for once more."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from pwagents.llm.chat import ChatModel, Reply, Request, ask_all

REPAIR = "Your answer cannot be used: <PROBLEM>. Write the whole of it again, corrected."

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
# A reply -> what it says (None where it cannot be read), and what is wrong with it in one line (or "").
Reader = Callable[[Reply], tuple[Result | None, str]]


def read_reply(reply: Reply, form: type[Model]) -> Model:
    """The JSON object of a reply, in ``form``. Text around the object is passed over.

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


def reader(read: Callable[[Reply], Result]) -> Reader:
    """``read``, whose ValueError says what is wrong with a reply, as :func:`ask_twice` wants it."""

    def attempt(reply: Reply) -> tuple[Result | None, str]:
        try:
            return read(reply), ""
        except ValueError as problem:
            return None, str(problem)

    return attempt


def ask_twice(
    model: ChatModel,
    requests: Sequence[Request],
    readers: Sequence[Reader],
    what: str,
    failures: Counter[str],
) -> list[Result | None]:
    """What the replies say, each sent back once where something is wrong with it; None for those that cannot
    be read in the end, or were refused.

    Args:
        readers: one for each request.
        what: is asked for, for the progress bar.
        failures: counts "repaired" (usable at the second try), "unreadable" and "refused".

    Raises:
        InfrastructureError: the model cannot be reached.
    """
    replies = ask_all(model, requests, what)
    results = [read(reply) if reply else (None, "") for reply, read in zip(replies, readers, strict=True)]
    wrong = [i for i, (_, problem) in enumerate(results) if problem]
    again = []
    for i in wrong:  # the same conversation, with the reply and what is wrong with it
        said = {"role": "assistant", "content": replies[i].text or "(nothing)"}  # some refuse empty texts
        repair = {"role": "user", "content": REPAIR.replace("<PROBLEM>", results[i][1])}
        messages = (*requests[i].messages, said, repair)
        again.append(requests[i].model_copy(update={"messages": messages}))
    for i, reply in zip(wrong, ask_all(model, again, f"{what}, again"), strict=True):
        result, problem = readers[i](reply) if reply else (None, "refused")
        failures["repaired"] += not problem
        if result is None:  # a stray reply is better than an unreadable one
            result = results[i][0]
        results[i] = (result, problem)
    refused = replies.count(None)
    failures["refused"] += refused
    failures["unreadable"] += sum(result is None for result, _ in results) - refused
    return [result for result, _ in results]
