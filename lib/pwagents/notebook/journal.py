"""One journal row for each run of a notebook: what ran, on what, for how long, and how it ended.

A notebook has one in its :class:`pwagents.notebook.run.Run`.

Rows go to ``<output_dir>/timings/journal.jsonl``. Wall-clock belongs here and never into a table. A run
that ends without ``finish`` (a cell failed, the kernel was restarted) leaves a row with the status
"unfinished"; only a killed process leaves none. Nothing of the environment's variables is recorded.
"""

import atexit
import fcntl
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pwagents import portable
from pwagents.evaluation.episodes import append_line
from pwagents.project import ROOT

# Folders that decide results: a stray file elsewhere, such as an executed notebook, changes none.
DECIDING = ("lib", "notebooks", "params")
PACKAGES = ("torch", "transformers", "numpy", "pwagents")


@dataclass
class Journal:
    """A run under way. ``timings`` holds seconds of wall-clock by step."""

    path: Path
    row: dict
    timings: dict[str, float] = field(default_factory=dict)
    _begin: float = field(default_factory=time.monotonic)

    @classmethod
    def start(cls, notebook: str, settings: Mapping[str, Any], output_dir: str | Path) -> "Journal":
        """Begin a run: note commit, versions and settings as they are now.

        Args:
            settings: all of the notebook's, as JSON values.
        """
        versions: dict[str, str | None] = {"python": platform.python_version()}
        for package in PACKAGES:  # by their metadata, which costs no import
            versions[package] = None
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        row = {
            "notebook": notebook,
            "status": "unfinished",
            "preset": settings["preset"],
            "seed": settings["seed"],
            "source": settings["data"]["source"],
            "settings": {**settings, "output_dir": str(output_dir)},
            "data_hash": None,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **find_commit(),
            "versions": versions,
            "portable": not portable.shortfall(),
            "cpu_count": os.cpu_count(),
        }
        # An absolute path: a notebook may change its working directory before it ends.
        journal = cls(Path(output_dir).absolute() / "timings" / "journal.jsonl", row)
        atexit.register(journal._append)
        return journal

    @contextmanager
    def timed(self, step: str):
        """Add the wall-clock of the ``with`` block to ``timings[step]``, also when it raises."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.timings[step] = self.timings.get(step, 0.0) + time.monotonic() - begin

    def finish(self, data_hash: str) -> None:
        """Append the row of a run that went to its end, and print it as one line."""
        self.row |= {"status": "finished", "data_hash": data_hash}
        atexit.unregister(self._append)
        self._append()
        row = self.row
        commit = (row["commit"] or "no commit")[:10] + (" with local changes" if row["local_changes"] else "")
        print(
            f"{row['notebook']} finished in {row['minutes']:.1f} min, {row['peak_memory_mb']:,.0f} MB: "
            f"{row['preset']}, {row['source']}, seed {row['seed']}, data {data_hash}, {commit}"
        )

    def _append(self) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.row["minutes"] = round((time.monotonic() - self._begin) / 60, 3)
        self.row["peak_memory_mb"] = round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
        self.row["timings"] = {step: round(seconds, 3) for step, seconds in self.timings.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # notebooks run beside each other
            # A row that a kill cut short would make one broken line with the next.
            file.seek(0)
            written = file.read()
            if not written.endswith(b"\n") and written:
                file.truncate(written.rfind(b"\n") + 1)
                print(f"{self.path}: the last row, which a killed run left unfinished, was cut away.")
            append_line(file, json.dumps(self.row).encode() + b"\n")


def find_commit() -> dict[str, Any]:
    """Return the commit, and whether what decides results differs from it; None for both without git."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    try:
        if not (ROOT / ".git").exists() or not (ROOT / "lib" / "pwagents").is_dir():
            raise FileNotFoundError  # installed: a repository around it is another one
        answers = [
            subprocess.run([*git, *arguments], check=True, capture_output=True, text=True).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", *DECIDING])
        ]
    except (OSError, subprocess.CalledProcessError):  # git is missing, or refuses
        return {"commit": None, "local_changes": None}
    return {"commit": answers[0], "local_changes": bool(answers[1])}
