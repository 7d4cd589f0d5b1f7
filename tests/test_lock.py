"""requirements.lock: all that is installed, each file by its hash, in step with pyproject.toml."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@pytest.fixture(scope="module")
def locked(project_root):
    """name -> (requirement, number of hashes)."""
    text = (project_root / "requirements.lock").read_text().replace(" \\\n", " ")
    lines = [line.partition(" --hash=") for line in text.splitlines()]
    hashes = [re.findall(r"sha256:[0-9a-f]{64}\b", found) for _, _, found in lines]
    requirements = [Requirement(line) for line, _, _ in lines]
    assert [len(found) for found in hashes] == [line.count("--hash=") for line in text.splitlines()]
    return {canonicalize_name(r.name): (r, len(found)) for r, found in zip(requirements, hashes, strict=True)}


@pytest.fixture(scope="module")
def project(project_root):
    return tomllib.loads((project_root / "pyproject.toml").read_text())["project"]


def test_each_file_is_known_by_its_hash_and_no_place_is_named(locked, project_root):
    assert all(count > 0 for _, count in locked.values())
    assert all(re.fullmatch(r"==[^,*]+", str(requirement.specifier)) for requirement, _ in locked.values())
    assert not re.search(r"://|index|find-links| @ ", (project_root / "requirements.lock").read_text())


def test_it_is_in_step_with_pyproject(locked, project):
    asked = [Requirement(r) for r in project["dependencies"] + project["optional-dependencies"]["dev"]]
    other = {
        str(requirement)
        for requirement in asked
        if requirement.name != "torch"
        for (pin,) in [locked[canonicalize_name(requirement.name)][0].specifier]
        if not requirement.specifier.contains(pin.version)
    }
    assert other == set()
    build = Requirement("setuptools>=77")
    (version,) = locked["setuptools"][0].specifier
    assert build.specifier.contains(version.version)
