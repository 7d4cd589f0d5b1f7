"""What holds the repository's files together: lists, parameters, notebooks, light imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

import papermill
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ("smoke", "laptop", "paper")
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PARAMETER_FILES = sorted(
    {path.name for preset in PRESETS for path in (ROOT / "params" / preset).glob("*.yaml")}
)
COMMON = {"preset", "source", "data_dir", "output_dir", "seed", "stored_runs_only"}

HEAVY = ("torch", "transformers", "sentence_transformers", "jnius")
# Modules whose sole subject is torch.
MAY_BE_HEAVY = {
    f"pwagents.web.{name}"
    for name in ("sasrec", "recommender", "leave_one_out", "published_recommender")
} | {"pwagents.rl.grpo_trainer"}


def parameters_of(notebook):
    return papermill.inspect_notebook(str(ROOT / "notebooks" / f"{notebook}.ipynb"))


def load(preset, name):
    return yaml.safe_load((ROOT / "params" / preset / name).read_text()) or {}


def test_conda_users_get_the_same_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = project["dependencies"] + project["optional-dependencies"]["dev"]
    (pip,) = (
        entry["pip"]
        for entry in yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
        if isinstance(entry, dict)
    )
    assert pip == [*packages, "-e ."]
    assert all("==" in package and "+" not in package for package in packages)


def test_every_parameter_file_has_its_notebook_and_every_notebook_its_parameter_files():
    names = {Path(name).stem for name in PARAMETER_FILES}
    assert names - {"common"} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", PARAMETER_FILES)
def test_presets_have_the_same_keys(name):
    for preset in PRESETS:
        assert (ROOT / "params" / preset / name).exists(), f"{preset} lacks {name}"
    keys = {preset: sorted(load(preset, name)) for preset in PRESETS}
    assert keys["smoke"] == keys["laptop"] == keys["paper"]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_takes_the_common_parameters_and_those_of_its_files(notebook):
    taken = set(parameters_of(notebook))
    assert taken >= COMMON
    for preset in PRESETS:
        assert taken >= set(load(preset, "common.yaml")) | set(load(preset, f"{notebook}.yaml"))


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_reads_stored_runs_only_when_asked(notebook):
    assert parameters_of(notebook)["stored_runs_only"]["default"] == "False"


def test_notebooks_are_stripped_of_outputs():
    paths = sorted(map(str, (ROOT / "notebooks").glob("*.ipynb")))
    if not paths:
        pytest.skip("there is no notebook yet")
    keys = "metadata.papermill cell.metadata.papermill"
    command = [sys.executable, "-m", "nbstripout", "--verify", "--keep-id", "--extra-keys", keys, *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_library_loads_nothing_heavy():
    library = ROOT / "lib"
    modules = [
        ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((library / "pwagents").rglob("*.py"))
    ]
    assert "pwagents.schema" in modules
    code = (
        "import importlib, sys\n"
        f"for module in {[module for module in modules if module not in MAY_BE_HEAVY]}:\n"
        "    importlib.import_module(module)\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    if heavy: sys.exit(f'importing {module} loads {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
