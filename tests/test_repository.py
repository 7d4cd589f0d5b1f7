"""What holds the repository's files together: lists of packages, light imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "jnius", "vllm")
# Modules whose sole subject is torch.
MAY_BE_HEAVY = {
    f"pwagents.web.{name}" for name in ("sasrec", "recommender", "leave_one_out", "published_recommender")
} | {"pwagents.rl.grpo_trainer"}
NEEDS_AN_EXTRA = {
    f"pwagents.adapters.{name}" for name in ("gymnasium_env", "inspect_task", "verifiers_taskset")
}


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
