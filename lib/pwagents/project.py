"""Where the project lies, which code it runs, and how it writes files."""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the checkout: the library is installed editable
_LIBRARY = Path(__file__).parent


def project_path(path: str | Path) -> Path:
    """``path``, taken from the project's root where it is relative.

    A notebook's working directory is the notebook's folder in JupyterLab and anything under papermill; its
    results should lie in one place all the same.
    """
    return ROOT / path


def code_hash(*rooms: str) -> str:
    """SHA-256 (16 hex digits) over sources and data of these folders and modules of the library.

    Part of the key of a stored run, so that what other code made is not taken for the present code's.

    Raises:
        FileNotFoundError: there is no such folder or module.
    """
    digest = hashlib.sha256()
    for room in rooms:
        path = _LIBRARY / room
        in_folder = sorted(file for file in path.rglob("*") if file.suffix in (".py", ".yaml", ".csv"))
        files = in_folder if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            digest.update(f"\n{file.relative_to(_LIBRARY)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def write_aside(path: Path, content: str | bytes) -> None:
    """Write a file beside its place and move it there, so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(aside, path)
