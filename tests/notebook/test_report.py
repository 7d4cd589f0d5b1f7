"""The report of a tiny folder of results, opened from the disk in real Chromium, as readers and phones do."""

import json
import re

import nbformat
import pandas as pd
import pytest
from matplotlib.figure import Figure

from pwagents.report.site import build
from pwagents.results import tables

HOSTILE = (
    "</script><script>ran.push(1)</script><img src=x onerror=ran.push(2)><svg onload=ran.push(3)>"
    "<a href='javascript:ran.push(4)'>x</a> {{ 7 * 7 }} \u2028 \ud800"
)
PRINTABLE = HOSTILE.replace("\ud800", "")  # what a file in UTF-8 can hold
DATA = {"source": "synthetic", "data_dir": "", "n_users": 4}
N_EPISODES = 450  # three chunks


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A preset's folder with its report."""
    folder = tmp_path_factory.mktemp("outputs") / "smoke"
    ours = {"source": ["PersonalWAB, Table 5", "here"], "row": ["PUMA", f"small model {PRINTABLE}"]}
    ours = pd.DataFrame(ours | {f"a column with a long name {i}": [0.5, 0.25] for i in range(12)})
    tables.save_table(ours, "04_table_5", title="PersonalWAB, Table 5: ablations", output_dir=folder)
    tables.save_table(ours, "04_single_turn", title=PRINTABLE, note=PRINTABLE * 3, output_dir=folder)
    (folder / "figures").mkdir()
    figure = Figure()
    figure.subplots().plot([1, 2])
    figure.savefig(folder / "figures" / "04_variants.png")
    write_notebook(folder / "notebooks" / "04_puma.ipynb")
    tables.save_table(ours, "01_statistics", title="of a notebook without players", output_dir=folder)
    players = {"user": "rules", "base_url": "http://me:secret@127.0.0.1/v1"}
    rows = [journal_row("01_data")]
    rows += [journal_row(name, players=players) for name in ("04_puma", "09_persona2web")]
    write_lines(folder / "timings" / "journal.jsonl", rows)
    episodes = [episode(i) for i in range(N_EPISODES)]
    write_lines(folder / "runs" / "04_puma.jsonl", episodes)
    with open(folder / "runs" / "04_puma.jsonl", "a") as file:
        file.write('{"key": "cut sho')
    write_lines(folder / "runs" / "09_level_2.jsonl", [WEB])
    build(folder)
    return folder / "report"


def write_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_notebook(path):
    shown = f"<pre>{'wide ' * 100}</pre><img alt='' src=\"data:image/png;base64,iVBORw0KGgo=\">"
    outputs = [
        nbformat.v4.new_output("display_data", {"text/html": shown}),
        nbformat.v4.new_output("display_data", {"text/html": PRINTABLE}),  # worse than any of ours
        nbformat.v4.new_output("stream", text=PRINTABLE),
    ]
    code = nbformat.v4.new_code_cell
    cells = [nbformat.v4.new_markdown_cell("# 04"), code("%magic", outputs=outputs)]
    path.parent.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def journal_row(notebook, **groups):
    settings = {"output_dir": "outputs/smoke", "data": DATA, "seed": 0, **groups}
    return {
        "notebook": notebook, "status": "finished", "preset": "smoke", "seed": 0, "source": "synthetic",
        "settings": settings, "data_hash": "hash", "started": "2026-01-01T00:00:00", "commit": "c0ffee",
        "local_changes": True, "versions": {"python": "3.11"}, "cpu_count": 2, "minutes": 1.5,
        "peak_memory_mb": 100.0, "timings": {},
    }  # fmt: skip


def episode(i):
    """Every third succeeds; one asks for a lute, one is refused; the first says what was asked for."""
    query = "a lute" if i == 300 else f"{HOSTILE} {i}"
    action = {"name": "search_product_by_query", "arguments": {"query": query, "n": 0}, "thought": HOSTILE}
    products = ["B1"] if i % 3 == 0 else []
    steps = [
        {"action": action, "observation": {"text": HOSTILE, "products": products}},
        {"action": {"name": HOSTILE}, "observation": {"text": HOSTILE}, "error": HOSTILE},
    ]
    ids = {"task_id": f"t{i % 200}", "user_id": "U1", "type": "search"}
    asked = {"instruction": "A present for a cat"} if i == 0 else {}
    end = {"end": "refused", "message": f"too long {HOSTILE}"} if i == 301 else {"end": "stop"}
    return {
        "key": "k", **ids, **asked, "method": ("GRPO", HOSTILE)[i % 2], "model": "none", "params": {},
        "outcome": "scored", "message": "", "seconds": 0.1, "memory": None,
        "trajectory": {**ids, "target": "B1", "steps": steps, **end},
    }  # fmt: skip


# An episode of the local web.
CLICK = {"observation": f"[1] {HOSTILE}", "reason": "it flies", "action": "click [1]", "error": "no"}
RECALL = {"query": f"seat {HOSTILE}", "retrieved": ["e1", "e2"], "answer": "window"}
WEB_STEPS = [{"kind": "web", **CLICK}, {"kind": "memory", **RECALL}]
WEB = {
    "key": "k", "task_id": "w", "user_id": "u", "method": "offline agent", "model": "none", "params": {},
    "outcome": "scored", "query": "Book a flight", "trajectory": {"task_id": "w", "steps": WEB_STEPS},
}  # fmt: skip


