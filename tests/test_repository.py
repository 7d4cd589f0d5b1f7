"""What holds the repository's files together: lists, parameters, notebooks, light imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
WINGS = ("common", "benchmark", "puma", "orion")
PARAMETER_FILES = sorted(
    str(path.relative_to(ROOT / "params"))
    for preset in ("smoke", "laptop", "paper")
    for path in (ROOT / "params" / preset).glob("*.yaml")
)

HEAVY = ("torch", "transformers", "jnius", "vllm")
# Modules whose sole subject is torch.
MAY_BE_HEAVY = {
    f"pwagents.web.{name}" for name in ("sasrec", "recommender", "leave_one_out", "published_recommender")
} | {"pwagents.rl.grpo_trainer"}
NEEDS_AN_EXTRA = {
    f"pwagents.adapters.{name}" for name in ("gymnasium_env", "inspect_task", "verifiers_taskset")
}


def load(name):
    return yaml.safe_load((ROOT / "params" / name).read_text()) or {}


def missing(values, complete, path=""):
    """Names of ``values`` that ``complete`` lacks."""
    for name, value in values.items():
        if name not in complete:
            yield f"{path}{name}"
        elif isinstance(value, dict):
            yield from missing(value, complete[name], f"{path}{name}.")


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


def test_parameter_files_are_named_for_a_wing_or_a_notebook():
    assert {Path(name).stem for name in PARAMETER_FILES} <= {*WINGS, *NOTEBOOKS}


@pytest.mark.parametrize("name", [name for name in PARAMETER_FILES if not name.startswith("laptop/")])
def test_laptop_is_complete_the_other_presets_say_what_differs(name):
    """A setting that several notebooks share may stand in laptop's file of all notebooks, or of a wing."""
    files = {"common.yaml", *(f"{wing}.yaml" for wing in WINGS), Path(name).name}
    laptop: dict = {}
    for file in files & {path.name for path in (ROOT / "params" / "laptop").glob("*.yaml")}:
        for group, values in load(f"laptop/{file}").items():
            both = isinstance(values, dict) and isinstance(laptop.get(group), dict)
            laptop[group] = laptop[group] | values if both else values
    assert list(missing(load(name), laptop)) == []


def test_importing_the_library_loads_nothing_heavy():
    library = ROOT / "lib"
    modules = [
        ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((library / "pwagents").rglob("*.py"))
    ]
    assert "pwagents.schema" in modules
    code = (
        "import importlib, sys\n"
        f"for module in {[module for module in modules if module not in MAY_BE_HEAVY | NEEDS_AN_EXTRA]}:\n"
        "    importlib.import_module(module)\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    if heavy: sys.exit(f'importing {module} loads {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
