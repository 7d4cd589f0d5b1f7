"""A model whose replies are kept, and come from where they are kept once they are there."""

import threading
from collections.abc import Sequence
from weakref import WeakValueDictionary

from pwagents.errors import DataError
from pwagents.llm.chat import ChatModel, Reply, Request, key_of
from pwagents.llm.failures import one_line
from pwagents.llm.store import ResponseStore


class StoredModel(ChatModel):
    """Asks ``inner`` for what ``store`` does not hold, and keeps it before it goes on.

    Threads of this process that have the same request ask once (not in batches); two processes may both ask,
    and go on with the same reply.

    Args:
        inner: None for stored replies alone; ``name`` then says whose.

    Raises (from :meth:`reply`):
        DataError: without ``inner``, a reply that is not stored; or the store is damaged.
    """

    def __init__(self, inner: ChatModel | None, store: ResponseStore, name: str = ""):
        self.inner, self.store = inner, store
        self.name = inner.name if inner else name
        if inner:
            self.workers, self.batch_size = inner.workers, inner.batch_size
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._locks_lock = threading.Lock()

    def reply(self, request: Request) -> Reply:
        content = request.content(self.name)
        key = key_of(content)
        with self._lock_of(key):
            stored = self.store.get(key)
            if stored is not None:
                return stored
            if self.inner is None:
                raise self._missing(request)
            return self.store.put([content], [self.inner.reply(request)])[0]

    def replies(self, requests: Sequence[Request]) -> list[Reply]:
        if self.batch_size == 1:
            return super().replies(requests)
        contents = {request.content(self.name): request for request in requests}
        found = {content: self.store.get(key_of(content)) for content in contents}
        missing = [content for content, reply in found.items() if reply is None]
        for i in range(0, len(missing), self.batch_size):
            part = missing[i : i + self.batch_size]
            made = self.inner.replies([contents[content] for content in part])
            found.update(zip(part, self.store.put(part, made), strict=True))
        return [found[request.content(self.name)] for request in requests]

    def _lock_of(self, key: str) -> threading.Lock:
        """The lock of all who ask this now; it goes when the last of them does."""
        with self._locks_lock:
            return self._locks.setdefault(key, threading.Lock())

    def _missing(self, request: Request) -> DataError:
        texts = [m["content"] for m in request.messages if isinstance(m.get("content"), str)]
        held = ", ".join(f"{count:,} of {model}" for model, count in self.store.models().items())
        return DataError(
            self.store.path,
            f"model {self.name}",
            "reply",
            f"none to {one_line(texts[-1] if texts else '', '', 80)!r} (replies held: {held or 'none'})",
            "every reply stored; run once with the model itself, same params, same data",
        )
