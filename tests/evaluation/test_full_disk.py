"""A disk that takes nothing more: whoever writes says so in one line, and leaves nothing half or empty."""

import subprocess
import sys

import pytest

# While it writes, no file of this process may grow: what a full disk does, without one.
BEGIN = """
import resource, sys
from pathlib import Path
import pandas as pd
from pwagents.errors import InfrastructureError

frame = pd.DataFrame({"x": [1]})

def told(write):
    free, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        write()
    except (OSError, InfrastructureError) as error:
        print(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, most))
"""
WRITERS = {
    "a table": """
from pwagents.evaluation.tables import save_table
told(lambda: save_table(frame, "t", title="T", output_dir=folder))
""",
    "a figure": """
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot as plt
from pwagents.notebook.figures import write_figure
fig, ax = plt.subplots(); ax.plot([1, 2]); fig.canvas.draw()
told(lambda: write_figure(fig, folder / "f.png"))
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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folders of all writers, and what each said, by its name: one process, which has imported all."""
    root, program = tmp_path_factory.mktemp("disk"), BEGIN
    for i, (name, writer) in enumerate(WRITERS.items()):
        folder = root / str(i) / "out"
        folder.mkdir(parents=True)
        program += f"\nfolder = Path({str(folder)!r})\n{writer}\nprint({f'end of {name}'!r})\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rest, said = done.stdout, {}
    for name in WRITERS:
        said[name], _, rest = rest.partition(f"end of {name}\n")
    return {name: root / str(i) / "out" for i, name in enumerate(WRITERS)}, said


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_line_and_leaves_no_file(name, written):
    folder, (line,) = written[0][name], written[1][name].splitlines()
    assert str(folder) in line
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert all(path.name == "journal.jsonl" for path in left)  # appended to by others, too: it stays
