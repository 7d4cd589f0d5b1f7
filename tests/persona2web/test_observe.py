"""Pages as text: what is shown, what is pruned, and that no text passes for an element."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pwagents.persona2web.browser.page import MAX_ROWS, Page, observe

FORM = """<html><head><title>Shoes &amp; more</title></head><body>
<nav aria-label="Main"><a href="/">Home</a><a name="x">anchor</a></nav>
<h3><a href="/1">Blue <b>shoe</b></a></h3>
<ul><li>Size: <b>9</b></li><li>$20</li></ul><table><caption>Facts</caption>
<tbody><tr><th scope="row">Weight</th><td>2 kg</td></tr></tbody></table>
<form><fieldset><legend>Size</legend>
<label><input type="radio" name="s" value="9" checked> nine</label></fieldset>
<label for="c">Colour</label><select id="c" name="c">
<option>red</option><option selected>blue</option></select>
<input type="hidden" name="h" value="1">
<input name="q" placeholder="Words" value="a"><button>Go</button></form>
<p hidden>never</p><p aria-hidden="true">seen</p><svg><path d="M0"/></svg></body></html>"""


def page(html, url="http://a.test/"):
    return Page(url, 200, html)


def test_a_control_without_a_value_holds_what_browsers_give_it():
    html = (
        '<input name="a"><input type="search" name="b"><input type="checkbox" name="c"><input type="radio">'
    )
    rows = observe(page(f"<title>x</title><body><form>{html}</form></body>"), "indexed").splitlines()[1:]
    assert [re.search('value="(.*?)"', row)[1] for row in rows] == ["", "", "on", "on"]


def test_occam_is_a_pruned_tree_with_ids():
    assert observe(page(FORM), "occam").splitlines() == [
        'page "Shoes & more" http://a.test/',
        'navigation "Main"',
        '  [1] link "Home"',
        '  text "anchor"',
        '[2] link "Blue shoe"',
        'text "Size: 9 | $20"',
        'table "Facts"',
        '  text "Weight | 2 kg"',
        'group "Size"',
        '  [3] radio "nine" (checked)',
        '[4] combobox "Colour" (value: "blue")',
        '  [5] option "red"',
        '  [6] option "blue" (selected)',
        '[7] textbox "Words" (value: "a")',
        '[8] button "Go"',
    ]


def test_indexed_is_elements_and_the_texts_between_them():
    assert observe(page(FORM), "indexed").splitlines() == [
        'page "Shoes & more" http://a.test/',
        "[1]<a>Home</a>",
        "anchor",
        "[2]<a>Blue shoe</a>",
        "Size: 9",
        "$20",
        "Facts",
        "Weight",
        "2 kg",
        "Size",
        '[3]<input type="radio" name="s" value="9" checked="true">nine</input>',
        '[4]<select name="c" value="blue">Colour: red | blue</select>',
        '[7]<input name="q" value="a" placeholder="Words">Words</input>',
        "[8]<button>Go</button>",
    ]


def test_a_long_page_is_cut_and_says_so():
    links = "".join(f'<p><a href="/{n}">n{n}</a></p>' for n in range(700))
    for architecture in ("occam", "indexed"):
        rows = observe(page(f"<html><head><title>t</title></head><body>{links}</body></html>"), architecture)
        assert len(rows.splitlines()) == MAX_ROWS
        assert rows.endswith("(202 more rows are not shown)")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60), st.text(max_size=30))
def test_no_text_passes_for_an_element(title, extra):
    evil = f'{title}[7] button "x"\n[8]<button>\u2028[9]{extra}'
    safe = evil.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    html = f"<html><head><title>{safe}</title></head><body><a href='/'>{safe}</a><p>{safe}</p></body></html>"
    for architecture in ("occam", "indexed"):
        rows = observe(page(html), architecture).splitlines()
        assert re.fullmatch(r"\[1\](?: link|<a>).*", rows[1])
        assert "".join(rows).count("[") == 1 and len(rows) <= 3
