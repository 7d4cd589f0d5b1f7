"""What notebooks need is told before they start, with the command that brings it, and what they will take."""

import json
import os
import subprocess
import sys

import pytest

from pwagents.data import personalwab
from pwagents.errors import SettingsError
from pwagents.settings import ROOT, settings_values
from pwagents_old.notebook import preflight
from pwagents_old.notebook.forecast import estimate_calls, forecast
from pwagents_old.notebook.preflight import MODELS, check, kind_of, needs, require_weights
from pwagents_old.notebook.run import start

from ..llm.server import ChatServer
from .notebooks import NOTEBOOKS

LLAMA, QWEN = MODELS
KEY = "sk-never-shown-12345"


@pytest.fixture
def data(tmp_path):
    """Files that are looked for, and not read."""
    for name in personalwab.FILES:
        (tmp_path / name.replace("*", "1")).touch()
    return tmp_path


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A function that lets the driver tell of so many GPUs with so much free memory."""

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


def wrong(notebook="04_puma", **given):
    """What is missing for a notebook at preset paper, by what is needed."""
    values = settings_values(notebook, {"preset": "paper", **given}, kind_of(notebook))
    return {need.what: f"{need.wrong}; {need.remedy}" for need in needs(values) if need.wrong}


def test_all_that_is_missing_is_told_at_once_each_with_what_brings_it(monkeypatch, data, tmp_path, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(preflight, "LARGE_GB", 99)  # no GPU here
    nowhere = {"preset": "paper", "data_dir": "/nowhere", "base": {"model": str(tmp_path / "none")}}
    nowhere["study"] = {"official_repo": "/nowhere"}
    with pytest.raises(SettingsError) as refused:
        check("04_puma", kind_of("04_puma"), nowhere)
    lines = str(refused.value).splitlines()
    parts = ["no user_profiles", "no PUMA/utils", "no pwab.pth", "(label_writer); `export", "no *.safe"]
    for line, part in zip(lines, parts, strict=True):
        assert line.startswith("04_puma cannot start: ") and part in line
    assert all("`make data`" in line for line in lines[:3])

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    there = {"data_dir": str(data), "base": {"model": str(save_weights(tmp_path / "m", of=["a"]) / ".")}}
    (tmp_path / "m" / "a").touch()
    there["study"] = {"protocol": "leak_free", "official_repo": str(data)}
    (data / "PUMA").mkdir()
    (data / "PUMA" / "utils.py").touch()
    check("04_puma", kind_of("04_puma"), nowhere | there)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("04_puma has what it needs (") and "GPU hours" in line and "GB are free" in line
    assert KEY not in line


def test_a_notebook_says_it_first_and_begins_no_run_where_something_is_missing(tmp_path, capsys):
    given = {"preset": "smoke", "output_dir": str(tmp_path)}
    with pytest.raises(SettingsError, match=r"\A01_data cannot start: files in /nowhere"):
        start("01_data", given | {"source": "personalwab", "data_dir": "/nowhere"}, kind_of("01_data"))
    assert capsys.readouterr().out == ""
    _, run = start("01_data", given, kind_of("01_data"))
    assert capsys.readouterr().out.startswith("01_data has what it needs (disk")
    run.finish(data_hash="none")


@pytest.mark.parametrize(
    ("dollars", "tokens", "stored", "says"),
    [(400, 1e12, False, ["estimated are ", ""]), (1e6, 1, False, ["", "estimated are "]), (400, 1, True, [])],
)
def test_a_budget_below_the_estimate_is_named_where_replies_are_paid_for(dollars, tokens, stored, says):
    players = {"budget_usd": dollars, "budget_tokens": tokens}
    given = {"preset": "paper", "stored_runs_only": stored, "players": players}
    values = settings_values("03_benchmark", given, kind_of("03_benchmark"))
    told = [*preflight.budgets(values, forecast("03_benchmark", values))]
    assert [need.wrong[: len(start)] for need, start in zip(told, says, strict=True)] == says


def test_preset_paper_learns_from_all_tasks():
    study = settings_values("04_puma", {"preset": "paper"}, kind_of("04_puma"))["study"]
    assert (study["training_users"], study["train_tasks"], study["test_tasks"]) == (0, 0, 0)


def test_a_model_that_lacks_weights_says_which_and_how_it_is_fetched(tmp_path, capsys, monkeypatch):
    folder = save_weights(tmp_path / "m", "a.safetensors")
    found = wrong(base={"model": str(folder)})
    assert found[f"model {folder}"].startswith("no b.safetensors; ")
    save_weights(folder, "b.safetensors")
    require_weights(folder)
    (folder / "b.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "LFS pointer" in wrong(base={"model": str(folder)})[f"model {folder}"]
    gated, free = (wrong(base={"model": name})[f"model {name}"] for name in MODELS)
    assert "license" in gated and f"--local-dir {LLAMA}" in gated
    assert "license" not in free and f"hf download {MODELS[QWEN][0]}" in free
    monkeypatch.setattr(sys, "argv", ["preflight", "--models"])
    preflight.main()
    told = capsys.readouterr().out
    assert "Community License, gated, 13.5 GB" in told and "Apache 2.0, not gated" in told
    assert told.count("hf download") == len(MODELS)


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
    missing = wrong("05_orion_sft")
    told = "; ".join(text for what, text in missing.items() if what.startswith("GPUs: 2 asked"))
    assert told.startswith(says) and bool(told) == bool(says)
    stored = wrong("05_orion_sft", stored_runs_only=True)
    assert not any(what.startswith(("model", "GPUs:")) for what in stored), "neither is needed"


def test_make_preflight_asks_each_model_once_and_ends_with_what_is_missing(tmp_path):
    with ChatServer() as server:
        environment = os.environ | {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-m", "pwagents_old.notebook.preflight", "--preset", "paper"]
        command += ["--output-dir", str(tmp_path), "02_profiles", "09_persona2web"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert sorted(body["model"] for body in server.bodies) == ["gpt-4.1", "gpt-4o-mini", "gpt-5-mini"]
    assert done.returncode == 1 and "MISSING files in data/personalwab" in done.stdout, done.stderr
    assert "openai:gpt-4o-mini answers" in done.stdout and KEY not in done.stdout
    assert 2 * done.stdout.count("Estimated: ") == done.stdout.count("a budget of ") == 4


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_an_estimate_is_there_where_a_notebook_asks_models_or_trains_them(notebook):
    for preset in ("laptop", "paper"):
        values = settings_values(notebook, {"preset": preset}, kind_of(notebook))
        hours, usd, *_ = forecast(notebook, values)
        asks = any("openai:" in str(spec) for spec in values.get("players", {}).values())
        assert (usd > 0, hours > 0) == (asks, "/" in values.get("base", {}).get("model", ""))


def test_calls_of_orion_are_those_of_conversations_tests_and_the_ladder():
    values = settings_values("05_orion_sft", {"preset": "smoke"}, kind_of("05_orion_sft"))
    assert estimate_calls("05_orion_sft", values).empty
    values["players"] |= {"teacher": "openai:gpt-4o-mini", "judge": "openai:gpt-4o-mini"}
    rows = estimate_calls("05_orion_sft", values).set_index("role")
    # 13 times 40 tests and three rungs of 20 train and 20 test tasks are judged, in four steps each; two
    # conversations are played for each of 20 that is kept.
    assert dict(rows["calls"]) == {"teacher": 4 * (2 * 20 + 40), "judge": 4 * (13 * 40 + 3 * 2 * 20)}
    assert (rows["US dollars"] > 0).all()


def test_gpu_hours_follow_from_measured_rates():
    values = settings_values("06_orion_grpo", {"preset": "paper"}, kind_of("06_orion_grpo"))
    values["study"]["eval_tasks"] = values["role_play"]["ladder_tasks"] = values["rl"]["eval_steps"] = 0
    values["study"]["complete_tasks"] = 0
    # Two policies of 200 steps of 64 episodes of 6,144 tokens; measured were 27.2 s for 32 of 1,280.
    expected = 2 * 200 * 64 * 6144 / (32 * 1280) * 27.2 / 3600
    assert forecast("06_orion_grpo", values).gpu_hours == pytest.approx(expected)
