"""Personalized web agents: the library behind the notebooks.

    from pwagents import Action, BeliefState, evaluate

Importing the package fixes how numbers are computed and remembers the code as it is loaded.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from pwagents import code, portable

portable.set_variables()
# The bars of transformers for reading and writing weights stand red in notebooks, and take no time anyway.
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
code.remember(Path(__file__).parent)

# Public names, and the modules that have them.
_PUBLIC = {
    "Action": "pwagents.schema",
    "BeliefState": "pwagents.shop.environment",
    "evaluate": "pwagents.evaluation.evaluate",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is loaded when it is first asked for: the import stays light."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
