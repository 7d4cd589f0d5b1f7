"""The library's code as this process loaded it, for the keys of stored results.

A kernel keeps the code that it has imported, whatever happens to the files. So a package remembers the bytes
of its files at its first import, keys hash these bytes, and nothing is stored once a file that decides a
result differs from what was loaded. Child processes inherit the hashes of their parent and compare them with
their own, byte by byte.
"""

import ast
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pwagents.errors import StaleCodeError

LOADED: dict[str, bytes] = {}  # "pwagents/shop/search.py" -> its bytes
# What a process hands to its children: {folder of a package: {file: hash}}. A copy of the library in another
# folder counts as a different library.
HANDED = "PWAGENTS_LOADED"
_SUFFIXES = (".py", ".yaml", ".csv", ".html")  # agents read templates of pages
_DESCRIBED = "web_function"  # its decorator: agents read the docstring of such a function
_ROOT = Path(__file__).parents[1]
_stamps: dict[str, tuple[int, int]] = {}  # time and size of each file when its bytes were the loaded ones
_unlike_parent: set[str] = set()  # files that the parent process had loaded with other bytes


def remember(package: Path) -> None:
    """Remember the files of a package as they are now, and hand their hashes to child processes."""
    hashes = {}
    for file in sorted(each for each in package.rglob("*") if each.suffix in _SUFFIXES):
        name, stat = file.relative_to(_ROOT).as_posix(), file.stat()
        LOADED[name], _stamps[name] = file.read_bytes(), (stat.st_mtime_ns, stat.st_size)
        hashes[name] = hashlib.sha256(LOADED[name]).hexdigest()[:12]
    handed = json.loads(os.environ.get(HANDED, "{}"))
    if inherited := handed.get(str(package)):
        _unlike_parent.update(name for name, value in hashes.items() if inherited.get(name) != value)
    else:
        os.environ[HANDED] = json.dumps(handed | {str(package): hashes})


@cache  # each run of episodes asks for it
def hashes_of(*modules: str) -> dict[str, str]:
    """Return the hash of each file of modules ("shop.search") and of the data files beside them, as loaded.

    Args:
        modules: also folders of templates alone ("persona2web.templates").

    Raises:
        KeyError: there is no such module, nor such a folder.
    """
    files = []
    for stem in sorted({f"pwagents/{module.replace('.', '/')}" for module in modules}):
        own = [f"{stem}{suffix}" for suffix in _SUFFIXES if f"{stem}{suffix}" in LOADED]
        if f"{stem}.py" not in own:
            own = [name for name in LOADED if name.startswith(f"{stem}/") and name.endswith(".html")]
        if not own:
            raise KeyError(f"no module {stem} in the library")
        files += own
    return hash_files(files)


def hash_files(files: Iterable[str]) -> dict[str, str]:
    """Return 16 hex digits over what counts of each file of :data:`LOADED`."""
    return {name: _hash_what_counts(name, LOADED[name]) for name in files}


def hash_of(content: Any) -> str:
    """Return 16 hex digits over JSON values: hashes of files, training examples."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def require_loaded(hashes: Mapping[str, str]) -> None:
    """Check that files still are what was loaded by this process, its parent, and the one that hashed them.

    Raises:
        StaleCodeError: one is not; names it.
    """
    for name, expected in hashes.items():
        path = _ROOT / name
        stat = path.stat() if path.exists() else None
        is_same = name in LOADED and _hash_what_counts(name, LOADED[name]) == expected
        if is_same and name not in _unlike_parent and stat:
            if _stamps[name] == (stat.st_mtime_ns, stat.st_size):
                continue
            if _hash_what_counts(name, path.read_bytes()) == expected:
                _stamps[name] = stat.st_mtime_ns, stat.st_size
                continue
        raise StaleCodeError(
            f"{name} was edited after it was loaded, so nothing is stored. Restart the kernel or the command."
        )


@cache
def _hash_what_counts(name: str, content: bytes) -> str:
    """Hash code without comments, layout and docstrings that no agent reads; hash data files whole."""
    try:
        tree = ast.parse(content) if name.endswith(".py") else None
    except SyntaxError:  # an edit that is under way
        tree = None
    if tree:
        for node in ast.walk(tree):
            read = {ast.unparse(each) for each in getattr(node, "decorator_list", ())}
            if isinstance(getattr(node, "body", None), list) and _DESCRIBED not in read:
                node.body = [each for each in node.body if not _is_text(each)]
        content = ast.unparse(tree).encode()  # the same in all versions of Python, which ast.dump is not
    return hashlib.sha256(content).hexdigest()[:16]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
