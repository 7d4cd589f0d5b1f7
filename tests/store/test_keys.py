"""Stored results depend on the modules that decide them, and on no others."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pwagents
from pwagents import store

LIBRARY = Path(pwagents.__file__).parent
KEYS = """
from pwagents.agents import methods, offline
from pwagents.store import code_hash
print(code_hash(*offline.CODE), code_hash(*methods.CODE), code_hash("shop.search"), code_hash("shop.sasrec"))
"""


def keys_after(folder: Path, file: str, old: str, new: str) -> list[str]:
    """Return the hashes of rule-based agents, methods, index and recommender after a change of one file."""
    shutil.copytree(LIBRARY, folder / "pwagents", ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / "pwagents" / file
    text = changed.read_text("utf-8")
    assert text.count(old), f"{file} has no {old!r}"
    changed.write_text(text.replace(old, new, 1), "utf-8")
    run = [sys.executable, "-c", KEYS]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    return subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> list[str]:
    return keys_after(tmp_path_factory.mktemp("before"), "results/metrics.py", "GRADER", "GRADER")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("results/metrics.py", "refused by its model", "refused by the model"),  # a label
        ("results/figures.py", "seaborn-v0_8-whitegrid", "seaborn-v0_8-white"),  # a style
        ("results/papers.py", "result accuracy", "accuracy of results"),  # a heading
        ("settings.py", "Passes over the training sequences.", "Epochs."),  # a meaning
        ("errors.py", "expected {}", "we expected {}"),  # an error message
        (
            "agents/offline.py",
            '"""Rule-based agents',
            '"""Agents by rules',
        ),  # a docstring of a deciding module
        ("notebook.py", "Preset smoke", "The preset smoke"),  # a title
    ],
)
def test_what_shows_results_is_in_no_key(file, old, new, before, tmp_path):
    assert keys_after(tmp_path, file, old, new) == before


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("agents/chat.py", "You are the personal assistant", "You are an assistant", [1]),  # a prompt
        ("agents/offline.py", "CONSIDERED = 10", "CONSIDERED = 9", [0, 1]),
        ("users/rules.yaml", "manners:", "manners: # a comment\n  extra: [x]\n", [1]),  # what the user says
        ("shop/search.py", "np.float32(0.9)", "np.float32(0.8)", [0, 1, 2]),  # the search engine
        ("shop/sasrec.py", "betas=(0.9, 0.98)", "betas=(0.9, 0.99)", [0, 1, 3]),
        ("seeds.py", '"\\x1f"', '"\\x1e"', [0, 1]),
    ],
)
def test_what_decides_results_is_in_their_keys(file, old, new, changed, before, tmp_path):
    after = keys_after(tmp_path, file, old, new)
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == changed


def test_a_file_that_is_edited_while_a_kernel_runs_changes_no_key(tmp_path):
    shutil.copytree(LIBRARY, tmp_path / "pwagents", ignore=shutil.ignore_patterns("__pycache__"))
    code = KEYS.replace("print(", "import pathlib, pwagents.shop.search as s\nf = pathlib.Path(s.__file__)\n"
                        "f.write_text(f.read_text().replace('np.float32(0.9)', 'np.float32(0.7)'))\nprint(")  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    again = subprocess.run([sys.executable, "-c", KEYS], env=env, capture_output=True, text=True, check=True)
    assert run.stdout.split()[2] != again.stdout.split()[2]


NEUTRAL = {"store", "progress", "__init__", "errors"}  # they keep and show; they decide nothing


def executed(function, *arguments):
    """Call a function, and return its result and the library's modules whose code ran."""
    seen = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(LIBRARY)):
            path = Path(frame.f_code.co_filename).relative_to(LIBRARY).with_suffix("")
            seen.add(".".join(path.parts).removesuffix(".__init__"))

    threading.setprofile(note), sys.setprofile(note)
    try:
        return function(*arguments), seen
    finally:
        threading.setprofile(None), sys.setprofile(None)


def test_every_module_that_runs_while_a_result_is_decided_is_in_its_key(monkeypatch, tmp_path):
    """Run notebook 03's cells, traced: episodes and what is made once."""
    missing, real_episodes, real_made = {}, store.episodes, store.made

    def episodes(file, tasks, play, facts, **options):
        def traced(*arguments):
            result, seen = executed(play, *arguments)
            missing.setdefault(file.name, set()).update(seen - set(facts["code"]) - NEUTRAL)
            return result

        return real_episodes(file, tasks, traced, facts, **options)

    def made(root, name, facts, make, **options):
        def traced(folder):
            _, seen = executed(make, folder)
            missing.setdefault(name, set()).update(seen - set(facts["code"]) - NEUTRAL)

        return real_made(root, name, facts, traced, **options)

    import pwagents.shop.sasrec
    import pwagents.shop.search

    monkeypatch.setattr(store, "episodes", episodes)
    for module in (store, pwagents.shop.search, pwagents.shop.sasrec):
        monkeypatch.setattr(module, "made", made)
    cells = json.loads((LIBRARY.parents[1] / "notebooks" / "03_benchmark.ipynb").read_text("utf-8"))["cells"]
    namespace = {"display": lambda shown: None}
    for cell in cells:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and "parameters" not in cell["metadata"].get("tags", ()):
            parameters = f'{{"preset": "smoke", "output_dir": "{tmp_path}", "play": {{"max_tasks": 30, "method_tasks": 9}}}}'
            exec(re.sub(r"globals\(\)", parameters, code), namespace)
    assert {name: modules for name, modules in missing.items() if modules} == {}
