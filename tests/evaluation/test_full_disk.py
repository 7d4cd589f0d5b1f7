"""A disk that takes nothing more: whoever writes says so in one line, and leaves nothing half or empty."""

import subprocess
import sys

import pytest

# No file of this process may grow: what a full disk does, without one.
BEGIN = """
import resource, sys
from pathlib import Path
import pandas as pd
from pwagents.errors import InfrastructureError

folder, frame = Path(sys.argv[1]), pd.DataFrame({"x": [1]})

def fill_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

def told(write):
    fill_disk()
    try:
        write()
    except (OSError, InfrastructureError) as error:
        print(str(error))
"""
WRITERS = {
    "a table": """
from pwagents.evaluation.tables import save_table
told(lambda: save_table(frame, "t", title="T", output_dir=folder))
""",
    "a figure": """
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot as plt
from pwagents.evaluation.figure_files import save_figure
fig, ax = plt.subplots(); ax.plot([1, 2]); fig.canvas.draw()
told(lambda: save_figure(fig, "f", frame, output_dir=folder))
""",
    "a new store of replies": """
from pwagents.llm.store import ResponseStore
told(lambda: ResponseStore(folder / "replies.sqlite"))
""",
    "an export": """
from pwagents.llm.chat import Reply, Request
from pwagents.llm.store import ResponseStore
store = ResponseStore(folder.parent / "replies.sqlite")
store.put([Request(messages=()).content("m")], [Reply()])
told(lambda: store.export(folder / "replies.jsonl"))
""",
    "the journal": """
from pwagents.notebook.journal import Journal
journal = Journal.start("01_data", {"preset": "smoke", "seed": 0, "data": {"source": "x"}}, folder)
import atexit; atexit.unregister(journal._append)
told(journal._append)
""",
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_line_and_leaves_no_file(name, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-c", BEGIN + WRITERS[name], str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert str(folder) in line
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert all(path.name == "journal.jsonl" for path in left)  # appended to by others, too: it stays
