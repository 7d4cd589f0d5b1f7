"""A model from one string of the parameter files."""

from pwagents.llm.budget import Budget, BudgetedModel
from pwagents.llm.chat import ChatModel
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import KEY_VARIABLE, OpenAIModel
from pwagents.llm.settings import model_folder, parse_player
from pwagents.llm.store import ResponseStore
from pwagents.llm.stored_model import StoredModel


def make_model(
    spec: str,
    *,
    base_url: str = "",
    key_variable: str = KEY_VARIABLE,
    store: ResponseStore | None = None,
    budget: Budget | None = None,
    workers: int = 64,
    timeout_s: float = 120.0,
    batch_size: int = 16,
) -> ChatModel:
    """The model of ``spec``: nothing is loaded and nobody is asked before the first call.

    Args:
        spec: ``openai:gpt-4o-mini``, ``local:path/to/model`` or ``replay:gpt-4o-mini``, see
            :mod:`pwagents.llm.settings`.
        base_url, key_variable, workers, timeout_s: of an endpoint, see
            :class:`pwagents.llm.openai_model.OpenAIModel`.
        store: where replies are kept and found again; without one, each call is asked (and paid) anew.
        budget: what endpoint calls are paid from.
        batch_size: of a local model, requests generated at once.

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
        model = LocalModel(model_folder(name), batch_size=batch_size)
    else:
        model = OpenAIModel(name, base_url, key_variable=key_variable, workers=workers, timeout_s=timeout_s)
        model = BudgetedModel(model, budget) if budget else model
    return StoredModel(model, store) if store else model
