"""Each sentence of README, guide and notebooks on a paper or its code has its source in claims.yaml."""

import ast
import json
import os
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LEDGER = yaml.safe_load((ROOT / "tests" / "claims.yaml").read_text("utf-8"))
NOTEBOOKS = (path.name for path in sorted(ROOT.glob("notebooks/*.ipynb")))
FILES = ["README.md", "GUIDE.md", *(f"notebooks/{name}" for name in NOTEBOOKS)]
NAMES = re.compile(LEDGER["names"])
ASIDE = re.compile("|".join(LEDGER["aside"]))
COMPARISON, MARK = re.compile(r"\| \| (paper|`published`)"), "compared: "
CODE_LINES = re.compile(r"([\w./]+\.(?:py|sh)):(\d+)(?:-(\d+))? `([^`]+)`")


def plain(text: str) -> str:
    return " ".join(text.split())


def texts(file: str) -> list[str]:
    """What a reader sees: markdown without code blocks, and of code cells the strings and comments."""
    text = (ROOT / file).read_text("utf-8")
    cells = [{"cell_type": "markdown", "source": text}]
    found = []
    for cell in json.loads(text)["cells"] if file.endswith(".ipynb") else cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            found.append(re.sub(r"```.*?```", "", source, flags=re.DOTALL))
            continue
        strings = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
        found += [each for each in strings if isinstance(each, str) and " " in each]
        found += re.findall(r"#\s+(.*)", source)
    return found


def sentences(file: str) -> list[str]:
    """Sentences, list items and rows of tables; rows that compare with a paper begin with ``MARK``."""
    found = []
    for block in (block for text in texts(file) for block in re.split(r"\n\s*\n|\n(?=- )", text)):
        lines = block.strip().splitlines()
        if lines and lines[0].startswith("|"):
            mark = MARK if COMPARISON.match(lines[0]) else ""
            found += [mark + plain(line) for line in lines[2:]]
        else:
            found += re.split(r"(?<=[.?!])\)?\**\s+(?=[\w`*(\"])", plain(block))
    return found


def says(entry: dict) -> list[str]:
    return [entry["says"]] if isinstance(entry["says"], str) else entry["says"]


@pytest.mark.parametrize("file", FILES)
def test_no_claim_outlives_its_sentence(file):
    text, entries = plain(" ".join(sentences(file))), LEDGER["claims"].get(file, ())
    assert [each for entry in entries for each in says(entry) if each not in text] == []
    assert all(entry["source"] for entry in entries)


@pytest.mark.parametrize("file", FILES)
def test_a_sentence_on_a_paper_has_a_source(file):
    """What names a paper or its code stands in the ledger, but for phrases that claim nothing (``aside``)."""
    claims = [each for entry in LEDGER["claims"].get(file, ()) for each in says(entry)]
    missing = []
    for sentence in sentences(file):
        on_a_paper = sentence.startswith(MARK) or NAMES.search(ASIDE.sub("", sentence))
        if on_a_paper and not any(each in sentence or sentence in each for each in claims):
            missing.append(sentence.removeprefix(MARK))
    assert missing == []


def test_published_code_has_at_the_lines_what_claims_say_of_it():
    """``file:line `token``` of a source: the token stands in these lines of PersonalWAB's code at 23ff65c."""
    clone = os.environ.get("PWAB_CLONE")
    if not clone:
        pytest.skip("PWAB_CLONE names no clone of PersonalWAB's repository at 23ff65c")
    sources = [entry["source"] for entries in LEDGER["claims"].values() for entry in entries]
    quotes = [quote for source in sources for quote in CODE_LINES.findall(source)]
    assert quotes
    for file, first, last, token in quotes:
        lines = (Path(clone) / file).read_text("utf-8").splitlines()[int(first) - 1 : int(last or first)]
        assert token in "\n".join(lines), f"{file}:{first} has no {token}"
