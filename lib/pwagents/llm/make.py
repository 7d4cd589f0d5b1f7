"""Models from the strings of the parameter files: one store, one budget, one trial for all roles."""

import re
import threading
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pwagents.code import hash_of, hashes_of, require_loaded
from pwagents.llm.budget import Budget
from pwagents.llm.chat import ChatModel
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.schema import Protocol
from pwagents.settings import Players, parse_player, project_path

# The modules that decide a reply, whoever is asked.
_ASKED = "answers budget chat failures fence folder local_model make openai_model parts store"
CODE = ("schema", "seeds", "words", *(f"llm.{name}" for name in _ASKED.split()))
LIMITS: dict[Protocol, int] = {"leak_free": 128, "published": 256}  # tokens of a local model's call
_in_use: "WeakSet[Models]" = WeakSet()


def notes(store: Path) -> str:
    """Return what tables note of a run that keeps its replies in ``store``: see :meth:`Models.note`."""
    here = {models.note() for models in _in_use if models.store == store}
    return " ".join(sorted(here - {""}))


class Models:
    """The language models of a run.

    Before the first reply is requested that is not stored, each endpoint is tried out, including those of
    roles that play later: a dead endpoint or a wrong key is found before any work.

    Args:
        store: the file that replies are kept in; what it holds is not requested again.
    """

    def __init__(self, players: Players, store: Path):
        self.players, self.store = players, store
        self._made: dict[str, StoredModel] = {}
        self._lock = threading.Lock()
        self._untried: list[OpenAIModel] = []
        _in_use.add(self)

    def __call__(self, spec: str) -> ChatModel:
        """Return the model of ``openai:NAME``, ``local:FOLDER`` or ``replay:NAME``; nobody is asked yet.

        Raises:
            ValueError: ``spec`` is none of the three or names no saved model, or the endpoint is no URL.
        """
        if spec not in self._made:
            players, (provider, name) = self.players, parse_player(spec)
            inner = None
            if provider == "local":
                inner = LocalModel(project_path(name), players.dtype, players.workers)
            if provider == "openai":
                budget = _budget_of(self.store, players.budget_usd, players.budget_tokens)
                options = {"endpoint": players.endpoint, "workers": players.workers, "budget": budget}
                inner = OpenAIModel(name, players.base_url, **options)
                self._untried.append(inner)
            endpoint = inner.endpoint if inner else players.endpoint
            options = {"sampling": players.sampling, "before_first": self._try_out}
            is_local = provider == "local" or re.search(r"@\w{12}-b?float", name)  # its replies, stored
            self._made[spec] = made = StoredModel(inner, self._store, name, endpoint, **options)
            most = players.max_new_tokens
            made.limits = (dict.fromkeys(LIMITS, most) if most else LIMITS) if is_local else {}
        return self._made[spec]

    def facts(self, *roles: str) -> dict[str, Any]:
        """Return what of the players decides an episode, for its key: who plays ``roles``, and by which code.

        A model on disk is named by its content, so one that was trained again in its folder is another one.

        Raises:
            StaleCodeError: a module of :data:`CODE` was edited after it had been loaded.
        """
        facts = self.players.facts(*roles)
        on_disk = [role for role in roles if facts[role].startswith("local:")]
        facts |= {role: self(facts[role]).name for role in on_disk}
        if not self.players.are_models:
            return facts
        require_loaded(hashes := hashes_of(*CODE))
        return facts | {"llm": hash_of(hashes)}

    def note(self) -> str:
        """Return what a table notes of the models that played for it, the same in a run that is resumed."""
        return " ".join(filter(None, (model.note() for model in self._made.values())))

    def served(self) -> dict[str, dict[str, Any]]:
        """Return what endpoints say of the models that are played by now: :attr:`OpenAIModel.served`."""
        models = {name: each.inner for name, each in self._made.items()}
        return {name: m.served for name, m in models.items() if isinstance(m, OpenAIModel) and m.served}

    def _try_out(self) -> None:
        with self._lock:
            while self._untried:
                self._untried[-1].try_out()
                self._untried.pop()

    @cached_property
    def _store(self) -> ResponseStore:
        """Open the file of replies, for the first language model: rules need none."""
        return ResponseStore(self.store)


@cache
def _budget_of(store: Path, max_usd: float, max_tokens: int) -> Budget:
    """Return the budget of all models of this process that keep their replies in one file."""
    return Budget(max_usd=max_usd, max_tokens=max_tokens)
