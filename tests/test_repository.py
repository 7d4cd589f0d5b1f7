"""What holds the repository's files together: packages, imports of notebooks, light imports."""

import ast
import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
USERS = sorted([*(ROOT / "notebooks").glob("[0-9]*.ipynb"), *(ROOT / "benchmarks").glob("*.py")])
HEAVY = ("torch", "transformers", "jnius", "vllm")
# Modules whose sole subject is torch, and those that need an extra.
ASIDE = {"pwagents.web.sasrec"}
ASIDE |= {f"pwagents.adapters.{name}" for name in ("gymnasium_env", "inspect_task", "verifiers_taskset")}
ASIDE |= {"pwagents.rl.grpo_trainer"}


def test_conda_users_get_the_same_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = project["dependencies"] + project["optional-dependencies"]["dev"]
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = (entry["pip"] for entry in entries if isinstance(entry, dict))
    assert pip == [*packages, "-e ."]
    assert all("==" in package and "+" not in package for package in packages if "numpy" not in package)


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.name)
def test_what_a_notebook_or_a_benchmark_imports_is_there(path):
    """Some run for hours or on a GPU alone: a name that has moved would show late."""
    sources = [path.read_text("utf-8")]
    if path.suffix == ".ipynb":
        cells = json.loads(sources[0])["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pwagents"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")


def test_importing_the_library_loads_nothing_heavy():
    library = ROOT / "lib"
    modules = {
        ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
        for path in (library / "pwagents").rglob("*.py")
    }
    assert "pwagents.schema" in modules
    code = (
        "import importlib, sys\n"
        f"for module in {sorted(modules - ASIDE)}:\n"
        "    importlib.import_module(module)\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    if heavy: sys.exit(f'importing {module} loads {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
