"""Published prompts, read from a clone; the clone here is made on the spot, with words of our own."""

import pytest

from pwagents.errors import DataError
from pwagents.llm.prompts import MARK, fill_marks, official_prompts, write_product, write_profile
from pwagents.schema import Product, UserProfile

from ..clone import SINGLE, UTILS, make_clone


@pytest.fixture
def clone(tmp_path):
    return make_clone(tmp_path)


def test_without_a_clone_the_prompts_are_ours():
    assert official_prompts("") == ({}, "prompts: our own")


def test_every_text_is_read_nothing_is_executed_and_the_origin_follows_the_content(clone):
    prompts, origin = official_prompts(clone)
    assert prompts["RECMIND_MT_PROPMT"] == "[RECMIND_MT_PROPMT <NUM>]"
    # The script's, not the user's of that name.
    assert prompts["FIRST_HISTORY"].startswith("[PRODUCT_PROMPT ")
    assert prompts["stop.__info__"]["function"]["name"] == "stop"
    assert prompts["last"] == f"[mem last {MARK}]" and prompts["react last"] == f"[react mem last {MARK}]"
    assert prompts["interecagent"] == f"[mem interecagent {MARK}]{MARK}[dislike]{MARK}"
    assert prompts["task"] == f"Customer {MARK}: {MARK}; it is {MARK}"
    assert origin.startswith("prompts: official repository (") and origin == official_prompts(clone).origin
    with (clone / UTILS).open("a") as file:
        file.write("\n# changed\n")
    assert official_prompts(clone).origin != origin


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (SINGLE, None, r"envs/pwab/__init__.py.*No such file.*clone of HongruCai"),
        (SINGLE, b"SYS_PROMPT_SINGLE = f()", r"envs/pwab/__init__.py.*'SYS_PROMPT_SINGLE'.*a constant"),
        (SINGLE, b"def f():\n    SYS_PROMPT_SINGLE = 'x'", "'SYS_PROMPT_SINGLE'.*a constant"),
        ("PersonalWAB/agents/chat_react_agent.py", b"x = 1", "memory == 'last'.*'mem'.*put together"),
        (UTILS, b"\xff\xfe", "agents/utils.py.*clone of HongruCai"),
    ],
)
def test_a_clone_that_is_none_is_refused_in_one_error(clone, name, content, message):
    (clone / name).unlink()
    if content is not None:
        (clone / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        official_prompts(clone)


def test_values_stand_in_their_places_and_their_own_placeholders_stay(clone):
    lamp = Product(parent_asin="B1", title="Lamp <PRICE>", category="Other", price=9.5, features=("a", "b"))
    form = "<Num>. <TITLE> <PRICE> <MAIN_CATEGORY> <FEATURES> <DETAILS> <STORE> <RATING>"
    told = write_product(form, lamp, 3, RATING="5.0")
    assert told == "3. Lamp <PRICE> 9.5 None ['a', 'b'] {} None 5.0"
    assert fill_marks(f"a{MARK}b{MARK}c", "1", f"{MARK}") == f"a1b{MARK}c"
    prompts, _ = official_prompts(clone)
    profile = UserProfile(**dict.fromkeys(UserProfile.model_fields, "x") | {"price_sensitivity": "High"})
    assert "[dear]" in write_profile(prompts, profile) and "<" not in write_profile(prompts, profile)