class Opened:
    """A page, what it said and what it asked for."""

    def __init__(self, browser, site, width, theme="light"):
        self.site, self.said, self.asked = site, [], []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.page.set_default_timeout(120_000)
        self.page.add_init_script("window.ran = []")
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def go(self, name):
        self.page.goto((self.site / name).as_uri())
        if name == "episodes.html":
            self.page.wait_for_selector("body[data-ready]")
        return self.page

    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.fixture
def opened(browser, site, request):
    opened = Opened(browser, site, *request.param)
    yield opened
    opened.page.close()
    assert [url for url in opened.asked if not url.startswith(("file://", "data:"))] == []


WINDOWS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]
WIDE = pytest.mark.parametrize("opened", [(1280,)], indirect=True)


@pytest.mark.parametrize("opened", WINDOWS, indirect=True)
def test_pages_fit_the_window_and_run_no_text_of_others(opened):
    for name in ("index.html", "papers.html", "04_puma.html", "episodes.html"):
        page = opened.go(name)
        if name == "episodes.html":
            page.locator("#found li").nth(1).get_by_role("button", name="left").click()
            page.locator("#found li").nth(2).get_by_role("button", name="right").click()
            page.wait_for_selector("#right .agent")
        assert opened.overflow() <= 0, name
        assert page.evaluate("window.ran") == [], name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert (max(map(int, re.findall(r"\d+", background))) < 60) == dark
        # Of scripts and a missing image in a notebook's output, the browser says that it refused them.
        refused = r"Content Security Policy|ERR_FILE_NOT_FOUND" if name == "04_puma.html" else "^$"
        assert [text for text in opened.said if not re.search(refused, text)] == [], name
        opened.said.clear()


@WIDE
def test_episodes_are_filtered_searched_and_shown_beside_each_other(opened):
    page = opened.go("episodes.html")

    def found():
        return int(page.locator("#count").inner_text().split(" of ")[0])

    def choose(n, **filters):
        """Choose in filters, show the first of the ``n`` episodes that are left, and return its text."""
        for name, label in filters.items():
            page.select_option(f"#{name}", label=label)
        page.wait_for_function(f"document.getElementById('found').children.length == {n}")
        page.get_by_role("button", name="left").first.click()
        method = page.locator("#found li span").first.inner_text()
        page.wait_for_function(f"document.querySelector('#left h2')?.innerText == {json.dumps(method)}")
        return page.locator("#left").inner_text()

    assert found() == N_EPISODES + 1
    text = choose(1, methods="offline agent (1)")
    for part in ("Book a flight", "from 2 records", "window", "click [1]", "it flies", "no", "<script>ran"):
        assert part in text
    page.select_option("#methods", label="all")
    page.select_option("#outcomes", label=f"result 1 ({N_EPISODES // 3})")
    assert found() == N_EPISODES // 3
    page.fill("#text", "LUTE")
    text = choose(1, methods=f"GRPO ({N_EPISODES // 2})")
    assert "a lute" in text and "n: 0" in text
    page.locator("#left select").select_option(index=1)  # another episode of the same task
    page.wait_for_selector("#right .agent")
    assert "</script><script>ran.push(1)" in page.locator("#right").inner_text()
    page.reload()
    page.wait_for_selector("#left .agent")  # the address names both
    assert page.locator("#right .agent").count() > 0 and page.evaluate("window.ran") == []

    page.fill("#text", "")
    text = choose(1, methods="all", outcomes="refused by its model (1)")
    assert "refused by its model (too long </script>" in text

    page.select_option("#outcomes", label="all")
    page.fill("#text", "present for a cat")
    page.check("#whole")
    page.wait_for_function("/^1 of/.test(document.getElementById('count').textContent)")


def test_a_notebooks_page_says_what_made_its_results_and_links_their_files(site):
    page = (site / "04_puma.html").read_text()
    places = [page.index(f'<li id="{id}"') for id in ("figure-04_variants", "04_single_turn", "04_table_5")]
    assert places == sorted(places) and page.index("wide wide") > places[-1], "and then the notebook itself"
    for fact in ("c0ffee", "with local changes", "--preset smoke", "synthetic, hash", "1.5 minutes"):
        assert fact in page
    pages = "".join(page.read_text() for page in site.glob("*.html"))
    links = set(re.findall(r'"(files/[^"]+)"', pages))
    assert {f"files/04_table_5.{kind}" for kind in ("html", "csv", "tex")} <= links
    assert "files/04_variants.png" in links
    assert all((site / name).exists() for name in links) and "secret" not in page


def test_the_first_page_shows_the_main_tables_and_figures(site):
    page = (site / "index.html").read_text()
    assert "results in smoke. Preset smoke; made by commit <code>c0ffee</code> (01, 04, 09)" in page
    shown = re.findall(r'<section id="([^"]+)">', page)
    assert shown == ["figure-04_variants", "04_single_turn"] and "<td" in page


def test_the_page_of_papers_names_all_parts_once_and_links_their_tables(site):
    page = (site / "papers.html").read_text()
    for part in ("Table 4: methods in several", "Equation 1: ", "R_t: ", "Main results: "):
        assert page.count(f"<h3>{part}") == 1
    assert page.count('href="04_puma.html#04_table_5"') == 1
