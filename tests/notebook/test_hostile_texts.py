"""Product texts, reviews and replies that are programs: in Chromium none runs or fetches anything."""

import re
from html import escape

import nbformat
import pandas as pd
import pytest

from pwagents.lm.tokens import Example
from pwagents.results import tables
from pwagents.results.viewer import show_episodes
from pwagents.schema import Action, Observation, Product, Review, Step, Task, Trajectory

from .notebooks import cells_of

RUN = "ran.push(1)"  # what each of them tries
HOSTILE = [
    f"<script>{RUN}</script>",
    "<script src='http://127.0.0.1:9/x.js'></script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<math><mtext></mtext><mglyph><style><img src=x onerror={RUN}>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<object data='javascript:{RUN}'></object>",
    f"<details open ontoggle={RUN}>x</details>",
    f"<a href='javascript:{RUN}' autofocus onfocus={RUN}>a mug</a>",
    f"<form action='javascript:{RUN}'><button autofocus onfocus={RUN}>buy</button></form>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href='http://127.0.0.1:9/'>",
    "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
    "<style>@import 'http://127.0.0.1:9/x.css'; body{display:none}</style>",
    "<div style='background:url(http://127.0.0.1:9/x.png)'>x</div>",
    f"</td></tr></table><script>{RUN}</script>",
    f"</span></div></pre><script>{RUN}</script>",
    f"</title></textarea></style></script><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f'" autofocus onfocus={RUN} x="',
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"<img src=x\x0conerror={RUN}>",
    f"{{{{ {RUN} }}}}{{% set x = 1 %}}${{{RUN}}}",
    f"[a mug](javascript:{RUN})",
    "![x](http://127.0.0.1:9/x.png)",
    f"$\\href{{javascript:{RUN}}}{{a mug}}$",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
]
TEX = [
    "\\input{/etc/passwd}",
    "\\immediate\\write18{touch /tmp/x}",
    "\\end{tabular}\\input{|ls}",
    "100% & 50 $ a_b^c #1 ~ {x}",
    "^^5cinput{/etc/passwd}",
    "$\\csname input\\endcsname$",
    "a \\\\ b & c",
]
TOUCH = """() => document.querySelectorAll('body *').forEach(node => {
    for (const kind of ['focus', 'mouseover', 'click', 'toggle', 'error', 'load', 'begin'])
        if (!(kind == 'click' && node.tagName == 'A')) node.dispatchEvent(new Event(kind))
})"""
# Of great_tables' own.
OWN_TO_LATEX = re.compile(
    "addlinespace|arraybackslash|begin|bottomrule|caption|centering|end|extracolsep|fill|fontsize|footnotesize|"
    "large|linewidth|LTpost|midrule|minipage|selectfont|setlength|small|text(asciicircum|asciitilde|backslash|"
    "greater|less|width)|toprule"
)
SCRIPT, IMAGE, QUOTE = HOSTILE[0], f"<img src=x onerror={RUN}>", f'" autofocus onfocus={RUN} x="'


def frame():
    return pd.DataFrame(dict.fromkeys((SCRIPT, IMAGE, QUOTE), HOSTILE))


def table(folder):
    """A table as a notebook shows it; its page lies in the folder."""
    return tables.save_table(frame(), "t", title=IMAGE, note=SCRIPT, output_dir=folder).html


def page_of_table(folder):
    table(folder)
    return (folder / "tables" / "t.html").read_text()


def viewer(folder=None):
    target = Product(parent_asin="B1", title=" ".join(HOSTILE)[:590], category="x")
    steps = [
        Step(
            action=Action(name=text, arguments={text: text}, thought=text),
            observation=Observation(text=text, products=("B1",) if i % 3 == 0 else ()),
            error=text if i % 3 == 1 else "",
        )
        for i, text in enumerate(HOSTILE)
    ]
    ids = {"task_id": "t", "user_id": SCRIPT, "type": "search"}
    review = Review(rating=5)
    task = Task(**ids, timestamp=1, instruction=" ".join(HOSTILE), target="B1", review=review)
    played = {IMAGE: Trajectory(**ids, target="B1", steps=tuple(steps))}
    return show_episodes(task, played, {"B1": target}, {IMAGE: "\n".join(HOSTILE)}).data


class Words:
    """A tokenizer to which each hostile text is a token."""

    def decode(self, ids):
        return HOSTILE[ids[0]]


def tokens(folder=None):
    """What notebook 05 shows of a conversation's tokens: the end of its cell."""
    (cell,) = (cell.source for cell in cells_of("05_orion_sft") if "for token, is_learned" in cell.source)
    *_, last = (code := cell[cell.index("look =") :]).splitlines()
    ids = list(range(len(HOSTILE)))
    given = {"tokenizer": Words(), "as_tokens": Example(ids, [i % 2 for i in ids])}
    given |= {"escape": escape, "Html": tables.Html}
    exec(code.removesuffix(last), given)
    return eval(last, given).html


