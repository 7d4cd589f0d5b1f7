"""The prompts published with PersonalWAB, read at run time from a clone of HongruCai/PersonalWAB.

They are not part of this project. The clone's files are parsed, never executed. What the methods add to them
stays: the delimiters around data, the note on what these mean, and a heading above the memory.
"""

import ast
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pwagents.errors import DataError
from pwagents.project import project_path

CONSTANTS = {  # file -> the constants that the methods use
    "PersonalWAB/envs/pwab/__init__.py": ("SYS_PROMPT_SINGLE", "SYS_PROMPT_MULTI"),
    "PersonalWAB/agents/utils.py": (
        *("HISTORY_PROMPT", "MINI_HISTORY_PROMPT", "REACT_INST", "REFLECTION_INST"),
        *("RECMIND_ST_PROMPT", "RECMIND_MT_PROPMT"),  # misspelt there
        *("INTEREC_PROMPT", "INTEREC_MEMORY_PROMPT", "INTEREC_UPDATE_MEM_PROMPT"),
        *("TS_SEARCH_PROMPT", "TS_REC_PROMPT", "TS_REV_PROMPT", "TS_AGENT_PROMPT", "TS_AGENT_MT_PROMPT"),
    ),
}


class OfficialPrompts(NamedTuple):
    """The prompts of a clone, and where they come from.

    Args:
        texts: constant's name -> text, to be passed to :class:`pwagents.agents.chat_agent.Setup`.
        origin: what tables say of the prompts; its hash (12 hex digits) tells one version from another.
    """

    texts: Mapping[str, str]
    origin: str


def official_prompts(repo: str | Path) -> OfficialPrompts:
    """Read the prompts of a clone.

    Args:
        repo: the clone's folder, seen from the project's root; an empty text for our own prompts.

    Raises:
        DataError: a file or a constant is missing, or a file is no Python.
    """
    if not str(repo):
        return OfficialPrompts({}, "prompts: our own")
    repo, texts, digest = project_path(Path(repo).expanduser()), {}, hashlib.sha256()
    for name, constants in CONSTANTS.items():
        file = repo / name
        try:
            content = file.read_bytes()
            module = ast.parse(content)
        except (OSError, SyntaxError, ValueError) as error:
            expected = "a clone of HongruCai/PersonalWAB, or no folder"
            raise DataError(file, "-", "(whole file)", error, expected) from None
        digest.update(content)
        # The module's top-level NAME = "text".
        values = {
            ast.unparse(statement.targets[0]): ast.literal_eval(statement.value)
            for statement in module.body
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        }
        for constant in constants:
            if not isinstance(values.get(constant), str):
                raise DataError(file, "module", constant, "no such text", "a string constant")
            texts[constant] = values[constant]
    return OfficialPrompts(texts, f"prompts: official repository ({digest.hexdigest()[:12]})")
