"""How a failed notebook is told: errors whose message says all without a traceback, others with one."""

import nbformat
import pytest

from pwagents.notebook.execute import TOLD_WHOLE, main, run

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
    import builtins

    from pwagents import errors
    from pwagents.llm import budget, failures
    from pwagents.lm import fit, launch

    modules = (builtins, errors, budget, failures, fit, launch)
    assert all(any(hasattr(module, name) for module in modules) for name in TOLD_WHOLE)


@pytest.mark.parametrize("folder", ["", "  "])
def test_results_need_a_folder(folder, monkeypatch, capsys):
    arguments = ["execute", "01_data", "--preset", "smoke", "--output-dir", folder]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.splitlines()[-1].endswith("--output-dir: empty; expected a folder")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run("01_data", "smoke", tmp_path / "file" / "outputs") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
