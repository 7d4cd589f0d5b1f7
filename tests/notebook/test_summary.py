"""The summary: lines of what notebooks stored, none of what they did not."""

import pandas as pd
import pytest

from pwagents.errors import DataError
from pwagents.evaluation.figures import plot_intervals
from pwagents.notebook import summary
from pwagents.notebook.figures import save_figure


def store(folder, figure, rows, backbone=""):
    columns = ["method", "type", "mean", "low", "high", "n_tasks"]
    stamp = f"{figure} · preset: laptop" + (f" · backbone: {backbone}" if backbone else "")
    frame = pd.DataFrame(rows, columns=columns)
    save_figure(plot_intervals, figure, frame, output_dir=folder, stamp=stamp, label="method")


@pytest.fixture
def folder(tmp_path):
    """What notebooks 04 and 06 left; 03 and 05 did not run."""
    tasks = {"mean": (0.5, 12), "search": (0.4, 5), "recommend": (0.3, 4), "review": (0.8, 3)}
    puma = [("PUMA", task, mean, mean - 0.1, mean + 0.1, n) for task, (mean, n) in tasks.items()]
    rules = [("Simple rules", "search", 0.123456789, 0.1, 0.2, 5), ("Base", "search", 0.9, 0.9, 0.9, 5)]
    store(tmp_path, "04_variants", puma + rules, "small, 0.7M")
    store(tmp_path, "06_results", [("GRPO", "search", 0.7, 0.65, 0.75, 1000)], "small, 0.5M")
    return tmp_path


def test_a_line_a_number_in_the_order_of_methods_and_tasks(folder):
    lines = summary.read_summary(folder)
    assert lines.columns.tolist() == list(summary.COLUMNS)
    found = list(zip(lines["name"], lines["task"], lines["notebook"], strict=True))
    puma = [("puma", task, "04") for task in ("search", "recommend", "review", "mean")]
    assert found == [("instruction", "search", "04"), *puma, ("orion_grpo", "search", "06")]
    path = summary.write_summary(lines, folder)
    assert path == folder / "summary.csv"
    first, second, *_ = path.read_text().splitlines()
    assert first == "name,task,value,low,high,n_tasks,n_seeds,notebook"
    assert second == "instruction,search,0.123457,0.1,0.2,5,1,04"


@pytest.mark.parametrize(("n_seeds", "told"), [(1, []), (5, [[5, 9]])])
@pytest.mark.parametrize(
    ("notebook", "method", "name"), [("04", "PUMA", "puma"), ("07", "GRPO", "orion_grpo")]
)
def test_where_several_pipelines_were_trained_a_line_says_how_many(
    folder, notebook, method, name, n_seeds, told
):
    row = {"method": method, "type": "search", "mean": 0.7, "low": 0.6, "high": 0.8, "n_tasks": 9}
    frame, stamp = pd.DataFrame([{**row, "n_seeds": n_seeds}]), f"{notebook}_pipelines"
    save_figure(plot_intervals, stamp, frame, output_dir=folder, stamp=stamp, label="method")
    lines = summary.read_summary(folder)
    made = lines[lines["name"] == f"{name}_pipelines"]
    assert made[["n_seeds", "n_tasks"]].to_numpy().tolist() == told and set(made["notebook"]) <= {notebook}
    assert lines.loc[lines["name"] == name, "n_seeds"].unique().tolist() == [1]


def test_side_by_side_they_are_a_row_a_method(folder):
    shown = summary.tabulate_summary(summary.read_summary(folder)).set_index("method")
    assert list(shown) == ["search", "recommend", "review", "mean", "tasks", "notebook"]
    assert shown.loc["PUMA", "mean"] == "0.500 ±0.100" and shown.loc["PUMA", "tasks"] == "5 + 4 + 3"
    assert shown.loc["GRPO (Orion)", "tasks"] == "1,000" and pd.isna(shown.loc["GRPO (Orion)", "review"])


def test_the_picture_has_a_panel_a_task_and_says_whose_models_they_are(folder):
    figure = summary.plot_summary(summary.read_summary(folder))
    assert [ax.get_title() for ax in figure.axes] == ["search", "recommend", "review", "mean"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["simple rules", "PUMA", "GRPO (Orion)"]
    assert summary.name_backbones(folder) == "small, 0.7M; small, 0.5M"


def test_without_stored_numbers_there_is_no_summary_but_the_reference_by_hand(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"04_variants.* found none; expected the numbers of notebooks"):
        summary.read_summary(tmp_path)
    store(tmp_path / "reference", "06_results", [("GRPO", "search", 0.7, 0.65, 0.75, 1000)], "small, 0.5M")
    monkeypatch.setattr(summary, "REFERENCE", tmp_path / "reference")
    monkeypatch.setattr(summary, "project_path", lambda _: tmp_path)
    assert list(summary.read_summary(tmp_path)["name"]) == ["orion_grpo"]
    assert summary.name_backbones(tmp_path) == "small, 0.5M"


def test_no_row_is_taken_for_a_papers(folder):
    """Reports grey rows that begin with a paper's name and a comma."""
    assert not [p.label for p in summary.METHODS.values() if p.label.startswith(("Orion, ", "PersonalWAB, "))]
