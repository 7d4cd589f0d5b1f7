"""Begin the run of a notebook that has not moved yet.

settings, run = start("05_orion_sft", globals(), SftNotebook)           # first cell after the parameters
"""

from collections.abc import Mapping
from typing import Any

from pwagents import notebook as new
from pwagents.settings import Kind
from pwagents.llm.make import notes
from pwagents_old.notebook import figures, preflight  # noqa: F401  figures: where drawing functions stand


def start(notebook: str, namespace: Mapping[str, Any], kind: type[Kind]) -> tuple[Kind, new.Run]:
    """Check what a notebook needs, then load and show its settings, and begin its run.

    Args:
        notebook, namespace, kind: as of :func:`pwagents.notebook.start`.

    Raises:
        SettingsError, DataError: likewise; or a model, key, file or GPU is missing: a line says what brings it.
    """
    preflight.check(notebook, kind, new.read_parameters(namespace, kind))
    return new.start(notebook, namespace, kind, notes=notes)