def exported(folder):
    """A notebook with all of them as outputs, as nbconvert makes a page of it."""
    from nbconvert import HTMLExporter

    shown = [table(folder), viewer(), tokens()]
    outputs = [nbformat.v4.new_output("display_data", {"text/html": html}) for html in shown]
    streams = {"text": "\n".join(HOSTILE)}
    outputs += [nbformat.v4.new_output("stream", name=name, **streams) for name in ("stdout", "stderr")]
    outputs += [nbformat.v4.new_output("display_data", {"text/plain": text}) for text in HOSTILE]
    outputs.append(nbformat.v4.new_output("error", ename="E", evalue="x", traceback=HOSTILE))
    cell = nbformat.v4.new_code_cell("\n".join(f"# {text}" for text in HOSTILE), outputs=outputs)
    return HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))[0]


# The same texts in what a reader opens; the first two are whole pages.
VIEWS = {
    "page of a table": page_of_table,
    "exported notebook": exported,
    "table": table,
    "settings": lambda folder: tables.render_table(frame(), "s", title=SCRIPT, bold_rows=[0]).html,
    "banner": lambda folder: tables.banner("\n".join(HOSTILE)).html,
    "viewer": viewer,
    "tokens": tokens,
}


@pytest.fixture
def opened(browser, tmp_path):
    """``opened(htmls)``: a page of each text, all of it touched; what ran and what was asked for.

    Each text has a page of its own: where one went on to another address, the next would collide with that.
    """
    from playwright.sync_api import Error

    elsewhere = re.compile("^(?!file:|data:|about:)")
    context = browser.new_context()
    context.add_init_script("window.ran = []")

    def touch(html, number):
        file = tmp_path / f"page_{number}.html"
        file.write_text(html, "utf-8", "replace")
        page = context.new_page()
        asked, spoken = [], []
        page.route(elsewhere, lambda route: (asked.append(route.request.url), route.abort()))
        page.on("dialog", lambda dialog: (spoken.append(dialog.message), dialog.dismiss()))
        page.goto(file.as_uri(), wait_until="commit")
        try:
            page.wait_for_load_state()
            page.evaluate(TOUCH)
        except Error:  # it went to another page
            spoken.append("it left")
        return page, file.as_uri(), asked, spoken

    def look(htmls):
        """All pages at once, as each takes a while to run what it runs."""
        touched = [touch(html, number) for number, html in enumerate(htmls)]
        touched[-1][0].wait_for_timeout(200)
        for page, url, asked, spoken in touched:
            try:
                ran = page.evaluate("window.ran.length") + len(spoken)
            except Error:
                ran = 1
            yield page, ran or page.url != url, asked

    yield look
    context.close()


def test_this_browser_would_run_them(opened):
    """Written into a page as they are, many of them do harm: or else the tests below would show nothing."""
    pages = opened(f"<!doctype html><body>{text}</body>" for text in HOSTILE)
    assert sum(bool(ran or asked) for _, ran, asked in pages) >= 16


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_runs_and_nothing_is_fetched(opened, tmp_path, view):
    is_page, html = view in list(VIEWS)[:2], VIEWS[view](tmp_path)
    [(page, ran, asked)] = opened([html if is_page else f"<!doctype html><meta charset=utf-8><body>{html}"])
    assert not ran
    # nbconvert's pages ask for their own libraries
    own = re.compile(r"^https://cdn(js)?\.[\w./-]+/(mathjax|require\.js|mermaid)[\w.@/?=-]*", re.IGNORECASE)
    assert [url for url in asked if view != "exported notebook" or not own.match(url)] == []
    shown = page.locator("body").inner_text()
    assert all(text in shown for text in (f"<img src=x onerror={RUN}>", f"<svg onload={RUN}>"))
    harmful = "script, iframe, object, embed, form, base, link, svg, math, video, audio, input, [onerror]"
    if not is_page:  # these have heads of their own
        assert page.locator("body").locator(harmful).count() == 0


def test_no_text_is_a_command_of_latex(tmp_path):
    texts = [*HOSTILE, *TEX]
    data = pd.DataFrame({"text": texts, TEX[0]: 1})
    tables.save_table(data, "t", title=TEX[1], note=TEX[3], output_dir=tmp_path)
    tex = (tmp_path / "tables" / "t.tex").read_text()
    commands = set(re.findall(r"(?<!\\)(?:\\\\)*\\([A-Za-z]+)", tex))
    assert [command for command in commands if not OWN_TO_LATEX.fullmatch(command)] == []
    rows = tex[tex.index("\\midrule") : tex.rindex("\\bottomrule")]
    assert len(re.findall(r"(?<!\\)&", rows)) == len(texts)  # one between two cells, none within
    assert not re.search(r"(?<!\\)[$#%]", rows)
