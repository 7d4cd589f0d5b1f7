"""The fixtures of the library's tests that these use, too."""

from tests.conftest import (  # noqa: F401
    benchmark,
    catalogue,
    certificates_are_read_once,
    minilm_is_loaded_once,
    small_model,
    study,
    tokenizer,
    updater,
    world,
)
