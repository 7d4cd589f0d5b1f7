"""Say which folders of the library have more lines than pyproject.toml grants; `make lint` calls it."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "lib" / "pwagents_old"

for folders, most in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budgets"].items():
    files = [
        file
        for name in folders.split()
        for file in LIBRARY.glob("*.py" if name == "." else f"{name}/**/*.py")
    ]
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    if lines > most:
        print(
            f"{folders}: {lines:,} lines in {len(files)} files, {lines - most:,} over the budget of {most:,}"
        )
