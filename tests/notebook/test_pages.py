"""PAPERS.md and RESULTS.md are what `make papers` writes, and what they name is there."""

import json
import re
from pkgutil import resolve_name

import pandas as pd
import pytest

from pwagents.report import pages
from pwagents.report.reference import REFERENCE, write_episodes
from pwagents.results.papers import load_targets
from pwagents.schema import Action, Observation, Step, Trajectory
from pwagents.words import read_yaml

from .notebooks import ROOT


def test_the_committed_pages_are_what_the_command_writes():
    for name, text in pages.make_pages().items():
        assert text == (ROOT / name).read_text("utf-8"), f"{name}: run `make papers`"


def test_every_number_of_results_is_read_from_a_table_that_is_there():
    """Each finding is words and calls; a call names a stored table, or it fails."""
    fill = pages.make_environment(REFERENCE).filters["fill"]
    for each in read_yaml("pwagents.report", "headlines.yaml"):
        assert (REFERENCE / "tables" / f"{each['table']}.csv").exists()
        assert (REFERENCE / "figures" / f"{each['figure']}.png").exists()
        for text in (each["who"], each["finding"]):
            words = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text, flags=re.DOTALL)
            assert not re.search(r"\.\d\d", words), f"a number that no table gives: {words}"
            assert fill(text)


@pytest.mark.parametrize("name", ["README.md", "GUIDE.md", "PAPERS.md", "RESULTS.md"])
def test_what_a_page_links_is_there(name):
    text = (ROOT / name).read_text("utf-8")
    links = re.findall(r"\]\(([^)#\s]+)|(?:src|href)=\"([^\"]+)", text)
    paths = [path for path in map("".join, links) if not path.startswith("http")]
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("paper", ["PersonalWAB", "Orion", "Persona2Web"])
def test_each_part_of_a_paper_names_what_there_is(paper):
    parts = pages.read_papers()[paper]["parts"]
    printed = set(load_targets().query("paper == @paper")["table"])
    assert printed == {part.get("table", part["part"]) for part in parts if part["numbers"]}
    assert len({part["part"] for part in parts}) == len(parts)
    for part in parts:
        name, _, section = part["here"].partition(": ")
        assert part["status"] in ("as published", "stand-in", "needed", "drawing") and part["place"], part
        if name:
            cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8"))["cells"]
            headings = "".join(line for cell in cells for line in cell["source"] if line.startswith("#"))
            assert f" {section}\n" in f"{headings}\n".replace("#", "\n#"), part["here"]
        assert all(callable(resolve_name(code)) for code in part["code"])
        # What a stand-in leaves is in the reference, but for what takes a model or published profiles.
        stored = [[*REFERENCE.glob(f"**/{file}.*")] for file in part["files"]]
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
    fill = pages.make_environment(tmp_path).filters["fill"]
    assert fill('{{ gain("01_x", {"task": "a"}) }}') == "-.05 [-.10, .00]"
    assert fill('{{ loss("01_x", {"task": "a"}) }}') == ".05 [-.00, .10]"
    assert fill('{{ gain("01_x", {"task": "b", "low": 0, "high": 20}) }}') == "+10.05 [.00, 20.00]"
    with pytest.raises(ValueError, match="2 rows"):
        fill('{{ plain("01_x", {"task": "b"}, "difference") }}')


def test_readmes_picture_is_of_the_won_search_with_the_fewest_questions(tmp_path):
    """At least one; of equals, the one whose query has most words of the history, then the first task."""

    def drawn(**episodes: tuple[int, str, str]) -> str:
        """Return the task that is drawn of episodes, by task: questions, query, first product found."""
        records = []
        for task, (n_questions, query, first) in episodes.items():
            ask = Action(name="respond", arguments={"content": f"{task}?"})
            search = Action(name="search_product_by_query", arguments={"query": query})
            products = Observation(text=f"1. {first} Stool ($3, 4 stars)", products=(first,))
            steps = [Step(action=ask, observation=Observation(text="Brown."), profile="[history] oak old")]
            steps = [*steps * n_questions, Step(action=search, observation=products)]
            ids = {"task_id": task, "user_id": "u", "type": "search"}
            played = Trajectory(**ids, target="B1", steps=steps, end="stop").model_dump(mode="json")
            records.append({**ids, "method": "GRPO", "model": "m", "instruction": task, "trajectory": played})
        write_episodes(iter(records), tmp_path / "runs" / "orion.parquet")
        return re.search(r"(\w+)\?", pages.draw_best_episode(tmp_path))[1]

    won = {"t1": (6, "stool", "B1"), "t2": (4, "stool", "B1"), "t3": (0, "stool", "B1")}
    assert drawn(**won, t4=(2, "", "B2")) == "t2"
    assert drawn(t9=(4, "oak", "B1"), t8=(4, "oak", "B1"), t2=(4, "", "B1"), t3=(5, "oak old", "B1")) == "t8"
    with pytest.raises(ValueError, match="asks, searches and finds"):
        drawn(t3=(0, "stool", "B1"), t4=(2, "stool", "B2"))
