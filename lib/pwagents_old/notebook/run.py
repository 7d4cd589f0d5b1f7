"""Begin the run of a notebook that has not moved yet.

settings, run = start("05_orion_sft", globals(), SftNotebook)           # first cell after the parameters
"""

from collections.abc import Mapping
from typing import Any

from pwagents import notebook as new
from pwagents.settings import Kind
from pwagents.llm.make import notes
from pwagents.report import redraw  # noqa: F401  where drawing functions stand


def start(notebook: str, namespace: Mapping[str, Any], kind: type[Kind]) -> tuple[Kind, new.Run]:
    """Load and show the settings of a notebook, and begin its run.

    Args:
        notebook, namespace, kind: as of :func:`pwagents.notebook.start`.

    Raises:
        SettingsError, DataError: likewise.
    """
    return new.start(notebook, namespace, kind, notes=notes)
