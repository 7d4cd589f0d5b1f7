"""Figures as files, drawn again from their numbers: the same bytes, or another style and format."""

import json
import os
import shutil
import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.notebook import Run
from pwagents.report.redraw import main, redraw
from pwagents.report.reference import REFERENCE, find_results, make_reference
from pwagents.results import style
from pwagents.results.drawing import draw_figure, save_figure
from pwagents.results.figures import plot_bars, plot_curves, plot_intervals, plot_lines

ROWS = pd.DataFrame(
    {
        "method": ["random", "costs $5 or $6", "oracle"],
        "mean": [1 / 3, 0.2, np.nan],
        "low": [0.05, np.nan, np.nan],
        "high": [0.4, np.nan, np.nan],
    },
    index=[5, 5, 7],
)
CURVES = pd.DataFrame({"run": ["GRPO"] * 9, "step": range(9), "reward": np.sqrt(np.arange(9)), "kl": np.nan})
OWN = {"text.usetex": True, "savefig.bbox": "tight", "axes.spines.top": False, "timezone": "Asia/Tokyo"}
SCALING = ROWS.iloc[:2].assign(trajectories=[100, 400])


@pytest.fixture(autouse=True)
def usual_matplotlib(monkeypatch):
    monkeypatch.setattr(style, "_STYLE", list(style._STYLE))
    matplotlib.use("Agg")
    with matplotlib.rc_context():
        yield
    plt.close("all")


@pytest.fixture(scope="module")
def drawn_once(tmp_path_factory):
    """A preset's folder in which a notebook has drawn, of a user whose matplotlib has settings of its own."""
    folder = tmp_path_factory.mktemp("outputs") / "laptop"
    matplotlib.use("Agg")
    plt.close("all")  # what tests of other files drew in this process
    with matplotlib.rc_context(OWN):
        run = Run("03", folder, made_from={"preset": "laptop", "source": "synthetic"})
        run.figure(plot_intervals, "gains", ROWS, label="method", xlabel="accuracy", xlim=(0, 1))
        run.figure(plot_bars, "bars", ROWS[:2], made_from={"source": "amazon"}, label="method", value="mean")
        run.figure(plot_curves, "curves", CURVES)
        axis = {"x": "trajectories", "y": "mean", "hue": "method", "doublings": True}
        run.figure(plot_lines, "scaling", SCALING, levels={"Base": 0.1, "A teacher": 0.9}, **axis)
        assert not plt.get_fignums(), "a notebook would show an open one a second time"
    return folder


@pytest.fixture
def folder(drawn_once, tmp_path):
    return shutil.copytree(drawn_once, tmp_path / "laptop")


