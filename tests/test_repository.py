"""What holds the repository together: packages and their lock, imports of notebooks, light imports."""

import ast
import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests import budgets

ROOT = Path(__file__).resolve().parents[1]
USERS = sorted([*(ROOT / "notebooks").glob("[0-9]*.ipynb"), *(ROOT / "benchmarks").glob("*.py")])
HEAVY = ("torch", "transformers", "jnius", "vllm")
# Modules whose sole subject is torch, and those that need an extra.
ASIDE = {"pwagents.shop.sasrec"}
ASIDE |= {f"pwagents.adapters.{name}" for name in ("gymnasium_env", "inspect_task")}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]


def test_the_lock_knows_each_file_by_its_hash_names_no_place_and_is_in_step_with_pyproject():
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|index|find-links| @ ", text)
    (torch,) = re.findall("^# (torch==.*)\n", text, re.MULTILINE)  # of which there are many builds
    locked = {"torch": next(iter(Requirement(torch).specifier))}
    for line in text.replace(f"# {torch}\n", "").replace(" \\\n", " ").splitlines():
        requirement, *hashes = line.split(" --hash=")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for each in hashes)
        requirement = Requirement(requirement)
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier))
        (locked[canonicalize_name(requirement.name)],) = requirement.specifier
    asked = [Requirement(package) for package in (*PACKAGES, "setuptools>=77")]
    assert not [str(r) for r in asked if "==" in str(r.specifier)], "pins are the lock's alone"
    other = [str(r) for r in asked if not r.specifier.contains(locked[canonicalize_name(r.name)].version)]
    assert other == []


def test_commands_and_modules_for_others_are_where_pyproject_says():
    assert callable(pkgutil.resolve_name(PROJECT["scripts"]["pwagents"]))
    (module,) = PROJECT["entry-points"]["inspect_ai"].values()
    assert importlib.util.find_spec(module)


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


def test_importing_the_library_and_making_its_models_loads_nothing_heavy(tmp_path):
    library = ROOT / "lib"
    modules = {
        ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
        for path in (library / "pwagents").rglob("*.py")
    }
    assert {"pwagents.schema", "pwagents.llm.make"} <= modules
    code = (
        "import importlib, sys\n"
        f"for module in {sorted(modules - ASIDE)}:\n"
        "    importlib.import_module(module)\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    if heavy: sys.exit(f'importing {module} loads {heavy}')\n"
        "from pathlib import Path\nfrom pwagents.llm.make import Models, Players\n"
        f"folder = Path({str(tmp_path)!r})\n(folder / 'config.json').touch()\n"
        "models = Models(Players(), folder / 'replies')\n"
        "models('openai:m'), models(f'local:{folder}')\n"
        f"heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "if heavy: sys.exit(f'making models loads {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_alone_loads_no_library_of_numbers_and_has_the_public_names():
    """What it sets for the libraries of numbers must be set before one of them is loaded."""
    code = (
        "import sys, pwagents\n"
        "if loaded := {'numpy', 'pandas', 'pydantic', 'torch'} & {*sys.modules}: sys.exit(str(loaded))\n"
        "from pwagents import Action, BeliefState, evaluate\n"
        "from pwagents.schema import Action as same\n"
        "assert Action is same and callable(evaluate) and not hasattr(pwagents, 'nothing')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_models_and_tokenizers_are_read_in_one_place_alone():
    files = [*ROOT.glob("lib/**/*.py"), *ROOT.glob("notebooks/*.ipynb")]
    reads = re.compile(r"^(?!.*``).*\bAuto\w+\.from_pretrained\(", re.MULTILINE)
    assert [file.name for file in files if reads.search(file.read_text("utf-8"))] == ["folder.py"]


def test_the_gate_fails_where_a_sum_has_grown(monkeypatch, capsys):
    counted = budgets.count_sums()
    monkeypatch.setattr(budgets, "SUMS", {name: (count, 0) for name, count in counted.items()})
    assert budgets.main([]) == 0
    monkeypatch.setitem(budgets.SUMS, "tests, lines", (counted["tests, lines"] - 1, 0))
    assert budgets.main([]) == 1 and "1 too many" in capsys.readouterr().out
