"""How a failed notebook is told: errors whose message says all without a traceback, others with one."""

import nbformat
import pytest

from pwagents.execute import execute
from pwagents.settings import NOTEBOOKS, NotebookSettings

RAISES = """
class {name}(RuntimeError):
    pass

raise {name}("the model needs 90 GiB")
"""

FIGURE = """
import pandas as pd
from pwagents.results.figures import plot_lines
from pwagents.results.drawing import save_figure
frame = pd.DataFrame({"run": "a", "step": [0, 1], "loss": [1, 2]})
looks = {"x": "step", "y": "loss", "hue": "run", "xlabel": "steps", "ylabel": "loss"}
save_figure(plot_lines, "01_loss", frame, output_dir=output_dir, **looks)
"""


def write_notebook(folder, monkeypatch, code):
    """A notebook of one cell below the parameters, in what is then the project."""
    monkeypatch.chdir(folder)
    monkeypatch.setitem(NOTEBOOKS, "fails", NotebookSettings)
    (folder / "notebooks").mkdir()
    cells = [nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]})]
    cells.append(nbformat.v4.new_code_cell(code))
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})
    nbformat.write(notebook, folder / "notebooks" / "fails.ipynb")


@pytest.mark.parametrize(("name", "whole"), [("DoesNotFitError", True), ("SomeError", False)])
def test_an_error_whose_message_says_all_is_told_in_a_line(name, whole, tmp_path, monkeypatch):
    write_notebook(tmp_path, monkeypatch, RAISES.format(name=name))
    with pytest.raises(SystemExit) as end:
        execute("fails", "smoke", tmp_path / "outputs")
    message = str(end.value)
    assert name in message and "the model needs 90 GiB" in message
    assert "the notebook as far as it came" in message and ("Traceback" in message) != whole
    assert not (tmp_path / "outputs" / "notebooks" / "fails.ipynb").exists()


@pytest.mark.parametrize("end", ["print(url)", "raise ValueError(url)"])
def test_it_keeps_no_password_and_one_line_of_a_progress_bar_and_runs_no_startup_files(
    end, tmp_path, monkeypatch
):
    own = tmp_path / "own"
    startup = own / "profile_default" / "startup" / "first.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("print('my own startup')")
    (own / "matplotlibrc").write_text("font.size: 50")
    given = {"IPYTHONDIR": own, "PYTHONSTARTUP": startup, "MPLBACKEND": "agg", "MATPLOTLIBRC": own}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    code = "# https://example.org/@me stays\nurl = 'https://me:hunter2@host/v1'\n" + FIGURE
    code = f"# players: base_url: 'http://host/hunter2-and-more-letters/v1'\n{code}"
    bar = "from tqdm import tqdm\nimport sys\nfor _ in tqdm(range(9), file=sys.stdout, mininterval=0): pass\n"
    bar += "import matplotlib\nprint(matplotlib.get_backend(), 'size', matplotlib.rcParams['font.size'])\n"
    write_notebook(tmp_path, monkeypatch, code + bar + end)
    message = ""
    try:
        execute("fails", "smoke", tmp_path / "outputs")
    except SystemExit as stopped:
        message = str(stopped)
    (executed,) = (tmp_path / "outputs").rglob("fails.ipynb")
    text = executed.read_text()
    assert "hunter2" not in text + message and "//[password]@host/v1" in text
    assert "https://example.org/@me" in text and "9/9" in text and "0/9" not in text
    assert "my own startup" not in text and "inline size 10.0" in text
    assert '"source_hidden": true' in text and r"alt=\"Figure 01_loss: loss against steps" in text
