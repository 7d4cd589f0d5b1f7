"""Published prompts, read from a clone; the clone here is made on the spot, with words of our own."""

import pytest

from pwagents.agents.official_prompts import CONSTANTS, official_prompts
from pwagents.errors import DataError

SINGLE, UTILS = CONSTANTS


@pytest.fixture
def clone(tmp_path):
    for file, names in CONSTANTS.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        lines = ["import torch_that_is_not_there", "raise SystemExit('executed')", "OTHER = 7"]
        lines += [f"{name} = '''\nThe text of {name}, <NUM> steps.\n'''" for name in names]
        (tmp_path / file).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_without_a_clone_the_prompts_are_ours():
    prompts = official_prompts("")
    assert prompts.texts == {} and prompts.origin == "prompts: our own"


def test_every_constant_is_read_and_nothing_is_executed(clone):
    prompts = official_prompts(clone).texts
    assert set(prompts) == {name for names in CONSTANTS.values() for name in names}
    assert prompts["RECMIND_MT_PROPMT"] == "\nThe text of RECMIND_MT_PROPMT, <NUM> steps.\n"
    assert len(prompts) == 16


def test_the_origin_follows_the_content(clone):
    before = official_prompts(str(clone)).origin
    assert before.startswith("prompts: official repository (") and before == official_prompts(clone).origin
    path = clone / UTILS
    path.write_text(path.read_text() + "\n# changed\n")
    assert official_prompts(clone).origin != before


def test_a_missing_file_is_named(clone):
    (clone / SINGLE).unlink()
    with pytest.raises(DataError, match=r"envs/pwab/__init__.py.*No such file.*clone of HongruCai"):
        official_prompts(clone)


@pytest.mark.parametrize(
    "text", ["", "REACT_INST = 7", "REACT_INST = make()", "def f():\n    REACT_INST = 'x'"]
)
def test_a_missing_constant_is_named(clone, text):
    path = clone / UTILS
    path.write_text(path.read_text().replace("REACT_INST = ", "REACT = ") + "\n" + text)
    with pytest.raises(DataError, match=r"agents/utils.py.*'REACT_INST'.*string constant"):
        official_prompts(clone)


@pytest.mark.parametrize("content", [b"A = (", b"A = '\x00'", b"\xff\xfe"])
def test_a_file_that_is_no_python_is_named(clone, content):
    (clone / UTILS).write_bytes(content)
    with pytest.raises(DataError, match=r"agents/utils.py.*expected a clone of HongruCai"):
        official_prompts(clone)
