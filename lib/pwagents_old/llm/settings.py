"""Which model plays which role: the strings of the parameter files, and what all models of a run share.

A role is played by one of the words its field allows ("offline": rules instead of a language model), by a
model at an endpoint (``openai:gpt-4o-mini``), by a saved transformers model (``local:path/to/model``, taken
from the project's root) or by stored replies alone (``replay:gpt-4o-mini``).
"""

import os
import re
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, PlainSerializer, PositiveFloat, PositiveInt, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from pwagents_old.llm.endpoints import (
    KEY_VARIABLE,
    OPENAI_URL,
    check_url,
    endpoint_name,
    endpoint_url,
    without_token,
)
from pwagents_old.project import project_path
from pwagents_old.settings import settings


def parse_player(spec: str, words: tuple[str, ...] = ()) -> tuple[str, str]:
    """Provider and name of a model: ``openai:gpt-4o`` is ("openai", "gpt-4o"); a word is (word, "").

    Raises:
        ValueError: ``spec`` is neither a model nor one of ``words``, or its folder holds no saved model.
    """
    if spec in words:
        return spec, ""
    provider, _, name = spec.partition(":")
    if provider not in ("openai", "local", "replay") or not name:
        expected = ", ".join((*words, "openai:NAME", "local:FOLDER"))
        raise ValueError(f"model {spec!r}; expected {expected} or replay:NAME")
    if provider == "local" and not any(
        (model_folder(name) / file).exists() for file in ("config.json", "adapter_config.json")
    ):
        raise ValueError(
            f"model {spec!r}: {model_folder(name)} holds no config.json and no adapter_config.json; "
            "expected the folder of a saved model"
        )
    return provider, name


def model_folder(name: str) -> Path:
    """Where the model of ``local:NAME`` lies."""
    return project_path(Path(name).expanduser())


def player(*words: str) -> AfterValidator:
    """The type of a role's field: ``policy: Annotated[str, player("offline")] = "offline"``."""

    def check(spec: str) -> str:
        parse_player(spec, words)
        return spec

    return AfterValidator(check)


def _check_base_url(url: str) -> str:
    """The endpoint as it is, once it is a URL without a password, or empty.

    Pydantic quotes a refused value, and a run's log keeps it; so the error is put together here, without.
    """
    try:
        return url and check_url(url)
    except ValueError as error:
        reason = PydanticCustomError("base_url", "{reason}", {"reason": str(error)})
        details = InitErrorDetails(type=reason, input="(not shown)")
        raise ValidationError.from_exception_data("base_url", [details]) from None


@settings
class Players:
    """What the language models of a run share. A wing's own group adds a field for each role."""

    base_url: Annotated[str, AfterValidator(_check_base_url), PlainSerializer(without_token)] = ""
    """Of an OpenAI-compatible endpoint; empty: that in OPENAI_BASE_URL, else OpenAI's own. Its key comes from
    OPENAI_API_KEY."""
    endpoint: str = ""
    """What records call the endpoint, what stored replies are told apart by; empty: its URL. Name it where
    one URL serves another model than before, or where a replay has several to choose from."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """Changes to what is sent with every request: {temperature: null} leaves it out, {top_p: 0.9} adds it, as
    it does what the endpoint alone knows: {chat_template_kwargs: {enable_thinking: false}}."""
    budget_usd: PositiveFloat = 5.0
    """US dollars: a run stops before it costs more, and goes on from there when run again."""
    budget_tokens: PositiveInt = 20_000_000
    """Tokens, prompts and replies together: likewise."""
    workers: PositiveInt = 1
    """Calls or episodes at a time."""

    def facts(self, *roles: str) -> dict[str, Any]:
        """What of the players decides an episode, for the keys of records: who plays ``roles`` and, where
        language models play any, how they are asked."""
        facts = {role: getattr(self, role) for role in roles}
        if self.are_models:
            facts |= {"endpoint": self.endpoint, "sampling": self.sampling}
        if self._played_by("openai"):
            facts["endpoint"] = self.endpoint or endpoint_name(endpoint_url(self.base_url))
        return facts

    @property
    def are_models(self) -> bool:
        """Whether a language model plays any role."""
        return bool(self._played_by("openai", "local", "replay"))

    def require_keys(self) -> None:
        """Find a missing key before hours of work do. An endpoint other than OpenAI's own may need none.

        Raises:
            ValueError: roles are played by OpenAI's models, and the environment holds no key.
        """
        roles = self._played_by("openai")
        own = endpoint_url(self.base_url) == OPENAI_URL
        if roles and own and not os.environ.get(KEY_VARIABLE, "").strip():
            raise ValueError(
                f"{', '.join(roles)}: a model of OpenAI needs a key; "
                f"set the environment variable {KEY_VARIABLE}"
            )

    def _played_by(self, *providers: str) -> list[str]:
        """The roles that models of these providers play."""
        shared = {field.name for field in fields(Players)}
        own = [field.name for field in fields(self) if field.name not in shared]
        form = re.compile(rf"(?:^|')(?:{'|'.join(providers)}):")  # of a text, or in a list of them
        return [name for name in own if form.search(str(getattr(self, name)))]
