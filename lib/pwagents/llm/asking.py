"""Many requests to a model at once, some of which it may refuse."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.progress import progress


def ask_all(model: ChatModel, requests: Sequence[Request], what: str) -> list[Reply | None]:
    """A reply to each request, in order; None where the model refuses (too long, or filtered).

    Args:
        what: for the progress bar.

    Raises:
        InfrastructureError: the model cannot be reached.
    """
    replies: list[Reply | None] = []
    at_once = 4 * max(model.workers, model.batch_size)
    with progress(total=len(requests), desc=what, unit="reply") as bar:
        for i in range(0, len(requests), at_once):
            part = requests[i : i + at_once]
            replies += _replies(model, part)
            bar.update(len(part))
    return replies


def _replies(model: ChatModel, part: Sequence[Request]) -> list[Reply | None]:
    if model.batch_size == 1:  # each by itself: a refused one must not cost the replies beside it
        with ThreadPoolExecutor(model.workers) as threads:
            return list(threads.map(partial(_reply, model), part))
    try:
        return model.replies(part)
    except NotEvaluableError:  # one of them: find out which
        return [_reply(model, request) for request in part]


def _reply(model: ChatModel, request: Request) -> Reply | None:
    try:
        return model.reply(request)
    except NotEvaluableError:
        return None
