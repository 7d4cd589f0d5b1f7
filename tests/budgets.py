"""Fail where the project has grown: each sum has what it may be `now`, and the `goal` it falls to.

`make lint` calls it. A sum above `now` fails; CHANGELOG names each decision that raises one. `--now` prints
the sums as they are, to be written here after something has gone.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What is counted: (now, goal).
SUMS = {
    "lib, lines of Python": (24_196, 17_500),
    "lib, files of Python": (152, 100),
    "base_model, lines": (0, 0),
    "persona2web, lines": (5_500, 5_500),
    "persona2web, files": (30, 30),
    "other files of lib, lines": (3_524, 3_000),
    "tests, lines": (18_830, 11_500),
    "tests of persona2web, lines": (2_396, 1_800),
    "notebooks, lines of code": (2_834, 1_800),
    "notebooks, words": (14_788, 12_000),
    "reference, tables without 09's": (46, 50),
}


def count_sums() -> dict[str, int]:
    """Return each sum of :data:`SUMS` as it is."""
    python, tests = [*ROOT.glob("lib/**/*.py")], [*ROOT.glob("tests/**/*.py")]
    web = [file for file in python if "persona2web" in file.parts]
    base = [file for file in python if "base_model" in file.parts]
    rest = [file for file in python if file not in web and file not in base]
    kinds = (".yaml", ".html", ".css", ".js", ".jinja", ".j2")
    other = [
        file for file in ROOT.glob("lib/**/*") if file.suffix in kinds and "base_models" not in file.parts
    ]
    web_tests = [file for file in tests if "persona2web" in str(file)]
    tables = ROOT.glob("outputs/reference/tables/*.csv")
    code, words = 0, 0
    for path in ROOT.glob("notebooks/[0-9]*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "code":
                code += len(text.splitlines())
            elif cell["cell_type"] == "markdown":
                words += len(text.split())
    return {
        "lib, lines of Python": count_lines(rest),
        "lib, files of Python": len(rest),
        "base_model, lines": count_lines(base),
        "persona2web, lines": count_lines(web),
        "persona2web, files": len(web),
        "other files of lib, lines": count_lines(other),
        "tests, lines": count_lines(tests) - count_lines(web_tests),
        "tests of persona2web, lines": count_lines(web_tests),
        "notebooks, lines of code": code,
        "notebooks, words": words,
        "reference, tables without 09's": sum(not table.name.startswith("09") for table in tables),
    }


def count_lines(files: Iterable[Path]) -> int:
    """Return how many lines the files have together."""
    return sum(file.read_text("utf-8").count("\n") for file in files)


def main(arguments: list[str]) -> int:
    counted = count_sums()
    if arguments == ["--now"]:
        for name, (_, goal) in SUMS.items():
            print(f'    "{name}": ({counted[name]:_}, {goal:_}),')
        return 0
    grown = [name for name, (now, _) in SUMS.items() if counted[name] > now]
    for name, (now, goal) in SUMS.items():
        mark = f"  {counted[name] - now:,} too many" if name in grown else ""
        print(f"{name:32} {counted[name]:7,}  now at most {now:7,}  goal {goal:7,}{mark}")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
