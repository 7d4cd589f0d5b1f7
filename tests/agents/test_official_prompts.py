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
    assert official_prompts("") == ({}, "prompts: our own")


def test_every_constant_is_read_nothing_is_executed_and_the_origin_follows_the_content(clone):
    prompts, origin = official_prompts(clone)
    assert set(prompts) == {name for names in CONSTANTS.values() for name in names} and len(prompts) == 16
    assert prompts["RECMIND_MT_PROPMT"] == "\nThe text of RECMIND_MT_PROPMT, <NUM> steps.\n"
    assert origin.startswith("prompts: official repository (") and origin == official_prompts(clone).origin
    with (clone / UTILS).open("a") as file:
        file.write("\n# changed\n")
    assert official_prompts(clone).origin != origin


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (SINGLE, None, r"envs/pwab/__init__.py.*No such file.*clone of HongruCai"),
        (SINGLE, b"SYS_PROMPT_SINGLE = 7", r"envs/pwab/__init__.py.*'SYS_PROMPT_SINGLE'.*string constant"),
        (SINGLE, b"def f():\n    SYS_PROMPT_SINGLE = 'x'", "'SYS_PROMPT_SINGLE'.*string constant"),
        (UTILS, b"A = (", "agents/utils.py.*clone of HongruCai"),
        (UTILS, b"A = '\x00'", "agents/utils.py.*clone of HongruCai"),
        (UTILS, b"\xff\xfe", "agents/utils.py.*clone of HongruCai"),
    ],
)
def test_a_clone_that_is_none_is_refused_in_one_error(clone, name, content, message):
    (clone / name).unlink()
    if content is not None:
        (clone / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        official_prompts(clone)
