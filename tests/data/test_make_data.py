"""``make data`` from a bare repository on this machine: what it brings, a second run, one that was killed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pwagents.llm.prompts import BUILT, CONSTANTS

DATA = "PersonalWAB/envs/pwab/data/user_profiles.json"
BROUGHT = {
    DATA,
    "LICENSE",
    *CONSTANTS,  # prompts
    *(file for file, _, _ in BUILT.values()),
    "PersonalWAB/envs/pwab/functions/recommender/checkpoint/pwab.pth",
    "PersonalWAB/envs/pwab/functions/recommender/data/1000_ids.json",
    *(f"PersonalWAB/envs/pwab/functions/search/indexes/{name}" for name in ("segments_3", "_2.fdt")),
}
LEFT = {"README.md", "PersonalWAB/agents/base.py"}


@pytest.fixture
def make_data(tmp_path, project_root):
    """Run ``make data`` on a repository whose second commit is not the one to be fetched."""
    work, bare = tmp_path / "work", tmp_path / "bare.git"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    work.mkdir()
    git("init", "--quiet")
    for content in ("published", "later"):
        for name in BROUGHT | LEFT:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(f"{name}, {content}")
        git("add", "--all")
        git("commit", "--quiet", "-m", content)
    git("clone", "--quiet", "--bare", ".", str(bare))
    for name in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):  # as GitHub has them
        git("-C", str(bare), "config", name, "true")

    def run(path: str = "", url: str = bare.as_uri()) -> subprocess.CompletedProcess:
        earlier = git("rev-parse", "HEAD~1")
        settings = {"DATA_DIR": tmp_path / "my data", "DATA_URL": url, "DATA_COMMIT": earlier}
        command = ["make", "data", "READY=", *(f"{name}={value}" for name, value in settings.items())]
        environment = os.environ | {"PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
        return subprocess.run(command, cwd=project_root, env=environment, capture_output=True, text=True)

    run.folder = tmp_path / "my data"
    return run


def files_in(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def assert_whole(make_data):
    assert files_in(make_data.folder) == {name: f"{name}, published" for name in BROUGHT}
    assert [path.name for path in make_data.folder.parent.glob("my data*")] == ["my data"]


def test_it_brings_what_is_needed_and_a_second_run_without_a_network_puts_back_what_was_changed(make_data):
    done = make_data()
    assert done.returncode == 0 and "CC BY-NC 4.0" in done.stdout, done.stderr
    assert_whole(make_data)
    before = (make_data.folder / "LICENSE").stat().st_mtime_ns
    (make_data.folder / DATA).write_text("spoiled")
    done = make_data(url="file:///nowhere")
    assert done.returncode == 0, done.stderr
    assert_whole(make_data)
    assert (make_data.folder / "LICENSE").stat().st_mtime_ns == before


@pytest.mark.parametrize("step", ["clone", "sparse-checkout", "checkout"])
def test_a_run_that_was_killed_is_made_good_by_the_next(make_data, tmp_path, step):
    """Killed before and after a step of git."""
    real = shutil.which("git")
    for killed in ("before", "after"):
        fake = tmp_path / killed / "git"
        fake.parent.mkdir()
        act = f'"{real}" "$@"; ' if killed == "after" else ""
        script = f'case " $* " in *" {step} "*) {act}kill -9 $PPID; exit 1;; esac\nexec "{real}" "$@"'
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        assert make_data(path=str(fake.parent)).returncode != 0
        assert not make_data.folder.exists()
    assert make_data().returncode == 0
    assert_whole(make_data)


def test_no_network_and_another_folder_in_the_way_end_in_one_line(make_data):
    done = make_data(url="https://127.0.0.1:1/nothing")
    assert done.returncode != 0 and "unable to access" in done.stderr and not make_data.folder.exists()
    make_data.folder.mkdir()
    done = make_data()
    assert done.returncode != 0 and "is no clone: move it away" in done.stderr
    assert list(make_data.folder.iterdir()) == []
