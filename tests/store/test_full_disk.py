"""A disk that takes nothing more: whoever writes says so in one line, and leaves nothing half or empty."""

import atexit
import resource

import pandas as pd
import pytest
from matplotlib.figure import Figure

from pwagents.errors import InfrastructureError
from pwagents.notebook import Run
from pwagents.results.drawing import write_figure
from pwagents.results.tables import save_table
from pwagents.settings import DataSettings, NotebookSettings


def table(folder):
    return lambda: save_table(pd.DataFrame({"x": [1]}), "t", title="T", output_dir=folder)


def figure(folder):
    drawn = Figure()
    drawn.subplots().plot([1, 2])
    return lambda: write_figure(drawn, folder / "f.png")


def journal(folder):
    settings = NotebookSettings(preset="smoke", output_dir=folder, seed=0, data=DataSettings())
    begun = Run.begin("01_data", settings)
    atexit.unregister(begun.write_row)
    return begun.write_row


@pytest.mark.parametrize("writer", [table, figure, journal])
def test_a_full_disk_is_one_line_and_leaves_no_file(writer, tmp_path):
    for name in ("first", "out"):
        (tmp_path / name).mkdir()
    writer(tmp_path / "first")()  # what it imports is written to no disk any more
    write, folder = writer(tmp_path / "out"), tmp_path / "out"
    free, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))  # no file of this process may grow
    try:
        with pytest.raises((OSError, InfrastructureError)) as refused:
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (free, most))
    (line,) = str(refused.value).splitlines()
    assert str(folder) in line
    left = [path.name for path in folder.rglob("*") if path.is_file()]
    assert left in ([], ["journal.jsonl"])  # appended to by others, too: it stays
