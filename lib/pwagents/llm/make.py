"""A model from one string of the parameter files."""

from functools import cache, cached_property
from pathlib import Path

from pwagents.llm.budget import Budget, BudgetedModel
from pwagents.llm.chat import ChatModel
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.settings import Players, model_folder, parse_player
from pwagents.llm.store import ResponseStore
from pwagents.llm.stored_model import StoredModel


class Models:
    """The language models of a run: one store of replies and one budget for all roles, in all studies that a
    notebook makes.

    Args:
        players: endpoint, budget and workers.
        store: the file that replies are kept in; what it holds is not asked again.
    """

    def __init__(self, players: Players, store: Path):
        self.players, self._file = players, store
        self._budget = _budget_of(store, players.budget_usd, players.budget_tokens)

    def __call__(self, spec: str) -> ChatModel:
        """The model of ``spec``, as :func:`make_model` takes it."""
        shared = {"base_url": self.players.base_url, "workers": self.players.workers}
        return make_model(spec, **shared, store=self._store, budget=self._budget)

    @cached_property
    def _store(self) -> ResponseStore:
        """Opened for the first language model, not before: rules need no file."""
        return ResponseStore(self._file)


@cache
def _budget_of(store: Path, max_usd: float, max_tokens: int) -> Budget:
    """The budget of all that keeps its replies in one file, in this process."""
    return Budget(max_usd=max_usd, max_tokens=max_tokens)


def make_model(
    spec: str,
    *,
    base_url: str = "",
    store: ResponseStore | None = None,
    budget: Budget | None = None,
    workers: int = 64,
    timeout_s: float = 120.0,
) -> ChatModel:
    """The model of ``spec``: nothing is loaded and nobody is asked before the first call.

    Args:
        spec: ``openai:gpt-4o-mini``, ``local:path/to/model`` or ``replay:gpt-4o-mini``, see
            :mod:`pwagents.llm.settings`.
        base_url, workers, timeout_s: of an endpoint, see
            :class:`pwagents.llm.openai_model.OpenAIModel`.
        store: where replies are kept and found again; without one, each call is asked (and paid) anew.
        budget: what endpoint calls are paid from.

    Raises:
        ValueError: ``spec`` is none of the three or names no saved model, or ``base_url`` is no URL.
    """
    provider, name = parse_player(spec)
    if provider == "replay":
        if store is None:
            raise ValueError(f"model {spec!r}: stored replies need a store")
        return StoredModel(None, store, name)
    model: ChatModel
    if provider == "local":
        model = LocalModel(model_folder(name))
    else:
        model = OpenAIModel(name, base_url, workers=workers, timeout_s=timeout_s)
        model = BudgetedModel(model, budget) if budget else model
    return StoredModel(model, store) if store else model
