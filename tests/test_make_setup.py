"""How `make setup` builds an environment, shown with stand-ins that only note what they are asked."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

# Takes the place of python3 and, copied by "-m venv", of the environment's own Python.
PYTHON = """#!/bin/sh
case "$*" in
  "-c "*) exit 0 ;;
  "-m venv "*) for folder; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
esac
echo "python $*" >> "$LOG"
case "$*" in *"$FAIL"*) exit 1 ;; esac
"""
UV = """#!/bin/sh
echo "uv $*" >> "$LOG"
case "$*" in *"$FAIL"*) exit 1 ;; esac
"""
LOCK = (Path(__file__).parents[1] / "requirements.lock").read_text()
(TORCH,) = re.findall("^# (torch==.*)", LOCK, re.MULTILINE)
TORCH_BY_PIP = f"python -m pip install --disable-pip-version-check {TORCH}"
UV_BY_PIP = "python -m pip install --disable-pip-version-check -q uv"
LOCKED, ITSELF = "--no-deps --require-hashes -r requirements.lock", "--no-deps --no-build-isolation -e ."
BROWSER = "python -m playwright install --only-shell chromium"
REST_BY_PIP = [TORCH_BY_PIP.replace(TORCH, what) for what in (LOCKED, ITSELF)] + [BROWSER]
UV_INSTALL = "uv pip install --python venv/bin/python"
REST_BY_UV = [*(f"{UV_INSTALL} {what}" for what in (LOCKED, ITSELF)), BROWSER]


@pytest.fixture
def setup(tmp_path, project_root):
    """A function that runs `make setup`; it returns the exit status and what was asked for."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("make", "sh", "sed", "touch", "mv", "mkdir", "cp", "find", "grep"):
        (tools / tool).symlink_to(shutil.which(tool))
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(project_root / name, tmp_path)
    (tmp_path / "lib/pwagents").mkdir(parents=True)
    script(tmp_path / "python", PYTHON)

    def make(*arguments, fail="nothing", with_tools=()):
        for name, text in with_tools:
            script(tools / name, text)
        log = tmp_path / "log"
        log.write_text("")
        command = ["make", "setup", "VENV=venv", "PYTHON=./python", *arguments]
        env = {"PATH": str(tools), "LOG": str(log), "FAIL": fail}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done, log.read_text().splitlines()

    return make


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)


CPU_BY_UV = f"{UV_INSTALL} --torch-backend=cpu {TORCH}"
FLAGGED = TORCH_BY_PIP.replace("torch==", "-i x torch==")
GPU = ("nvidia-smi", "#!/bin/sh\nexit 0\n")


def test_torch_first_then_the_rest_and_nothing_the_second_time(setup, tmp_path):
    done, asked = setup("-j2")
    assert done.returncode == 0, done.stderr
    assert asked == ["python -m venv venv", UV_BY_PIP, TORCH_BY_PIP, *REST_BY_PIP]
    assert re.search(rf"To be downloaded: {TORCH} \(.*requirements\.lock \(2\d\d, \d+ MB\)", done.stdout)
    assert setup()[1] == []
    later = (tmp_path / "venv/.ready").stat().st_mtime + 10
    os.utime(tmp_path / "pyproject.toml", (later, later))
    assert setup()[1] == asked


def test_an_install_cut_off_is_begun_anew(setup, tmp_path):
    done, _ = setup(fail="-r requirements.lock")
    assert done.returncode != 0 and not (tmp_path / "venv/.ready").exists()
    done, asked = setup()
    assert done.returncode == 0 and asked[0] == "python -m venv --clear venv"
    assert (tmp_path / "venv/.ready").exists() and not (tmp_path / "venv/.unfinished").exists()


@pytest.mark.parametrize(
    ("arguments", "tools", "fail", "expected"),
    [
        ((), [("uv", UV)], "nothing", [CPU_BY_UV, *REST_BY_UV]),
        ((), [("uv", UV)], "--torch-backend", [CPU_BY_UV, TORCH_BY_PIP, *REST_BY_UV]),
        ((), [("uv", UV), GPU], "nothing", [f"{UV_INSTALL} {TORCH}", *REST_BY_UV]),
        (("UV=", "TORCH_FLAGS=-i x"), [("uv", UV)], "nothing", [FLAGGED, *REST_BY_PIP]),
    ],
    ids=["uv", "no CPU build", "GPU", "no uv, another index"],
)
def test_torch_comes_in_the_build_that_fits(setup, arguments, tools, fail, expected):
    done, asked = setup(*arguments, with_tools=tools, fail=fail)
    assert done.returncode == 0 and asked[1:] == expected


def test_a_python_too_old_is_one_clear_error_and_an_environment_of_ones_own_is_left_alone(setup, tmp_path):
    script(tmp_path / "old-python", "#!/bin/sh\nexit 1\n")
    done, _ = setup("PYTHON=./old-python")
    assert done.returncode != 0 and "Python 3.11 or newer is needed" in done.stderr
    done, asked = setup("READY=")
    assert done.returncode == 0 and asked == []


def test_a_conda_environment_is_filled_and_never_made_or_cleared(setup, tmp_path):
    (tmp_path / "venv/conda-meta").mkdir(parents=True)
    (tmp_path / "venv/bin").mkdir()
    script(tmp_path / "venv/bin/python", PYTHON)
    for fail in ("-r requirements.lock", "nothing"):
        done, asked = setup(with_tools=[("uv", UV)], fail=fail)
        assert "venv" not in " ".join(asked).replace("venv/bin", "") and asked[0] == CPU_BY_UV
    assert done.returncode == 0 and asked == [CPU_BY_UV, *REST_BY_UV]


def test_a_browser_of_the_system_is_taken_and_one_that_cannot_be_had_is_no_failure(setup):
    done, asked = setup(fail="playwright install")
    assert done.returncode == 0 and BROWSER in asked and "No Chromium could be brought" in done.stderr
    assert BROWSER not in setup("VENV=other", with_tools=[("chromium", "#!/bin/sh")])[1]
