"""The prompts published with PersonalWAB, read at run time from a clone of HongruCai/PersonalWAB.

They are not part of this project. The clone's files are parsed, never executed. What the methods add to them
stays: the delimiters around data, the note on what these mean, and a heading above the memory.
"""

import ast
import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pwagents.errors import DataError
from pwagents.project import project_path

CONSTANTS = {  # file -> the constants that the methods use
    "PersonalWAB/envs/pwab/__init__.py": ("SYS_PROMPT_SINGLE", "SYS_PROMPT_MULTI"),
    "PersonalWAB/agents/utils.py": (
        "HISTORY_PROMPT",
        "MINI_HISTORY_PROMPT",
        "INTEREC_MEMORY_PROMPT",
        "RECMIND_ST_PROMPT",
        "RECMIND_MT_PROPMT",  # misspelt there
        "INTEREC_PROMPT",
        "INTEREC_UPDATE_MEM_PROMPT",
        "REACT_INST",
        "REFLECTION_INST",
        "TS_SEARCH_PROMPT",
        "TS_REC_PROMPT",
        "TS_REV_PROMPT",
        "TS_AGENT_PROMPT",
        "TS_AGENT_MT_PROMPT",
    ),
}


class OfficialPrompts(NamedTuple):
    """The prompts of a clone, and where they come from.

    Args:
        texts: constant's name -> text, to be passed to :class:`pwagents.agents.chat_agent.Setup`.
        origin: what tables say of the prompts, and what tells the runs with one version from another's.
    """

    texts: Mapping[str, str]
    origin: str


def official_prompts(repo: str | Path) -> OfficialPrompts:
    """The prompts of a clone.

    Args:
        repo: the clone's folder, seen from the project's root; an empty text for our own prompts.

    Raises:
        DataError: a file or a constant is missing, or a file is no Python.
    """
    if not str(repo):
        return OfficialPrompts({}, "prompts: our own")
    repo = project_path(Path(repo).expanduser())
    files = {file: _read(repo / file) for file in CONSTANTS}
    texts = {}
    for file, names in CONSTANTS.items():
        found = _string_constants(repo / file, files[file])
        for name in names:
            if name not in found:
                raise DataError(repo / file, "module", name, "no such text", "a string constant")
            texts[name] = found[name]
    version = _commit(repo) or hashlib.sha256(b"\0".join(files.values())).hexdigest()[:12]
    return OfficialPrompts(texts, f"prompts: official repository ({version})")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(
            file, "-", "(whole file)", error.strerror, "a clone of HongruCai/PersonalWAB, or no folder"
        ) from None


def _string_constants(file: Path, content: bytes) -> dict[str, str]:
    """The module's top-level ``NAME = "text"``."""
    try:
        module = ast.parse(content)
    except (SyntaxError, ValueError) as error:
        raise DataError(
            file, f"line {getattr(error, 'lineno', '?')}", "(whole file)", error, "Python"
        ) from None
    return {
        target.id: statement.value.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _commit(repo: Path) -> str:
    """The clone's short commit; empty where there is none, or where the prompts' files differ from it."""
    if not (repo / ".git").exists():
        return ""

    def git(*arguments: str) -> str:
        # fsmonitor is a program that a repository can make git start; nothing of the clone's is executed.
        command = ["git", "-C", str(repo), "-c", "core.fsmonitor=false", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *CONSTANTS)
        return "" if changed else git("rev-parse", "--short=10", "HEAD")
    except (OSError, subprocess.CalledProcessError):  # git is missing, or refuses
        return ""
