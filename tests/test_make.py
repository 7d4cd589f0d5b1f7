"""What `make` promises about notebooks, shown on a copy of the project with two tiny notebooks."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import pytest

PARAMETERS = """preset = ""
output_dir = ""
stored_runs_only = False"""
WRITE = (
    "from pathlib import Path\n"
    "folder = Path(output_dir, 'tables'); folder.mkdir(parents=True, exist_ok=True)\n"
    "(folder / f'{name}.csv').write_text(f'{preset}')"
)
NOTEBOOK = "outputs/smoke/notebooks/01_data.ipynb"  # as a target: this notebook alone
ERROR = "raise ValueError('no such product')"
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
WAIT = "import time\nopen('waiting', 'w').close()\ntime.sleep(60)"


def write_notebook(root, name, *cells):
    cells = [nbformat.v4.new_code_cell(cell) for cell in (PARAMETERS, f"name = {name!r}", *cells)]
    cells[0].metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, root / "notebooks" / f"{name}.ipynb")


class Project:
    """The copy, and `make` in it with the environment that runs these tests."""

    def __init__(self, root):
        self.root = root
        self.notebooks = root / "outputs/smoke/notebooks"

    def command(self, *arguments):
        return ["make", *arguments, f"VENV={sys.prefix}", f"READY={self.root / 'ready'}"]

    def environment(self):
        # An outer `make test` must not hand its own settings down.
        makes = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
        ours = ("PRESET", "OUTPUTS", "DATA_DIR", "OMP_NUM_THREADS")
        return {key: value for key, value in os.environ.items() if key not in makes + ours}

    def make(self, *arguments):
        return subprocess.run(
            self.command(*arguments), cwd=self.root, env=self.environment(), capture_output=True, text=True
        )

    def would_run(self, *arguments):
        """The notebooks that `make reproduce` would run now."""
        done = self.make("--dry-run", "reproduce", "PRESET=smoke", *arguments)
        assert done.returncode == 0, done.stderr
        return re.findall(r"pwagents\.notebook\.execute .* (\w+)$", done.stdout, re.MULTILINE)


@pytest.fixture
def project(tmp_path, project_root):
    shutil.copy(project_root / "Makefile", tmp_path)
    shutil.copy(project_root / "pyproject.toml", tmp_path)
    shutil.copy(project_root / "requirements.lock", tmp_path)
    library = tmp_path / "lib" / "pwagents"
    library.mkdir(parents=True)
    (library / "module.py").write_text("")
    (tmp_path / "notebooks").mkdir()
    for preset in ("smoke", "laptop", "paper"):
        folder = tmp_path / "params" / preset
        folder.mkdir(parents=True)
        for name in ("common", "puma", "01_data"):
            (folder / f"{name}.yaml").write_text("seed: 1\n")
    write_notebook(tmp_path, "01_data", WRITE)
    write_notebook(tmp_path, "03_benchmark", WRITE)
    (tmp_path / "ready").touch()
    return Project(tmp_path)


@pytest.fixture
def reproduced(project):
    """The project with finished notebooks, made by hand."""
    project.notebooks.mkdir(parents=True)
    for name in ("01_data", "03_benchmark"):
        shutil.copy(project.root / "notebooks" / f"{name}.ipynb", project.notebooks)
    past = time.time() - 60
    for path in project.root.rglob("*"):
        os.utime(path, (past, past) if project.notebooks in path.parents else (past - 60, past - 60))
    return project


def test_help_is_the_default_and_lists_every_target(project):
    shown = project.make().stdout
    assert shown == project.make("help").stdout
    targets = (
        "setup lock lab web serve test reproduce reproduce-full figures report check lint data clean help"
    )
    assert set(re.findall(r"^  ([\w-]+)", shown, re.MULTILINE)) == {*targets.split(), "help"}


def test_an_unknown_preset_is_one_clear_error(project):
    done = project.make("reproduce", "PRESET=huge")
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "huge" in done.stderr and "smoke laptop paper" in done.stderr


def test_reproduce_runs_both_side_by_side_and_then_has_nothing_to_do(project):
    done = project.make("CORES=2", "reproduce", "PRESET=smoke")
    assert done.returncode == 0, done.stderr
    tables = project.root / "outputs/smoke/tables"
    assert (tables / "01_data.csv").read_text() == "smoke"
    assert (tables / "03_benchmark.csv").read_text() == "smoke"
    assert re.search(r"\[01_data\] done in \d+ min", done.stdout)
    assert "outputs/smoke/notebooks/03_benchmark.ipynb" in done.stdout
    assert project.would_run() == []


@pytest.mark.parametrize(
    ("touched", "expected"),
    [
        ("params/smoke/01_data.yaml", ["01_data"]),
        ("params/smoke/common.yaml", ["01_data", "03_benchmark"]),
        ("params/laptop/common.yaml", ["01_data", "03_benchmark"]),
        ("params/smoke/puma.yaml", []),
        ("params/paper/common.yaml", []),
        ("notebooks/03_benchmark.ipynb", ["03_benchmark"]),
        ("lib/pwagents/module.py", ["01_data", "03_benchmark"]),
        ("ready", ["01_data", "03_benchmark"]),
    ],
)
def test_only_what_follows_from_a_change_runs_again(reproduced, touched, expected):
    assert reproduced.would_run() == []
    (reproduced.root / touched).touch()
    assert reproduced.would_run() == expected


def test_a_notebook_follows_those_declared_upstream(reproduced):
    (reproduced.root / "upstream.mk").write_text("$(NB)/03_benchmark.ipynb: $(NB)/01_data.ipynb\n")
    makefiles = ("-f", "Makefile", "-f", "upstream.mk")
    assert reproduced.would_run(*makefiles) == []
    (reproduced.root / "params/smoke/01_data.yaml").touch()
    assert reproduced.would_run(*makefiles) == ["01_data", "03_benchmark"]


def test_the_summary_runs_last_and_again_after_what_it_reads(reproduced):
    for name in ("04_puma", "05_orion_sft", "06_orion_grpo", "10_summary"):
        write_notebook(reproduced.root, name, WRITE)
    assert reproduced.would_run()[-1] == "10_summary"
    for path in (reproduced.root / "notebooks").iterdir():
        shutil.copy(path, reproduced.notebooks)
    assert reproduced.would_run() == []
    (reproduced.root / "params/smoke/puma.yaml").touch()
    assert reproduced.would_run() == ["04_puma", "10_summary"]


def test_the_summary_reads_notebook_07_where_that_one_runs_too(reproduced):
    for name in ("04_puma", "05_orion_sft", "06_orion_grpo", "07_ablations", "10_summary"):
        write_notebook(reproduced.root, name, WRITE)
        shutil.copy(reproduced.root / "notebooks" / f"{name}.ipynb", reproduced.notebooks)
    (reproduced.root / "notebooks" / "07_ablations.ipynb").touch()
    assert reproduced.would_run() == []
    assert reproduced.would_run("reproduce-full") == ["07_ablations", "10_summary"]


def test_laptop_plays_notebook_04_again_with_all_variants_and_that_is_it(project):
    (project.root / "notebooks/01_data.ipynb").unlink()
    for other in ("03_benchmark", "05_orion_sft", "06_orion_grpo", "07_ablations"):
        write_notebook(project.root, other, WRITE)
    write_notebook(project.root, "10_summary", WRITE, "Path(output_dir, 'told').open('a').write('summary ')")
    add = "study = {}"
    told = "Path(output_dir, 'told').open('a').write(f'{study} ')"
    write_notebook(project.root, "04_puma", add, WRITE, told)
    notebook = nbformat.read(project.root / "notebooks/04_puma.ipynb", as_version=4)
    notebook.cells[0].source += f"\n{add}"
    del notebook.cells[2]
    nbformat.write(notebook, project.root / "notebooks/04_puma.ipynb")
    for _ in range(2):
        done = project.make("reproduce-full", "PRESET=laptop")
        assert done.returncode == 0, done.stderr
        assert (project.root / "outputs/laptop/told").read_text() == "{} {'variants': 'all'} summary "
    assert project.make("--dry-run", "reproduce-full", "PRESET=smoke").stdout.count("04_puma") == 1


def test_figures_are_drawn_in_the_format_and_style_of_choice(project):
    shown = project.make("--dry-run", "figures", "PRESET=smoke").stdout
    assert shown.strip().endswith("pwagents.notebook.figures outputs/smoke --formats png svg")
    shown = project.make(
        "--dry-run", "figures", "PRESET=smoke", "FORMATS=pdf", "STYLE=my talk.mplstyle"
    ).stdout
    assert shown.endswith('--formats pdf --style "my talk.mplstyle"\n')


def fail(project, cell, message):
    """Run a notebook that fails in ``cell``: the reason is told, and what there is of it is kept."""
    write_notebook(project.root, "01_data", cell, WRITE)
    done = project.make(NOTEBOOK, "PRESET=smoke")
    assert done.returncode != 0
    assert message in done.stderr
    partial = re.search(r"as far as it came: (\S+)", done.stderr).group(1)
    assert (project.root / partial).exists()


def test_a_notebook_whose_kernel_dies_leaves_no_finished_output_and_says_why(project):
    fail(project, KILL, "kernel died")
    assert not (project.notebooks / "01_data.ipynb").exists()
    assert project.would_run() == ["01_data", "03_benchmark"]


def test_a_failed_run_keeps_the_earlier_output_out_of_date_and_says_why(reproduced):
    earlier = (reproduced.notebooks / "01_data.ipynb").read_bytes()
    fail(reproduced, ERROR, "no such product")
    assert (reproduced.notebooks / "01_data.ipynb").read_bytes() == earlier
    assert reproduced.would_run() == ["01_data"]


def test_a_killed_make_leaves_no_finished_output_and_a_notebook_edited_while_it_runs_runs_again(project):
    write_notebook(project.root, "01_data", WAIT)
    process = subprocess.Popen(
        project.command(NOTEBOOK, "PRESET=smoke"),
        cwd=project.root,
        env=project.environment(),
        start_new_session=True,
    )
    deadline = time.time() + 60
    while not (project.root / "waiting").exists():
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.1)
    refused = project.make(NOTEBOOK, "PRESET=smoke")
    assert refused.returncode != 0
    assert "another process is running this notebook" in refused.stderr

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (project.notebooks / "01_data.ipynb").exists()
    edit = "import time; time.sleep(0.1); open('params/smoke/01_data.yaml', 'a').write('x: 1')"
    write_notebook(project.root, "01_data", edit)
    done = project.make(NOTEBOOK, "PRESET=smoke")  # which the killed one does not block
    assert done.returncode == 0, done.stderr
    assert (project.notebooks / "01_data.ipynb").exists()
    assert "01_data" in project.would_run()


def test_a_duplicated_notebook_is_passed_over(reproduced):
    folder = reproduced.root / "notebooks"
    shutil.copy(folder / "03_benchmark.ipynb", folder / "03_benchmark-Copy1.ipynb")
    assert reproduced.would_run() == []
    assert "Copy1" not in reproduced.make("--dry-run", "lint").stdout


def test_lab_opens_at_the_root_so_that_results_can_be_read(project):
    assert "--notebook-dir=. " in project.make("--dry-run", "lab").stdout


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        (["PRESET=smoke", "CORES=4"], 1),
        (["PRESET=smoke", "CORES=4", "JOBS=2"], 2),
        (["PRESET=smoke", "CORES=2", "JOBS=1000"], 1),
        (["PRESET=paper", "CORES=4"], 4),
    ],
)
def test_notebooks_run_beside_each_other_and_share_the_cores(project, arguments, threads):
    name = "outputs/paper/notebooks/01_data.ipynb" if "PRESET=paper" in arguments else NOTEBOOK
    shown = project.make("--dry-run", name, *arguments).stdout
    assert f" OMP_NUM_THREADS={threads} " in f" {shown}"


@pytest.mark.parametrize(("arguments", "folder"), [([], "data/personalwab"), (["DATA_DIR=/a b"], "/a b")])
def test_data_downloads_into_the_folder_of_choice(project, arguments, folder):
    shown = project.make("--dry-run", "data", *arguments).stdout
    assert shown.endswith(f'/python -m pwagents.data.download --data-dir "{folder}"\n')


def test_data_shows_the_licence_and_one_clear_error_where_it_cannot_write(project):
    in_the_way = project.root / "Makefile" / "data"
    done = project.make("data", f"DATA_DIR={in_the_way}")
    assert done.returncode != 0
    assert "CC BY-NC 4.0" in done.stdout
    assert str(in_the_way) in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("target", ["clean", "reproduce", "help"])
@pytest.mark.parametrize("outputs", ["", " ", "my results", " a  b "])
def test_outputs_must_be_one_folder(reproduced, outputs, target):
    done = reproduced.make("--dry-run", target, "PRESET=smoke", f"OUTPUTS={outputs}")
    assert done.returncode != 0 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "expected the path of a folder" in done.stderr
    assert reproduced.notebooks.exists()


def test_clean_removes_the_results_of_its_preset_alone(reproduced):
    kept = reproduced.root / "outputs/reference/table.csv"
    kept.parent.mkdir()
    kept.touch()
    done = reproduced.make("clean", "PRESET=smoke")
    assert "outputs/smoke" in done.stdout
    assert not (reproduced.root / "outputs/smoke").exists()
    assert kept.exists()