@pytest.fixture
def command(monkeypatch, capsys):
    """``command(*arguments)``: what the command line returns and says in errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["figures", *map(str, arguments)])
        return main(), capsys.readouterr().err

    return run


def files(folder, kind):
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"*.{kind}"))}


def test_drawn_again_by_another_process_they_are_the_same_bytes(folder, tmp_path):
    (tmp_path / "matplotlibrc").write_bytes(b"# not UTF-8: \xe9")
    (tmp_path / "stylelib").mkdir()
    (tmp_path / "stylelib" / "seaborn-v0_8-whitegrid.mplstyle").write_text("axes.facecolor: red")
    command = [sys.executable, "-m", "pwagents.report.redraw", str(folder)]
    env = os.environ | {"MPLCONFIGDIR": str(tmp_path), "MPLBACKEND": "TkAgg"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Drawn: {folder / 'redrawn'}"
    for kind in ("png", "svg"):
        made = files(folder / "figures", kind)
        assert len(made) == 4 and files(folder / "redrawn", kind) == made
    svg, png = ((folder / "redrawn" / f"03_bars.{kind}").read_bytes() for kind in ("svg", "png"))
    assert b"source: amazon" in svg and b"costs" in svg, "the stamp says what made it"
    assert b"<dc:date>" not in svg and b"Matplotlib" not in svg.split(b"<defs>")[0]
    assert b"Software" not in png and b"tIME" not in png
    stored = pd.read_parquet(folder / "figures" / "03_gains.parquet")
    pd.testing.assert_frame_equal(stored, ROWS.reset_index(drop=True))  # unrounded
    rounded = pd.read_csv(folder / "figures" / "03_gains.csv")
    pd.testing.assert_frame_equal(rounded, stored, rtol=1e-6, check_dtype=False)


def test_other_formats_and_styles(folder, command, tmp_path, monkeypatch):
    (tmp_path / "talk.mplstyle").write_text("font.size: 22\nsavefig.dpi: 50\n")
    monkeypatch.chdir(tmp_path)
    assert command(folder, "--formats", "pdf", "png", "--style", "talk.mplstyle") == (0, "")
    redrawn = folder / "redrawn"
    assert {path.suffix for path in redrawn.iterdir()} == {".pdf", ".png"}
    for made in files(redrawn, "pdf").values():
        assert made.startswith(b"%PDF") and b"CreationDate" not in made
    small, usual = (plt.imread(place / "03_gains.png") for place in (redrawn, folder / "figures"))
    assert small.shape[1] * 3 == usual.shape[1]


def test_where_nothing_has_run_they_are_those_of_the_reference(folder, tmp_path, monkeypatch, capsys):
    (folder / "timings").mkdir()
    row = {"notebook": "03_benchmark", "status": "finished", "settings": {"output_dir": "x"}}
    (folder / "timings" / "journal.jsonl").write_text(f"{json.dumps(row)}\n")
    (folder / "tables").mkdir()
    make_reference(folder, tmp_path / "reference")
    monkeypatch.setattr("pwagents.report.reference.REFERENCE", tmp_path / "reference")
    fresh = tmp_path / "clone" / "laptop"
    (fresh / "tables").mkdir(parents=True)
    (fresh / "tables" / "03_plain.html").touch()  # there are results, but no figures
    redraw(fresh)
    # Of which the reference has smaller ones.
    assert files(fresh / "redrawn", "png") == files(folder / "figures", "png")
    assert "committed reference" in capsys.readouterr().out
    for name in ("laptop", "interactive"):
        assert find_results(fresh.with_name(name), "notebooks/*.ipynb") == tmp_path / "reference"
    assert find_results(fresh, "notebooks/*.ipynb", "tables/*.html") == fresh
    with pytest.raises(ValueError, match=r"smoke/figures holds no figure's numbers"):
        redraw(tmp_path / "clone" / "smoke")


def test_a_file_can_name_no_code_but_drawing_functions(folder):
    path = folder / "figures" / "03_gains.parquet"
    frame = pd.read_parquet(path)
    for place in ("os:system", "pwagents.report.site:shutil.rmtree", "pwagents.files:write_aside", ""):
        frame.attrs["plot"] = place
        frame.to_parquet(path)
        with pytest.raises(ValueError, match=r"03_gains.parquet: drawn by .* expected a function plot_"):
            draw_figure(path)
    before = sorted(folder.rglob("*"))
    with pytest.raises(ValueError, match=r"figure x: drawn by .*; expected a function plot_"):
        save_figure(lambda data: None, "x", ROWS, output_dir=folder)
    assert sorted(folder.rglob("*")) == before


def test_a_broken_file_and_an_unknown_style_are_one_line(folder, command):
    (folder / "figures" / "03_bars.parquet").write_bytes(b"PAR1 and no more")  # which is drawn first
    styles = [(("--style", name), name) for name in ("loud", "talk.mplstyle", ".mplstyle", str(folder))]
    for arguments, what in (((), "03_bars.parquet"), *styles):
        status, said = command(folder, *arguments)
        assert status == 1 and what in said and len(said.splitlines()) == 1


def test_the_code_draws_all_committed_figures():
    for path in (REFERENCE / "figures").glob("*.parquet"):
        assert draw_figure(path).axes, path
        plt.close("all")
