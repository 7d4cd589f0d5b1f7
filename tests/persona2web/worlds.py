"""A small world for tests: few users, the whole web, an embedder without a model, and models without one."""

import re
import zlib

import numpy as np

from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web.agents.episode import World
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import domains, make_sites
from pwagents.persona2web.world.history import make_histories
from pwagents.persona2web.world.queries import make_tasks
from pwagents.persona2web.world.types import Goal
from pwagents.schema import Usage
from pwagents.seeds import rng
from pwagents.settings import HistorySettings, QuerySettings


def goals(site):
    """A goal of each operation in each department: two wanted values, of which some item has both, or one
    where two items are to be compared."""
    for name in site.domains:
        domain = domains()[name]
        for operation in domain.operations:
            draw = rng(0, site.host, name, operation)
            two = [domain.facets[i] for i in sorted(draw.permutation(len(domain.facets))[:2])]
            wanted = {facet.name: facet.values[draw.integers(len(facet.values))] for facet in two}
            (first, value), *rest = wanted.items()
            masked = {} if operation == "compare" else dict(rest)
            yield Goal(domain=name, host=site.host, operation=operation, stated={first: value}, masked=masked)


class Words:
    """Embeds a text as the words it holds: near where words are shared."""

    def encode(self, texts):
        rows = np.zeros((len(texts), 384), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                row[zlib.crc32(word.encode()) % 384] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


class Says(ChatModel):
    """Replies what ``say`` makes of the messages' texts; takes no temperature but 1, as some models do."""

    def __init__(self, say, name="says"):
        self.say, self.name, self.requests = say, name, []

    def reply(self, request):
        assert request.sampling.get("temperature", 1.0) == 1.0
        self.requests.append(request)
        text = self.say(*(message["content"] for message in request.messages))
        return Reply(text=text, usage=Usage(calls=1, prompt_tokens=90, completion_tokens=10, usd=0.5))


def make_world(n_users=4, tasks_per_user=2, records=600):
    """Users of both groups of phrases, two tasks each."""
    histories = make_histories(HistorySettings(n_users=n_users, records=records, n_domains=4), seed=3)
    sites = make_sites(3)
    tasks = make_tasks(histories, sites, QuerySettings(tasks_per_user=tasks_per_user), seed=3)
    return World(histories, tasks, LocalWeb(sites.values()), Words(), data="test")
