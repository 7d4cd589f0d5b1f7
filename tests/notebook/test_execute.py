"""How a failed notebook is told: errors whose message says all without a traceback, others with one."""

import nbformat
import pytest

from pwagents.notebook.execute import TOLD_WHOLE, run

RAISES = """
class {name}(RuntimeError):
    pass

raise {name}("the model needs 90 GiB")
"""


@pytest.mark.parametrize(("name", "whole"), [("DoesNotFitError", True), ("SomeError", False)])
def test_an_error_whose_message_says_all_is_told_in_a_line(name, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    cells = [nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]})]
    cells.append(nbformat.v4.new_code_cell(RAISES.format(name=name)))
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})
    nbformat.write(notebook, tmp_path / "notebooks" / "fails.ipynb")
    assert run("fails", "smoke", tmp_path / "outputs") == 1
    told = capsys.readouterr().err
    assert name in told and "the model needs 90 GiB" in told and "the notebook as far as it came" in told
    assert ("Traceback" in told) != whole
    assert not (tmp_path / "outputs" / "notebooks" / "fails.ipynb").exists()


def test_errors_told_whole_are_errors_of_the_library():
    from pwagents import errors
    from pwagents.lm import fit, launch

    assert all(any(hasattr(module, name) for module in (errors, fit, launch)) for name in TOLD_WHOLE)
