"""Engines: what is shipped and what stays, and the same work here and on clusters that lose a machine."""

import importlib.util
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from pwagents import embedding, engine
from pwagents.embedding import Embedder
from pwagents.errors import DataError, SettingsError
from pwagents.llm.store import ResponseStore

# Of an environment with the extras ray and dask; CI makes one.
PYTHON = os.environ.get("ENGINES_PYTHON", "")
if not PYTHON and all(map(importlib.util.find_spec, ("ray", "distributed"))):
    PYTHON = sys.executable


@pytest.fixture
def shipping(ship):
    ship()


def flat(rounds):
    return [result for results in rounds for result in results]


@pytest.mark.parametrize("cores", [1, 3])
def test_without_a_cluster_what_takes_minutes_has_all_cores_and_each_process_one(monkeypatch, cores):
    monkeypatch.setattr("joblib.cpu_count", lambda: cores)
    lock, offset = threading.Lock(), 10

    def work(unit):
        with lock:
            return offset + unit, os.getpid(), torch.get_num_threads()

    torch.set_num_threads(2)
    try:
        values, processes, threads = zip(*engine.beside(work, range(5)), strict=True)
        assert values == (10, 11, 12, 13, 14)
        assert processes[0] == os.getpid(), "this one takes its share"
        assert (cores > 1) <= len({*processes}) - 1 < cores
        assert {*threads} == {1 if cores > 1 else 2} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_failure_in_another_process_is_raised_here(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)

    def fail_second(unit):
        if unit:
            raise DataError("file", "record", "field", unit, "0")

    with pytest.raises(DataError, match="expected 0"):
        engine.beside(fail_second, [0, 1])
    assert engine.beside(str, [0, 1]) == ["0", "1"], "others are started anew"


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_an_engine_that_is_not_installed_says_what_to_install(monkeypatch, name):
    monkeypatch.setattr(engine, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=rf"pip install -e \.\[{name}\]"):
        engine.use(name)


def test_results_keep_order_and_an_embedder_goes_without_its_file(shipping, tmp_path, monkeypatch):
    random = np.random.default_rng()
    vectors = random.normal(size=(100, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    drawn = iter(vectors)
    monkeypatch.setattr(embedding, "_model", lambda _: lambda texts: np.stack([next(drawn) for _ in texts]))
    rounds = list(engine.remote(lambda unit: unit**2)(range(100)))
    assert flat(rounds) == [i**2 for i in range(100)] and len(rounds) <= engine.ROUNDS
    embedder = Embedder(tmp_path)
    first = embedder.encode(["a coat"])
    (file,) = tmp_path.glob("*.sqlite")
    before = file.read_bytes()
    (there,) = flat(engine.remote(lambda texts: embedder.encode(texts))([["a coat", "a shoe"]]))
    assert (there[0] == first[0]).all()
    assert file.read_bytes() == before


def test_what_holds_a_language_models_replies_stays_and_says_why(shipping, tmp_path, capsys):
    store = ResponseStore(tmp_path / "replies.sqlite")
    assert engine.remote(lambda key: store.get(key)) is None
    assert "belongs to one machine" in capsys.readouterr().out


@pytest.mark.skipif(not PYTHON, reason="needs extras, pip install -e .[ray,dask], or ENGINES_PYTHON")
@pytest.mark.parametrize("name", ["ray", "dask"])
def test_a_cluster_that_loses_a_machine_stores_each_episode_once_as_here(name, project_root, tmp_path):
    folders = [str(project_root), str(project_root / "lib"), os.environ.get("PYTHONPATH", "")]
    command = [PYTHON, "-m", "tests.store.engine_program", name, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(command, cwd=project_root, env=env, capture_output=True, text=True, timeout=280)
    if "The current node timed out during startup" in done.stderr:
        pytest.skip("Ray gives itself 30 seconds to start, and this machine was too busy")
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["records"] and told["profiles"]  # as here
    assert told["processes"] > 1  # both machines played
    for file in ("alone", "chained"):
        lines = (tmp_path / name / f"{file}.jsonl").read_text().splitlines()
        assert len(lines) == len({json.loads(line)["key"] for line in lines}) == 48
    begun = [line.split()[0] for line in (tmp_path / name / "alone.txt").read_text().splitlines()]
    assert set(begun) == {f"t{i}" for i in range(48)}  # nothing lost
    assert 48 <= len(begun) <= 48 + 8  # begun twice: of one round, what was not given back
