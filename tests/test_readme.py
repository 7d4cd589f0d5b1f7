"""The words of README and GUIDE: their examples run, their commands and names are there."""

import dataclasses
import importlib
import inspect
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import yaml

from pwagents import __main__ as shell
from pwagents.data.synthetic import make_world
from pwagents.errors import SettingsError
from pwagents.report.reference import read_episodes
from pwagents.schema import Product, Task, Trajectory
from pwagents.settings import NOTEBOOKS, load_settings
from pwagents.shop.environment import DETAILS_FUNCTION, FUNCTIONS, BeliefState
from pwagents.shop.score import grade

from .notebook.notebooks import ROOT, parameters_of

README = (ROOT / "README.md").read_text("utf-8")
GUIDE = (ROOT / "GUIDE.md").read_text("utf-8")
TEXTS = README + GUIDE
SHELL = "\n".join(re.findall(r"```bash\n(.*?)```", TEXTS, re.DOTALL)).replace("\\\n", " ")
COMMANDS = [line.strip() for line in SHELL.splitlines() if "bin/papermill notebooks/" in line]
EVALUATIONS = [line for line in SHELL.splitlines() if "-m pwagents evaluate" in line]
PYTHON = re.findall(r"```python\n(.*?)```", TEXTS, re.DOTALL)


@pytest.mark.parametrize("code", [code for code in PYTHON if code not in README])
def test_an_example_runs(code, tmp_path):
    code = code.replace('preset="smoke"', f'preset="smoke", output_dir={str(tmp_path / "out")!r}')
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if "my_data" in code:  # its tables can be read again, as the next paragraph says
        from datasets import load_dataset

        tables = {"tasks_test": Task, "products": lambda **p: Product(**p | {"details": dict(p["details"])})}
        for name, make in tables.items():
            files = {"data_files": str(tmp_path / f"my_data/{name}.parquet"), "cache_dir": str(tmp_path)}
            rows = load_dataset("parquet", split="train", **files)
            assert len([make(**row) for row in rows]) == len(rows) > 0


