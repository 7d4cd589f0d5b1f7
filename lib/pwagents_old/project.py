"""Where the project lies, which code it runs, and how it writes files."""

import ast
import codecs
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from pwagents.errors import DataError

_LIBRARY = Path(__file__).resolve().parent
IS_CHECKOUT = (_LIBRARY.parents[1] / "params").is_dir()  # a wheel has them inside the package
ROOT = _LIBRARY.parents[1] if IS_CHECKOUT else Path.cwd()
PARAMS = (ROOT if IS_CHECKOUT else _LIBRARY.parent / "pwagents") / "params"
# Modules that have moved to the new package, by the room that had them.
_MOVED = {"web": ["shop/search", "shop/sasrec", "shop/environment", "llm/prompts"]}
_MOVED |= {"llm": ["llm/*"], "agents": ["agents/*", "llm/prompts"]}
_MOVED |= {"profiles": ["profiles/clusters", "profiles/contextual"]}
# What only shows results.
_SHOWS = ("views.py", "figures.py", "paper_rows.py", "costs.py", "episode_page.py")


def project_path(path: str | Path) -> Path:
    """Return ``path``, taken from the project's root where it is relative; "~" is the home folder.

    A notebook's working directory differs between JupyterLab and papermill; its results lie in one place.
    """
    return ROOT / Path(path).expanduser()


@cache
def read_yaml(package: str, name: str) -> Any:
    """Read the YAML file ``name`` beside the modules of ``package``, once; it is not to be changed."""
    return yaml.safe_load(package_files(package).joinpath(name).read_text("utf-8"))


def code_hash(*rooms: str) -> str:
    """Compute SHA-256 (16 hex digits) over the code and data of folders and modules of the library.

    It is part of the key of a stored run. Comments, docstrings, layout, and modules that only show results do
    not count. Rooms are folders ("web"), which no list of modules forgets, or modules ("data/instructions").

    Raises:
        FileNotFoundError: there is no such folder or module.
    """
    digest = hashlib.sha256()
    for room in rooms:
        path = _LIBRARY / room
        there = list(path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}.*"))  # and its YAML
        # Modules of the room that have moved lie in the new package, and still decide its results.
        moved = _MOVED.get(room, [room])
        there += [file for name in moved for file in (_LIBRARY.parent / "pwagents").glob(f"{name}.*")]
        # HTML: templates of pages that agents read.
        if not (files := sorted(f for f in there if f.suffix in (".py", ".yaml", ".csv", ".html"))):
            raise FileNotFoundError(f"no room {room!r} in {_LIBRARY}")
        for file in files:
            if file.name not in _SHOWS:
                content = file.read_bytes()
                content = _strip_words(content) if file.suffix == ".py" else content
                digest.update(f"\n{file.relative_to(_LIBRARY.parent)}\n".encode() + content)
    return digest.hexdigest()[:16]


@cache  # a wing takes a second, and each stored run asks for it
def _strip_words(code: bytes) -> bytes:
    """Code without comments and layout, docstrings and the texts below settings."""

    class Strip(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
            return None if isinstance(node.value, ast.Constant) else node

    return ast.unparse(Strip().visit(ast.parse(code))).encode()


def file_hash(file: Path) -> str:
    """Compute the file's SHA-256, 64 hex digits."""
    with open(file, "rb") as opened:  # models are large
        return hashlib.file_digest(opened, "sha256").hexdigest()


def read_json_lines(
    path: Path, *, torn: bool = False, change: Callable[[str], str] = str
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each line and its JSON value. Lines end at "\\n" alone; empty ones are passed over.

    Args:
        torn: the last line may be half of one, which a killed or a running process left: it is left out.
        change: of a line's text, before it is read.

    Raises:
        DataError: a line is no JSON in UTF-8; names file and line.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if torn and not line.endswith(b"\n"):
                return
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            try:
                if text := line.decode("utf-8").strip(" \t\r\n"):
                    yield number, json.loads(change(text))
            except (ValueError, RecursionError) as error:
                raise DataError(
                    path, f"line {number}", "(whole line)", error, "one JSON value in UTF-8"
                ) from None


def write_aside(path: Path, content: str | bytes) -> None:
    """Write a file, as :func:`written_aside` does."""
    with written_aside(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def written_aside(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside its place, and move it there at the end: no reader ever sees half of it.

    Raises:
        OSError: the disk is full, say; names ``path``. What was there stays, and nothing is left beside it.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and error.errno:  # write() does not say where
            error.filename = str(path)
        raise
