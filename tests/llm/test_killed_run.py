"""Conversations with a paid model, killed for real: no reply that was stored is asked for again."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel

from ..processes import begin, kill


def converse(url: str, store: Path, conversations: int, steps: int, workers: int) -> None:
    """Conversations of some calls each, every call with the replies before it."""
    model = StoredModel(OpenAIModel("m", url, workers=workers), ResponseStore(store))

    def one(number: int) -> None:
        messages = [{"role": "user", "content": f"coat {number}"}]
        for _ in range(steps):
            text = model.complete(messages, temperature=0).text
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(one, range(conversations)))


def kill_and_resume(
    url: str, store: Path, paid: Callable[[], dict[str, int]], *amounts: int, workers: int, kills: int
) -> dict[str, int]:
    """Begin ``amounts`` conversations of steps, kill them ``kills`` times at random moments, let them end.

    Args:
        paid: how often the server answered each request in full.

    Returns:
        "requests" (different ones); "paid_twice" (calls answered in full whose request was answered in full
        before); "most_under_way" (kills x workers: calls under way at a kill are paid for, and lost; any more
        than these were stored and asked again).
    """
    moments = random.Random(0)
    for times in range(kills + 1):
        process = begin(converse, url, store, *amounts, workers)
        if times < kills:
            enough = amounts[0] * amounts[1] * (times + moments.random()) / (kills + 1)
            while sum(paid().values()) <= enough:
                assert process.is_alive(), "it did not get so far"
                time.sleep(0.005)
            kill(process)
        process.join()
    assert process.exitcode == 0
    twice = sum(paid().values()) - len(paid())
    return {"requests": len(paid()), "paid_twice": twice, "most_under_way": kills * workers}


def test_sigkill_loses_no_reply_and_pays_for_none_that_was_stored_again(chat_server, tmp_path):
    server, store = chat_server(latency=0.02), tmp_path / "replies.sqlite"
    told = kill_and_resume(server.url, store, lambda: dict(server.paid), 60, 3, workers=4, kills=2)
    # What was under way at a kill had no reply yet: its endpoint may bill it, and it is asked again.
    assert told["requests"] == 60 * 3 and told["paid_twice"] <= told["most_under_way"] == 8
    assert ResponseStore(store).models() == {"m": 60 * 3}
