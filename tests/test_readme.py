"""The words of README and GUIDE: their examples run, their papermill commands set what exists."""

import re
import shlex
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from pwagents import __main__ as shell
from pwagents.data.synthetic import make_world
from pwagents.report.reference import read_episodes
from pwagents.schema import Trajectory
from pwagents.settings import load_settings
from pwagents.shop.score import grade

from .notebook.notebooks import ROOT, parameters_of

README = (ROOT / "README.md").read_text("utf-8")
TEXTS = README + (ROOT / "GUIDE.md").read_text("utf-8")
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


def test_the_example_of_an_agent_runs_as_a_script_and_from_the_shell(tmp_path, monkeypatch, capsys):
    """Both leave the same table, of the same stored episodes."""
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
    told = [
        text.rpartition(" finished in ")[2].partition("\n")[2]
        for text in (done.stdout, capsys.readouterr().out)
    ]
    assert told[0].replace(" 0 of 20 episodes", " 20 of 20 episodes") == told[1]
    assert "Reference: oracle" in told[0] and "LastBrand" in told[0]
    assert len((tmp_path / "out/runs/evaluate.jsonl").read_text().splitlines()) == 20
    assert (tmp_path / "out/episodes/LastBrand_multi_turn_synthetic_smoke_20.html").exists()


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
    "How much does memory help a rule-based agent?": (
        "03_single_turn",
        ["Plain, relevant memory"],
    ),
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
    assert [
        mean
        for name in methods
        for mean in means[name]
        if not re.search(rf"(?<!\d){re.escape(mean)}(?!\d)", finding)
    ] == [], means
    assert f"{pd.Series(is_repurchase).mean():.2f}".removeprefix("0") == ".40" and "bought .40 of" in README