def test_the_example_of_an_agent_runs_as_a_script_and_from_the_shell(tmp_path, monkeypatch, capsys):
    """Both leave the same table."""
    (code,) = (code for code in PYTHON if code in README)
    (command,) = EVALUATIONS
    kept = str(tmp_path / "out")
    script = code.replace('preset="smoke"', f'preset="smoke", output_dir={kept!r}')
    (tmp_path / "my_agent.py").write_text(script)
    done = subprocess.run([sys.executable, "my_agent.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    python, module, name, *arguments = shlex.split(command)
    assert python.endswith("python") and (module, name) == ("-m", "pwagents")
    monkeypatch.chdir(tmp_path)  # in this process, which has imported all that it needs
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["pwagents", *arguments, "--output-dir", kept])
    assert shell.main() == 0
    tables = [out.partition("search\n")[2] for out in (done.stdout, capsys.readouterr().out)]
    assert tables[0] == tables[1] and "Reference: oracle" in tables[0] and "LastBrand" in tables[0]
    assert len((tmp_path / "out/runs/evaluate.jsonl").read_text().splitlines()) == 2 * 20
    assert (tmp_path / "out/episodes/LastBrand_multi_turn_synthetic_smoke_20.html").exists()


def test_the_guide_lists_what_an_agent_knows_and_what_it_calls():
    own_agent = GUIDE.split("## Your agent")[1]
    rows = re.findall(r"^\| `(.*?)`(?:, `(.*?)`)? \| (?:`(\w+)`|none)?", own_agent, re.M)
    fields = {name for row in rows if not row[2] for name in row[:2]} - {""}
    assert {each.name for each in dataclasses.fields(BeliefState)} | {"user_texts"} <= fields
    functions = {name: inspect.signature(each.raw_function).parameters for name, each in FUNCTIONS.items()}
    called = {name: " ".join(list(given)[1:]) for name, given in functions.items()}
    assert called.pop(DETAILS_FUNCTION) == "product_asin"  # which one method alone is offered
    assert called.items() <= {name: argument for name, _, argument in rows}.items()


# "`name(...)` of `pwagents.module`" and "`pwagents.module.name`"
_OF = re.findall(r"`([A-Za-z_]\w*)[^`]*`\s+(?:of|in)\s+`(pwagents[\w.]+)`", GUIDE)
_DOTTED = re.findall(r"`(pwagents(?:_old)?(?:\.\w+)+)", GUIDE)


@pytest.mark.parametrize("name", sorted({*_DOTTED, *(f"{module}.{name}" for name, module in _OF)}))
def test_a_name_of_the_library_in_the_guide_is_there(name):
    module, _, last = name.rpartition(".")
    place = find_spec(module)
    if place.submodule_search_locations and not last[0].isupper() and find_spec(name):
        return
    is_written = re.search(rf"^(class|def) {last}\b", Path(place.origin).read_text("utf-8"), re.MULTILINE)
    assert is_written or hasattr(importlib.import_module(module), last)  # some modules need an extra


def test_a_command_in_the_guide_names_a_target_or_a_file_that_is_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    named = re.findall(r"^make ([\w-]+)", SHELL, re.M) + re.findall(r"`make ([\w-]+)", TEXTS)
    assert named and {*named} <= {*targets}
    files = re.findall(r"(?:bin/python |`)((?:benchmarks|lib)/[\w/.-]+)", TEXTS)
    assert files and [file for file in files if not (ROOT / file).exists()] == []


def test_stored_replies_are_copied_into_one_file(tmp_path):
    (command,) = re.findall(r'bin/python -c "(.*VACUUM.*)"$', SHELL, re.M)
    (tmp_path / "outputs/qwen/runs").mkdir(parents=True)
    with sqlite3.connect(tmp_path / "outputs/qwen/runs/replies.sqlite") as replies:
        replies.execute("CREATE TABLE reply (text)")
    code = command.replace('\\"', '"')  # as the shell reads it
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert sqlite3.connect(tmp_path / "replies.sqlite").execute("SELECT * FROM reply").fetchall() == []


@pytest.mark.parametrize("changes", re.findall(r"`-y '(.*?)'`", GUIDE))
def test_a_change_of_settings_in_the_text_is_one_of_a_notebook(changes):
    found = []
    for name in NOTEBOOKS:
        with suppress(SettingsError):
            found.append(load_settings(name, parameters_of(name) | yaml.safe_load(changes)))
    assert found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_papermill_command_sets_what_the_notebook_has(command, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = shlex.split(command)
    (name,) = re.findall(r"notebooks/(\w+|\$nb)\.ipynb", words[1])
    given = {words[i + 1]: words[i + 2] for i, word in enumerate(words) if word == "-p"}
    for text in (words[i + 1] for i, word in enumerate(words) if word == "-y"):
        given |= yaml.safe_load(text)
    if "data_dir" in given:  # its files are not there
        given |= {"source": "", "data_dir": ""}
    for notebook in ("01_data", "03_benchmark") if name == "$nb" else (name,):
        loaded = load_settings(notebook, parameters_of(notebook) | given)
        assert loaded.output_dir == ROOT / given["output_dir"]


REFERENCE = ROOT / "outputs" / "reference"
RESULTS = (ROOT / "RESULTS.md").read_text("utf-8").split("\n## ")
NUMBER = re.compile(r"(?<![\d.])\.\d\d(?!\d)(?: \[-?\.\d\d, -?\.\d\d\])?")
NOTEBOOK = re.compile(r"\((\d\d)\)|notebooks/(\d\d)_")
PASSAGES = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=\||- |\d\. )", TEXTS)]
TOLD = [(text, "".join(place.groups(""))) for text in PASSAGES if (place := NOTEBOOK.search(text))]


@pytest.mark.parametrize(("text", "notebook"), [(text, n) for text, n in TOLD if NUMBER.search(text)])
def test_numbers_of_readme_and_guide_are_those_of_the_notebooks_findings(text, notebook):
    """RESULTS.md has them, which is made of stored tables; the last test has those of repurchases."""
    findings = " ".join(" ".join(part for part in RESULTS if f"notebook [{notebook}_" in part).split())
    assert findings and [number for number in NUMBER.findall(text) if number not in findings] == []


def test_readme_has_five_findings_with_a_number_each():
    findings = [text for text, _ in TOLD if re.match(r"\d\. ", text) and NUMBER.search(text)]
    assert len(findings) == 5 and all("make reproduce" in text for text in findings)


# Question of RESULTS.md -> stored episodes, and whose recommendations it tells apart.
REPURCHASES = {
    "How much does memory help a rule-based agent?": ("03_single_turn", ["Plain, relevant memory"]),
    "Is PUMA best, and which of its parts bring what?": ("04_puma", ["PUMA", "PUMA+"]),
}


@pytest.fixture(scope="module")
def is_repurchase():
    """Test task of a recommendation in laptop's world -> whether its user had bought the target before."""
    laptop = load_settings("01_data", {"preset": "laptop"})
    benchmark = make_world(laptop.data, laptop.seed).benchmark
    tasks = [task for task in benchmark.tasks["test"] if task.type == "recommend"]
    return {t.task_id: t.target in {b.parent_asin for b in benchmark.history(t, "test")} for t in tasks}


@pytest.mark.parametrize("question", REPURCHASES)
def test_results_tell_repurchases_from_new_products(question, is_repurchase):
    runs, methods = REPURCHASES[question]
    episodes = read_episodes(REFERENCE / "runs" / f"{runs}.parquet", {*methods})
    stored = pd.DataFrame(each for each in episodes if each["type"] == "recommend")
    stored = stored.drop_duplicates(["method", "task_id"])  # the main test comes first
    result = [grade(Trajectory.model_validate(each)).result_official for each in stored["trajectory"]]
    means = stored.assign(result=result, again=stored["task_id"].map(is_repurchase))
    means = means.groupby(["method", "again"])["result"].mean().map("{:.2f}".format).str.lstrip("0")
    (finding,) = (part for part in RESULTS if part.startswith(question))
    _, _, finding = " ".join(finding.split()).partition("bought before")
    for mean in (mean for name in methods for mean in means[name]):
        assert re.search(rf"(?<!\d){re.escape(mean)}(?!\d)", finding), means
    assert f"{pd.Series(is_repurchase).mean():.2f}".removeprefix("0") == ".40" and "bought .40 of" in README
