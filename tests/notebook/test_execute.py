"""How a failed notebook is told: errors whose message says all without a traceback, others with one."""

import nbformat
import pytest

from pwagents.notebook.execute import TOLD_WHOLE, main, run

RAISES = """
class {name}(RuntimeError):
    pass

raise {name}("the model needs 90 GiB")
"""


def write_notebook(folder, monkeypatch, code):
    """A notebook of one cell below the parameters, in what is then the project."""
    monkeypatch.chdir(folder)
    (folder / "notebooks").mkdir()
    cells = [nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]})]
    cells.append(nbformat.v4.new_code_cell(code))
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})
    nbformat.write(notebook, folder / "notebooks" / "fails.ipynb")


@pytest.mark.parametrize(("name", "whole"), [("DoesNotFitError", True), ("SomeError", False)])
def test_an_error_whose_message_says_all_is_told_in_a_line(name, whole, tmp_path, monkeypatch, capsys):
    write_notebook(tmp_path, monkeypatch, RAISES.format(name=name))
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


@pytest.mark.parametrize("changes", ["few", "[1]", "study: {"])
def test_changes_are_yaml_by_name(changes, monkeypatch, capsys):
    arguments = ["execute", "01_data", "--preset", "smoke", "--output-dir", "o", "--changes", changes]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit):
        main()
    assert "--changes: " in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run("01_data", "smoke", tmp_path / "file" / "outputs") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("end", ["print(url)", "raise ValueError(url)"])
def test_no_executed_notebook_keeps_a_password(end, tmp_path, monkeypatch, capsys):
    code = "# https://example.org/@me stays\nurl = 'https://me:hunter2@host/v1'\n"
    write_notebook(tmp_path, monkeypatch, code + end)
    run("fails", "smoke", tmp_path / "outputs")
    (executed,) = (tmp_path / "outputs").rglob("fails.ipynb")
    text = executed.read_text()
    assert (
        "hunter2" not in text + str(capsys.readouterr())
        and "//[password]@host/v1" in text
        and "https://example.org/@me" in text
    )
