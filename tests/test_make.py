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

NAMES = ("01_data", "03_benchmark", "04_puma", "05_orion_sft", "06_orion_grpo", "07_ablations", "10_summary")
WRITE = (
    "from pathlib import Path\n"
    "folder = Path(output_dir, 'tables'); folder.mkdir(parents=True, exist_ok=True)\n"
    "(folder / f'{name}.csv').write_text(preset)"
)
NOTEBOOK = "outputs/smoke/notebooks/01_data.ipynb"  # as a target: this notebook alone
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
WAIT = "import time\nopen('waiting', 'w').close()\ntime.sleep(60)"
EDIT = "import time\ntime.sleep(0.1)\nopen('{}', 'a').write('{}')"
EDITS = (("params/smoke.yaml", "01_data: {x: 1}"), ("lib/pwagents/module.py", "x = 1"))
PARAMS = (
    "# On all.\nall: {seed: 1}\n\norion:\n  rl: {lam: 1}\n\n01_data:\n  show: {rows: 1}\n\n04_puma: {a: 1}\n"
)


class Project:
    """The copy, and `make` in it with the environment that runs these tests."""

    def __init__(self, root):
        self.root = root
        self.notebooks = root / "outputs/smoke/notebooks"

    def add(self, name, *cells):
        cells = [nbformat.v4.new_code_cell(cell) for cell in ("preset = output_dir = ''", *cells)]
        cells[0].metadata["tags"] = ["parameters"]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, self.root / "notebooks" / f"{name}.ipynb")

    def start(self, *arguments, **options):
        # An outer `make test` must not hand its own settings down.
        aside = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PRESET", "OUTPUTS", "OMP_NUM_THREADS")
        environment = {key: value for key, value in os.environ.items() if key not in aside}
        command = ["make", *arguments, f"VENV={sys.prefix}", f"READY={self.root / 'ready'}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.root, env=environment, **pipes, **options)

    def make(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def plan(self, target="reproduce", preset="smoke", *more):
        """The notebooks that `make` runs now, in their order: a script says them, and dates its output."""
        done = self.make(target, f"PRESET={preset}", "JOBS=1", "run=sh told -m", *more)
        assert done.returncode == 0, done.stderr
        return re.findall(r"pwagents\.execute .*/\w+ (\w+.*)$", done.stdout, re.MULTILINE)


@pytest.fixture
def project(tmp_path, project_root):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(project_root / name, tmp_path)
    for folder in ("lib/pwagents", "notebooks", "params"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib/pwagents/module.py").touch()
    for preset in ("smoke", "laptop", "paper", "open"):
        (tmp_path / "params" / f"{preset}.yaml").write_text(PARAMS)
    (tmp_path / "ready").touch()
    (tmp_path / "told").write_text('echo "$@"; touch "$6/notebooks/$7.ipynb"')
    project = Project(tmp_path)
    for name in NAMES[:2]:
        project.add(name, f"name = {name!r}", WRITE)
    return project


@pytest.fixture
def reproduced(project):
    """The project with finished notebooks, made by hand."""
    for name in NAMES:
        project.add(name, "name = 0", WRITE)
    past = time.time() - 60
    for path in project.root.rglob("*"):
        os.utime(path, (past, past))
    shutil.copy(project.root / "notebooks/01_data.ipynb", project.root / "notebooks/01_data-Copy1.ipynb")
    assert sorted(project.plan()) == sorted({*NAMES} - {"07_ablations"}), "a copy is passed over"
    shutil.copy2(project.root / "notebooks/07_ablations.ipynb", project.notebooks)
    return project


def test_help_is_the_default_and_lists_every_target(project):
    shown = project.make().stdout
    targets = "setup lock lab web serve test reproduce reproduce-full figures report check lint data clean"
    targets += " help preflight models papers web-bench recipes"
    assert {*re.findall(r"^  ([\w-]+)", shown, re.MULTILINE)} >= {*targets.split()}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("PRESET=huge", "smoke laptop paper"), ("OUTPUTS=", "path of a folder"), ("OUTPUTS=a b", "path of a")],
)
def test_a_wrong_variable_is_one_clear_error(project, wrong, said):
    done = project.make("clean", "PRESET=smoke", wrong)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1 and said in done.stderr


def test_reproduce_runs_both_side_by_side_and_then_has_nothing_to_do(project):
    done = project.make("CORES=2", "reproduce", "PRESET=smoke")
    assert done.returncode == 0, done.stderr
    for name in NAMES[:2]:
        assert (project.root / f"outputs/smoke/tables/{name}.csv").read_text() == "smoke"
        assert re.search(rf"\[{name}\] done in \d+ min", done.stdout)
    again = project.make("reproduce", "PRESET=smoke").stdout.strip()
    assert again.endswith("Nothing to be done for 'reproduce'.")


OF_ORION = ["05_orion_sft", "06_orion_grpo", "10_summary"]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("params/smoke.yaml", "rows: 1", "rows: 2", ["01_data"]),
        ("params/laptop.yaml", "a: 1", "a: 2", ["04_puma", "10_summary"]),
        ("params/smoke.yaml", "lam: 1", "lam: 2", OF_ORION),
        ("params/smoke.yaml", "seed: 1", "seed: 2", NAMES),
        ("params/smoke.yaml", "On all", "Of all", []),
        ("params/paper.yaml", "seed: 1", "seed: 2", []),
        ("notebooks/05_orion_sft.ipynb", "name = 0", "name = 1", OF_ORION),
        ("lib/pwagents/module.py", "", "x = 1", NAMES),
        ("ready", "", "x", NAMES),
    ],
)
def test_only_what_follows_from_a_change_runs_again(reproduced, file, old, new, expected):
    assert reproduced.plan() == []
    text = (reproduced.root / file).read_text()
    (reproduced.root / file).write_text(text.replace(old, new, 1))
    assert sorted(reproduced.plan()) == sorted({*expected} - {"07_ablations"})


