"""What notebooks need is said before they start, with the command that brings it."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pwagents import preflight
from pwagents.data.files import PERSONALWAB
from pwagents.files import write_aside
from pwagents.llm.budget import shut_down
from pwagents.preflight import MODELS, cost, needs, require_weights
from pwagents.settings import NOTEBOOKS, ROOT, settings_values

from ..llm.server import ChatServer

LLAMA, QWEN, _ = MODELS
KEY = "sk-never-shown-12345"


@pytest.fixture
def data(tmp_path):
    """Files that are looked for, and not read."""
    for name in PERSONALWAB:
        (tmp_path / name.replace("*", "1")).touch()
    (tmp_path / "PUMA").mkdir()
    (tmp_path / "PUMA" / "utils.py").touch()
    return tmp_path


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A function that lets the driver report so many GPUs with so much free memory."""

    def found(count, free_mib):
        tool = tmp_path / "bin" / "nvidia-smi"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text("#!/bin/sh\n" + f"echo '{free_mib}, NVIDIA H200'\n" * count)
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")

    return found


def save_weights(folder, *names, of=("a.safetensors", "b.safetensors")):
    folder.mkdir(parents=True, exist_ok=True)
    index = {"weight_map": {f"layer.{i}": name for i, name in enumerate(of)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names:
        (folder / name).write_bytes(bytes(100))
    return folder


def missing(notebook="04_puma", **given):
    """Return what is missing for a notebook at preset paper, by what is needed."""
    values = settings_values(notebook, {"preset": "paper", **given})
    return {need.what: f"{need.wrong}; {need.remedy}" for need in needs(values) if need.wrong}


def test_all_that_is_missing_is_said_at_once_each_with_what_brings_it(monkeypatch, data, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(preflight, "LARGE_GB", 99)  # no GPU here
    monkeypatch.setattr(preflight, "JAVA", ("no_such_package",))
    nowhere = {"data_dir": "/nowhere", "base": {"model": str(tmp_path / "none")}}
    found = list(missing(**nowhere, study={"official_repo": "/nowhere"}).values())
    parts = [
        "no user_profiles",
        "no PUMA/utils",
        "no pwab.pth",
        "Java",
        "(label_writer); `export",
        "no *.safe",
    ]
    for line, part in zip(found, parts, strict=True):
        assert part in line
    assert all("`make data`" in line for line in found[:3])

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = save_weights(tmp_path / "m", "a.safetensors", of=["a.safetensors"])
    study = {"protocol": "leak_free", "official_repo": str(data)}
    there = {"data_dir": str(data), "base": {"model": str(model)}, "shop": {"search_engine": "bm25"}}
    assert missing(**there, study=study) == {}


def test_the_disk_must_hold_two_checkpoints_of_a_whole_model_or_an_adapters_merged_one(monkeypatch):
    for notebook, room in (("05_orion_sft", 213), ("04_puma", 27)):
        for free, told in ((room - 1, f"takes up to {room} GB"), (room + 1, "")):
            monkeypatch.setattr(
                preflight.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free * 10**9)
            )
            lacking = [text for what, text in missing(notebook).items() if what.startswith("disk")]
            assert bool(lacking) == bool(told) and told in "".join(lacking)


BROUGHT = "files|prompts|the published|PUMA's functions|key|model|GPUs|disk|Chromium"


@pytest.mark.parametrize(
    ("preset", "n", "models"), [("paper", 11, r"-\d{4}-\d\d-\d\d$"), ("open", 4, "^Qwen2.5-7B")]
)
def test_a_preset_lacks_only_what_can_be_brought_and_its_budgets_hold_its_plan(preset, n, models):
    for notebook in [*NOTEBOOKS][:n]:
        values = settings_values(notebook, {"preset": preset})
        found = [need for need in (*needs(values), cost(notebook, values)) if need]
        assert all(re.match(BROUGHT, need.what) for need in found if need.wrong), notebook
        asked = re.findall(r"openai:([^'\"\]]+)", str(values.get("players", "")))
        assert all(re.search(models, model) and bool(shut_down(model)) == (n == 11) for model in asked)
        assert bool(asked and preset == "open") == ("hours of a 7B model" in str(found))


def test_pumas_functions_are_sought_in_the_output_folder_and_a_small_budget_is_said(tmp_path):
    what, file = "PUMA's functions in runs/04_functions.json", tmp_path / "runs" / "04_functions.json"
    values = settings_values("03_benchmark", {"preset": "paper", "output_dir": str(tmp_path)})
    assert what in missing("03_benchmark", output_dir=str(tmp_path))
    assert what in [need.what for need in needs(values, ["03_benchmark", "04_puma"]) if not need.wrong]
    write_aside(file, "{}")
    assert what not in missing("03_benchmark", output_dir=str(tmp_path))
    values["players"]["budget_usd"] = 500.0
    assert "above 500 dollars" in cost("03_benchmark", values).wrong


def test_a_browser_is_needed_where_one_drives_the_web(monkeypatch, tmp_path):
    monkeypatch.setattr(preflight, "BROWSERS", ("no-such-browser",))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "driver: html" in missing("09_persona2web")["Chromium"]
    assert "Chromium" not in missing("09_persona2web", study={"driver": "html"})


def test_a_model_that_lacks_weights_says_which_and_how_it_is_fetched(tmp_path, capsys, monkeypatch):
    folder = save_weights(tmp_path / "m", "a.safetensors")
    assert missing(base={"model": str(folder)})[f"model {folder}"].startswith("no b.safetensors; ")
    save_weights(folder, "b.safetensors")
    require_weights(folder)
    (folder / "b.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "LFS pointer" in missing(base={"model": str(folder)})[f"model {folder}"]
    gated, free, _ = (missing(base={"model": name})[f"model {name}"] for name in MODELS)
    assert "license" in gated and f"--local-dir {LLAMA}" in gated
    assert "license" not in free and f"hf download {MODELS[QWEN][0]}" in free
    monkeypatch.setattr(sys, "argv", ["preflight", "--models"])
    preflight.main()
    shown = capsys.readouterr().out
    assert "Community License, gated, 13.5 GB" in shown and "Apache 2.0, not gated" in shown
    assert shown.count("hf download") == len(MODELS)


@pytest.mark.parametrize(
    ("count", "mib", "visible", "says"),
    [
        (1, 80_000, "", "too few"),
        (2, 10_000, "", "weights take 15.2 GB"),
        (2, 80_000, "", ""),
        (2, "[N/A]", "", ""),
        (4, 80_000, "3", "too few"),
    ],
)
def test_gpus_and_their_memory_are_compared_with_what_is_asked_for(
    gpus, monkeypatch, count, mib, visible, says
):
    gpus(count, mib)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    lacking = missing("05_orion_sft").items()
    found = "; ".join(text for what, text in lacking if what.startswith("GPUs: 2 asked"))
    assert found.startswith(says) and bool(found) == bool(says)
    stored = missing("05_orion_sft", stored_runs_only=True)
    assert not any(what.startswith(("model", "GPUs:", "key")) for what in stored), "none is needed"


def test_make_preflight_asks_each_model_once_and_ends_with_what_is_missing(tmp_path):
    with ChatServer() as server:
        environment = os.environ | {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-m", "pwagents.preflight", "--preset", "paper"]
        command += ["--output-dir", str(tmp_path), "02_profiles", "09_persona2web"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        asked = sorted(body["model"] for body in server.bodies)
        dates = ["gpt-4.1-2025-04-14", "gpt-4o-2024-08-06", "gpt-4o-mini-2024-07-18"]
        assert asked == [*dates, "gpt-5-mini-2025-08-07", "o3-2025-04-16"]
    assert done.returncode == 1 and "MISSING files in data/personalwab" in done.stdout, done.stderr
    assert "openai:gpt-4o-mini-2024-07-18 answers (its maker shuts it down on 2027-01-14" in done.stdout
    assert KEY not in done.stdout
