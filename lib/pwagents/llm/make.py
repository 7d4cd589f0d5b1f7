"""A model from one string of the parameter files."""

from pathlib import Path

from pwagents.llm.budget import Budget, BudgetedModel
from pwagents.llm.chat import ChatModel
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.project import project_path


def make_model(
    spec: str,
    *,
    base_url: str = "",
    key_variable: str = "OPENAI_API_KEY",
    store: ResponseStore | None = None,
    budget: Budget | None = None,
    workers: int = 64,
    timeout_s: float = 120.0,
    batch_size: int = 16,
) -> ChatModel:
    """The model of ``spec``: nothing is loaded and nobody is asked before the first call.

    Args:
        spec: ``openai:gpt-4o-mini`` (a model at an endpoint), ``local:path/to/model`` (a transformers model
            on disk, its path taken from the project's root) or ``replay:gpt-4o-mini`` (stored replies alone).
        base_url, key_variable, workers, timeout_s: of an endpoint, see
            :class:`pwagents.llm.openai_model.OpenAIModel`.
        store: where replies are kept and found again; without one, each call is asked (and paid) anew.
        budget: what endpoint calls are paid from.
        batch_size: of a local model, requests generated at once.

    Raises:
        ValueError: ``spec`` is none of the three or names no saved model, or ``base_url`` is no URL.
    """
    provider, _, name = spec.partition(":")
    if provider not in ("openai", "local", "replay") or not name:
        raise ValueError(f"model {spec!r}; expected openai:NAME, local:PATH or replay:NAME")
    if provider == "replay":
        if store is None:
            raise ValueError(f"model {spec!r}: stored replies need a store")
        return StoredModel(None, store, name)
    model: ChatModel
    if provider == "local":
        model = LocalModel(_model_folder(spec, name), batch_size=batch_size)
    else:
        model = OpenAIModel(name, base_url, key_variable=key_variable, workers=workers, timeout_s=timeout_s)
        model = BudgetedModel(model, budget) if budget else model
    return StoredModel(model, store) if store else model


def _model_folder(spec: str, name: str) -> Path:
    path = project_path(Path(name).expanduser())
    if not (path / "config.json").exists() and not (path / "adapter_config.json").exists():
        raise ValueError(f"model {spec!r}: {path} holds no config.json; expected the folder of a saved model")
    return path