def test_a_change_of_data_runs_what_reads_them_again(reproduced):
    data = "\n03_benchmark:\n  data: {source: amazon, data_dir: 'my shop', n_users: 5}  # a data_dir: mine\n"
    (reproduced.root / "params/smoke.yaml").write_text(PARAMS + data)
    reproduced.add("01_data", 'data_dir = "own"', 'REAL = "real"')
    reproduced.plan()

    def then(what, *expected):
        assert sorted(reproduced.plan()) == [*expected] and reproduced.plan() == [], what

    benchmark, reviews = ("03_benchmark", "10_summary"), reproduced.root / "my shop/part/reviews.jsonl"
    reviews.parent.mkdir(parents=True)
    reviews.write_text("one\ntwo\n")
    then("data appear", *benchmark)
    reviews.write_text("one\n")
    then("half are removed", *benchmark)
    (reviews.parent / "copy").write_text("two\n")
    os.utime(reviews.parent / "copy", (1, 1))
    then("a file is added", *benchmark)
    (reviews.parent / "copy").replace(reviews)
    then("replaced by an older file of the same size", *benchmark)
    (reviews.parent / ".git").write_text("x")
    then("what no reader reads")
    for folder in ("own", "real"):
        (reproduced.root / folder).mkdir()
        (reproduced.root / folder / "file").touch()
        then("what the notebook names appears", "01_data")
    shutil.rmtree(reproduced.root / "my shop")
    then("data disappear", *benchmark)


def test_reproduce_full_adds_07_and_at_laptop_03_in_further_worlds_and_all_of_04(reproduced):
    (reproduced.root / "notebooks/07_ablations.ipynb").touch()
    assert reproduced.plan("reproduce") == []
    assert reproduced.plan("reproduce-full") == ["07_ablations"]
    plan = reproduced.plan("reproduce-full", "laptop")
    again = plan.index("04_puma --changes study: {variants: all, worlds: [5, 6, 7, 8, 9]}")
    worlds = plan.index("03_benchmark --changes play: {worlds: [0, 1, 2, 3, 4]}")
    assert plan.index("04_puma") < again < plan.index("10_summary") == len(plan) - 1
    assert plan.index("03_benchmark") < worlds < len(plan) - 1
    scaling = plan.index("05_orion_sft --changes role_play: {scaling: [100, 1600], not_updated: 0.5}")
    with_ppo = plan.index("06_orion_grpo --changes rl: {methods: [GRPO, PPO], worlds: [5, 6, 7, 8, 9]}")
    assert scaling > 0 and plan.index("06_orion_grpo") < with_ppo < plan.index("07_ablations")
    assert plan[0] == "05_orion_sft"  # which takes the longest


