"""The words of README and GUIDE: their examples run, their papermill commands set what exists."""

import re
import shlex
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from pwagents import __main__ as shell
from pwagents.benchmark.settings import DataNotebook
from pwagents.data.synthetic import make_world
from pwagents.evaluation.metrics import grade
from pwagents.notebook.preflight import kind_of
from pwagents.notebook.reference import read_episodes
from pwagents.notebook.settings import load_settings
from pwagents.notebook.summary import TASKS
from pwagents.schema import Trajectory

from .notebook.notebooks import ROOT, parameters_of

README = (ROOT / "README.md").read_text("utf-8")
TEXTS = README + (ROOT / "GUIDE.md").read_text("utf-8")
SHELL = "\n".join(re.findall(r"```bash\n(.*?)```", TEXTS, re.DOTALL)).replace("\\\n", " ")
COMMANDS = [line.strip() for line in SHELL.splitlines() if "bin/papermill notebooks/" in line]
EVALUATIONS = [line for line in SHELL.splitlines() if "-m pwagents evaluate" in line]
PYTHON = re.findall(r"```python\n(.*?)```", TEXTS, re.DOTALL)
AGENTS = [code for code in PYTHON if "evaluate(" in code]


@pytest.mark.parametrize("code", [code for code in PYTHON if code not in AGENTS])
def test_an_example_runs(code, tmp_path):
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_example_of_an_agent_runs_as_a_script_and_from_the_shell(tmp_path, monkeypatch, capsys):
    """Both leave the same table, of the same stored episodes."""
    (code,) = AGENTS
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
        loaded = load_settings(notebook, kind_of(notebook), parameters_of(notebook) | given)
        assert loaded.output_dir == ROOT / given["output_dir"]


REFERENCE = ROOT / "outputs" / "reference"
QUOTED = {  # notebook of a row of the main table -> lines of the summary that it quotes
    "(04)": [f"{who} {task}" for who in ("puma", "puma_plus", "plain") for task in TASKS],
    "(05)": [f"{who} {task}" for who in ("base", "orion_sft") for task in TASKS],
    "(06)": [f"orion_{how} {task}" for how in ("sft", "ppo", "grpo") for task in ("search", "mean")],
}


def row_of_the_main_table(part):
    (row,) = (line for line in README.splitlines() if line.startswith("| ") and part in line)
    return row


def quotes(row, value):
    return re.search(rf"(?<!\d){re.escape(f'{value:.2f}'.removeprefix('0'))}(?!\d)", row)


def test_the_main_table_quotes_the_reference():
    lines = pd.read_csv(REFERENCE / "summary.csv")
    values = dict(zip(lines["name"] + " " + lines["task"], lines["value"], strict=True))
    for notebook, names in QUOTED.items():
        row = row_of_the_main_table(f"{notebook} |")
        assert [name for name in names if not quotes(row, values[name])] == []
    means = pd.read_csv(REFERENCE / "tables" / "07_seeds.csv").query("type == 'mean'")
    row = row_of_the_main_table("chance? (07)")
    assert means["method"].nunique() >= 3 and all(quotes(row, value) for value in means["mean"])
    work = pd.read_csv(REFERENCE / "tables" / "05_work.csv").query("method == 'SFT' and type != 'review'")
    row = row_of_the_main_table("(05) |")  # how often a line of the prompt is repeated
    assert len(work) == 2 and all(quotes(row, share) for share in work["one line"])


def test_readme_quotes_what_parts_are_worth_over_the_pipelines():
    tests = pd.read_csv(REFERENCE / "tables" / "07_part_tests.csv").query("task == 'mean'")
    tests = tests.set_index("comparison").drop("GRPO - no profile")
    row = row_of_the_main_table("Which part")
    ends = [[f"{abs(v):.2f}".removeprefix("0") for v in each] for each in tests[["low", "high"]].to_numpy()]
    assert len(ends) == 8  # three parts, in two ways, and two other profiles
    for low, high in ends:
        assert f"[{low}, {high}]" in row or f"[{high}, {low}]" in row


WORLDS = [("04_worlds", "PUMA+ - Plain agent", task) for task in ("recommend", "recommend, new", "search")]


@pytest.mark.parametrize(
    ("name", "comparison", "task"), [*WORLDS, ("04_seed_tests", "PUMA - w/o DPO", "mean")]
)
def test_readme_quotes_what_holds_over_worlds_and_trainings(name, comparison, task):
    tests = pd.read_csv(REFERENCE / "tables" / f"{name}.csv").set_index(["comparison", "task"])
    difference, low, high = tests.loc[(comparison, task), ["difference", "low", "high"]]
    if difference < 0 and task != "mean":  # told as how far below
        difference, low, high = -difference, -high, -low
    texts = [f"{value:.2f}".replace("0.", ".") for value in (difference, low, high)]
    assert "{} [{}, {}]".format(*texts) in row_of_the_main_table("(04) |")


# Part of a row of the main table -> stored episodes, and whose recommendations it tells apart.
REPURCHASES = {
    "an agent without a language model? (03)": ("03_single_turn", ["Plain, relevant memory"]),
    "(04) |": ("04_puma", ["PUMA", "PUMA+"]),
    "(05) |": ("orion", ["SFT", "Teacher"]),
    "(06) |": ("orion", ["SFT", "GRPO", "PPO"]),
}


@pytest.fixture(scope="module")
def is_repurchase():
    """Test task of a recommendation in laptop's world -> whether its user had bought the target before."""
    laptop = load_settings("01_data", DataNotebook, {"preset": "laptop"})
    benchmark = make_world(laptop.data.world, laptop.seed).benchmark
    tasks = [task for task in benchmark.tasks["test"] if task.type == "recommend"]
    return {t.task_id: t.target in {b.parent_asin for b in benchmark.history(t, "test")} for t in tasks}


@pytest.mark.parametrize("part", REPURCHASES)
def test_the_main_table_tells_repurchases_from_new_products(part, is_repurchase):
    runs, methods = REPURCHASES[part]
    episodes = read_episodes(REFERENCE / "runs" / f"{runs}.parquet", {*methods, "Teacher"})
    stored = pd.DataFrame(each for each in episodes if each["type"] == "recommend")
    # The main test comes first, and all of Orion's play the tasks of the teacher.
    stored = stored.drop_duplicates(["method", "task_id"])
    if runs == "orion":
        stored = stored[stored["task_id"].isin(stored.loc[stored["method"] == "Teacher", "task_id"])]
    result = [grade(Trajectory.model_validate(each)).result_official for each in stored["trajectory"]]
    means = stored.assign(result=result, again=stored["task_id"].map(is_repurchase))
    means = means.groupby(["method", "again"])["result"].mean()
    row = row_of_the_main_table(part)
    told = row[row.index("bought before") :]
    assert [name for name in methods for again in (True, False) if not quotes(told, means[name, again])] == []
    assert f"{pd.Series(is_repurchase).mean():.2f}".removeprefix("0") == ".40" and "bought .40 of" in README
