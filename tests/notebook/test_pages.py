"""PAPERS.md and RESULTS.md are what `make papers` writes, and what they name is there."""

import json
from pkgutil import resolve_name

import pandas as pd
import pytest

from pwagents.evaluation.paper import load_targets
from pwagents.notebook import pages

from .notebooks import ROOT


def test_the_committed_pages_are_what_the_command_writes():
    for name, text in pages.make_pages().items():
        assert text == (ROOT / name).read_text("utf-8"), f"{name}: run `make papers`"


@pytest.mark.parametrize("paper", ["PersonalWAB", "Orion", "Persona2Web"])
def test_each_part_of_a_paper_names_what_there_is(paper):
    parts = pages.read_papers()[paper]["parts"]
    printed = set(load_targets().query("paper == @paper")["table"])
    assert printed == {part["source"].partition(", ")[2] for part in parts if part["numbers"]}
    for part in parts:
        name, _, section = part["here"].partition(": ")
        assert part["status"] in ("as published", "stand-in", "needed", "drawing") and part["place"], part
        if name:
            cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8"))["cells"]
            headings = "".join(line for cell in cells for line in cell["source"] if line.startswith("#"))
            assert f" {section}\n" in f"{headings}\n".replace("#", "\n#"), part["here"]
        assert all(callable(resolve_name(code)) for code in part["code"])
        assert all(None not in value for value in part["values"]), part["values"]  # a setting that is gone
        # What a stand-in leaves is in the reference, but for what takes a model or published profiles.
        stored = [[*pages.REFERENCE.glob(f"**/{file}.*")] for file in part["files"]]
        assert part["status"] == "needed" or not stored or stored[0], part["files"]


def test_a_finding_is_told_with_two_decimals_and_its_interval(tmp_path):
    (tmp_path / "tables").mkdir()
    rows = {
        "task": ["a", "b", "b"],
        "difference": [-0.051, 10.05, 0],
        "low": [-0.1, 0, 0],
        "high": [0.002, 20, 0],
    }
    pd.DataFrame(rows).to_csv(tmp_path / "tables" / "01_x.csv")
    numbers = pages.Numbers(tmp_path)
    assert numbers.gain("01_x", {"task": "a"}) == "-.05 [-.10, .00]"
    assert numbers.loss("01_x", {"task": "a"}) == ".05 [-.00, .10]"
    assert numbers.gain("01_x", {"task": "b", "low": 0, "high": 20}) == "+10.05 [.00, 20.00]"
    with pytest.raises(ValueError, match="2 rows"):
        numbers.plain("01_x", {"task": "b"}, "difference")