def test_only_some_notebooks_run_with_those_that_they_read_from(reproduced):
    (reproduced.root / "lib/pwagents/module.py").write_text("x = 1")
    assert sorted(reproduced.plan("reproduce", "smoke", "ONLY=03 04")) == ["03_benchmark", "04_puma"]
    # 03 has a row of what 04 trains.
    assert reproduced.plan("reproduce", "paper")[:2] == ["04_puma", "05_orion_sft"]
    assert reproduced.plan("reproduce", "smoke", "ONLY=06") == ["05_orion_sft", "06_orion_grpo"]
    done = reproduced.make("reproduce", "PRESET=smoke", "ONLY=03 99")
    assert done.returncode != 0 and 'ONLY names "99"' in done.stderr


def test_a_notebook_that_cannot_start_stops_those_alone_that_read_from_it(project):
    refusal = "class SettingsError(ValueError): pass"
    project.add("05_orion_sft", refusal, "raise SettingsError('no such model')")  # which begins first
    project.add("06_orion_grpo", "name = '06_orion_grpo'", WRITE)
    done = project.make("reproduce", "PRESET=smoke", "JOBS=1")
    assert done.returncode != 0 and "SettingsError: no such model" in done.stderr
    assert re.search(r"^\[05_orion_sft\] failed", done.stderr, re.MULTILINE)
    tables = (project.root / "outputs/smoke/tables").iterdir()
    assert {path.name for path in tables} == {"01_data.csv", "03_benchmark.csv"}


@pytest.mark.parametrize(
    ("cell", "reason"), [(KILL, "kernel died"), ("raise ValueError('no such')", "no such")]
)
def test_a_failed_run_keeps_the_earlier_output_out_of_date_and_says_why(reproduced, cell, reason):
    earlier = (reproduced.notebooks / "01_data.ipynb").read_bytes()
    reproduced.add("01_data", cell)
    done = reproduced.make(NOTEBOOK, "PRESET=smoke")
    assert done.returncode != 0 and reason in done.stderr
    assert (reproduced.root / re.search(r"as far as it came: (\S+)", done.stderr)[1]).exists()
    assert (reproduced.notebooks / "01_data.ipynb").read_bytes() == earlier
    assert reproduced.plan() == ["01_data"]


def test_a_killed_make_leaves_no_finished_output_and_what_is_edited_while_it_runs_runs_again(project):
    project.add("01_data", WAIT)
    process = project.start(NOTEBOOK, "PRESET=smoke", start_new_session=True)
    deadline = time.time() + 60
    while not (project.root / "waiting").exists():
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.1)
    assert "another process is running this notebook" in project.make(NOTEBOOK, "PRESET=smoke").stderr
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (project.notebooks / "01_data.ipynb").exists()
    for edit in EDITS:
        project.add("01_data", EDIT.format(*edit))
        done = project.make(NOTEBOOK, "PRESET=smoke")  # which the killed one does not block
        assert done.returncode == 0, done.stderr
        assert (project.notebooks / "01_data.ipynb").exists() and "01_data" in project.plan()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((NOTEBOOK, "PRESET=smoke", "CORES=4", "JOBS=2"), "\nOMP_NUM_THREADS=2 "),
        ((NOTEBOOK.replace("smoke", "paper"), "PRESET=paper", "CORES=4"), "\nOMP_NUM_THREADS=4 "),
        (("figures", "PRESET=smoke"), "outputs/smoke --formats png svg"),
        (("figures", "FORMATS=pdf", "STYLE=my talk.mplstyle"), '--formats pdf --style "my talk.mplstyle"\n'),
        (("lab",), "--notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb"),
        (("preflight", "PRESET=paper", "ONLY=03"), "paper --output-dir outputs/paper 03_benchmark\n"),
        (("models",), "pwagents.preflight --models\n"),
        (("papers",), "pwagents.report.pages\n"),
    ],
)
def test_variables_reach_the_commands(project, arguments, part):
    assert part in f"\n{project.make('--dry-run', *arguments).stdout}"


def test_clean_removes_the_results_of_its_preset_alone(reproduced):
    kept = reproduced.root / "outputs/reference/table.csv"
    kept.parent.mkdir()
    kept.touch()
    reproduced.make("clean", "PRESET=smoke")
    assert not (reproduced.root / "outputs/smoke").exists() and kept.exists()
