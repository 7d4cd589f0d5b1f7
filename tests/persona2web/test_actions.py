"""Actions as text: what is read, and that whatever is not becomes an error in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.browser.driver import (
    FORMS,
    ActionError,
    HtmlDriver,
    Visit,
    read_action,
    split_action,
)


@pytest.fixture
def visit(web):
    driver = HtmlDriver(web)
    driver.begin(web.begin())
    return Visit(driver, "indexed")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("click [12]", ("click", [12])),
        ("  Click[12] ", ("click", [12])),
        ("type [3] [blue [wide] shoes]", ("type", [3, "blue [wide] shoes"])),
        ("type [3] [blue] [1]", ("type", [3, "blue", True])),
        ("type [3] []", ("type", [3, ""])),
        ("select [4] [Up to $30]", ("select", [4, "Up to $30"])),
        ("go_to [start.test]", ("go_to", ["start.test"])),
        ("go_back", ("go_back", [])),
    ],
)
def test_an_action_is_read(text, read):
    assert read_action(text, "indexed") == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no action; actions are: click"),
        ("hover [3]", "is no action"),
        ("click 3", "is no action"),
        ("click [3] now", "is no action"),
        ("click [x]", "no number of an element"),
        ("click [-1]", "no number of an element"),
        ("click [99999999999]", "no number of an element"),
        ("click", r"has 0 arguments; write click \[number\]"),
        ("type [3]", "has 1 arguments"),
        ("select [3] [a]", "is no action"),
    ],
)
def test_a_malformed_action_is_an_error_that_says_what_was_expected(text, message):
    with pytest.raises(ActionError, match=message):
        read_action(text, "occam")


@given(st.text(max_size=40), st.sampled_from(list(FORMS)))
def test_any_text_is_read_or_refused(text, architecture):
    try:
        name, arguments = read_action(text, architecture)
    except ActionError:
        return
    assert name in FORMS[architecture] and len(arguments) <= 3


@given(st.lists(st.text("abc 12'\"", max_size=8), max_size=3), st.sampled_from(["type", "Ask", "STOP"]))
def test_actions_are_split_as_they_are_written(arguments, name):
    brackets = [f"[{each}]" for each in arguments]
    assert split_action(" ".join([name, *brackets])) == (name.lower(), arguments)
    assert split_action("".join([name, *brackets])) == (name.lower(), arguments)


@pytest.mark.parametrize("text", ["", "stop [half", "I stop [now]", "ask Which?", "[3]", "click [1] now"])
def test_what_has_no_form_of_an_action_has_no_name(text):
    assert split_action(text) == ("", [])


def test_a_visit_goes_on_after_what_cannot_be_done(visit):
    first = visit.observe()
    for action, error in [
        ("click [999]", "there is no element [999] on this page"),
        ("type [1] [x]", "link 1 takes no text"),
        ("select [1] [x]", "link 1 has no options"),
        ("go_back", "there is no page to go back to"),
        ("go_to [file:///etc/passwd]", "'file:///etc/passwd' is no address of a website"),
        ("go_to [http://[::1]", "is no a"),
        ("click [2]", "searchbox 2 is not for clicking"),
    ]:
        assert error in visit.act(action)
    assert visit.observe() == first
    assert visit.act("type [2] [\ud800]") == ""
    assert visit.act("type [2] [hotel] [1]") == ""
    assert "Skylark Travel" in visit.observe() and "Marlow Goods" not in visit.observe()
    assert visit.act("go_to [wayfarely.test/search?in=hotels]") == ""
    combobox = next(id for id, node in visit.driver.page.elements.items() if node.role == "combobox")
    assert "has no option 'moon'; it has: Any" in visit.act(f"select [{combobox}] [moon]")
