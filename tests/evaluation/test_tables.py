"""Tables: what the three files hold, and that foreign text stays text in them."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pwagents.evaluation.figures import plot_bars
from pwagents.evaluation.tables import csv_text, format_intervals, save_table
from pwagents.notebook.figures import save_figure

EVIL = "<script>alert(1)</script> 50% & $5_x #1 {a} \\b ~^"


@pytest.fixture
def saved(tmp_path):
    """Save a table; return its CSV, HTML body and LaTeX."""

    def save(data, **options):
        save_table(data, "t", **{"title": "A title", "output_dir": tmp_path} | options)
        folder = tmp_path / "tables"
        csv, html, tex = ((folder / f"t.{kind}").read_text() for kind in ("csv", "html", "tex"))
        return csv, html[html.index("<table") :], tex

    return save


def cells(html):
    return re.findall(r"<td[^>]*gt_row[^>]*>(.*?)</td>", html)


def test_csv_has_the_numbers_and_html_and_latex_the_reading(saved):
    data = pd.DataFrame({"method": ["a", "b"], "tasks": [12345, 7], "accuracy": [0.123456789, np.nan]})
    csv, html, tex = saved(data, note="On nothing.")
    assert csv == "method,tasks,accuracy\na,12345,0.123457\nb,7,\n"
    assert cells(html) == ["a", "12,345", "0.123", "b", "7", "\N{EN DASH}"]
    assert "A title" in html and "On nothing." in html
    assert "a & 12,345 & 0.123 \\\\" in tex and "\\toprule" in tex and "On nothing." in tex


def test_numbers_are_right_aligned_and_text_left(saved):
    _, html, _ = saved(pd.DataFrame({"method": ["a"], "mean": [0.5]}))
    assert re.findall(r"gt_row gt_(\w+)", html) == ["left", "right"]


def test_counts_with_gaps_are_counts_and_shares_of_one_are_shares(saved):
    _, html, _ = saved(pd.DataFrame({"count": [3.0, np.nan], "share": [1.0, 0.0]}))
    assert cells(html) == ["3", "1.000", "\N{EN DASH}", "0.000"]


def test_formats_and_missing_can_be_given(saved):
    data = pd.DataFrame({"price": [3.14159, np.nan], "steps": [2.5, 3.5]})
    _, html, _ = saved(data, formats={"price": ".1f"}, missing="not run")
    assert cells(html) == ["3.1", "2.500", "not run", "3.500"]


def test_an_empty_text_is_shown_as_missing_and_stays_empty_in_the_csv(saved):
    csv, html, _ = saved(pd.DataFrame({"said": ["yes", ""], "step": [1, 2]}))
    assert csv == "said,step\nyes,1\n,2\n"
    assert cells(html) == ["yes", "1", "\N{EN DASH}", "2"]


def test_no_minus_zero(saved):
    _, html, _ = saved(pd.DataFrame({"gap": [-0.0001, 0.25]}))
    assert cells(html) == ["0.000", "0.250"]


def test_shown_replaces_the_numbers_for_the_reader_alone(saved):
    data = pd.DataFrame({"mean": [0.5], "low": [0.4], "high": [0.6]})
    csv, html, _ = saved(data, shown=pd.DataFrame({"accuracy": format_intervals(data)}))
    assert csv.startswith("mean,low,high") and cells(html) == ["0.500 ±0.100"]


def test_foreign_text_stays_text(saved):
    data = pd.DataFrame({EVIL: [EVIL], "{{<b>}}": ["<img src=x onerror=alert(1)>"]})
    _, html, tex = saved(data, title=EVIL, note=EVIL)
    assert "<script" not in html and "<img" not in html and "<b>" not in html
    assert html.count("&lt;script&gt;") == 4
    assert tex.count(r"50\% \& \$5\_x \#1 \{a\} \textbackslash{}b") == 4


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", '=HYPERLINK("http://x")', "-2+3+cmd|' /C calc'!A0", "  =1"]
FORMULAS += ["\t=1", "\r=1", "\n=1", "\uff1d1", "+ price", "-", "=", "- a", "+1;2", "-1e9(", "@a"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_csv_begins_a_formula(saved, text, tmp_path):
    saved(pd.DataFrame({text: [text], ("x"): ["y"]}))
    with open(tmp_path / "tables" / "t.csv", newline="") as file:
        rows = list(csv.reader(file))
    text = text.replace("\r", "\n")
    assert rows == [[f"'{text}", "x"], [f"'{text}", "y"]]
    of_figure = csv_text(pd.DataFrame({"a": [text]}))
    assert list(csv.reader(io.StringIO(of_figure, newline="")))[1] == [f"'{text}"]


def test_no_text_begins_a_row_of_its_own(saved):
    assert saved(pd.DataFrame({"a": ["x\r=1"], "b": ["y\r\n=1"]}))[0] == 'a,b\n"x\n=1","y\n=1"\n'


def test_numbers_stay_numbers(saved):
    data = pd.DataFrame(
        {"a": [-1, 2], "b": [-0.5, np.nan], "c": ["-0.5", "+3"], "d": ["-0.012 \u00b10.03", "-5%"]}
    )
    assert saved(data)[0] == "a,b,c,d\n-1,-0.5,-0.5,-0.012 \u00b10.03\n2,,+3,-5%\n"


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "", ".hidden", "..", "a\x00b", "a b", "-rf"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    frame = pd.DataFrame({"x": [1]})
    with pytest.raises(ValueError, match="expected letters, digits"):
        save_table(frame, name, title="T", output_dir=tmp_path / "out")
    with pytest.raises(ValueError, match="expected letters, digits"):
        save_figure(plot_bars, name, frame, output_dir=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["", " "])
def test_results_need_a_folder(folder):
    with pytest.raises(ValueError, match="output_dir is empty; expected a folder"):
        save_table(pd.DataFrame({"x": [1]}), "t", title="T", output_dir=folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_text_is_escaped(saved, text):
    _, html, _ = saved(pd.DataFrame({"title": [text]}))
    (cell,) = re.findall(r"<td[^>]*gt_row[^>]*>(.*?)</td>", html, re.DOTALL)
    assert "<" not in cell and ">" not in cell
    assert not re.search(r"&(?!(amp|lt|gt|quot|#x27|#39);)", cell)


def test_the_same_table_gives_the_same_bytes(saved):
    data = pd.DataFrame({"method": ["a"], "mean": [1 / 3]})
    assert saved(data, note="n") == saved(data, note="n")


def test_a_named_index_is_shown_and_an_unnamed_one_is_not(saved):
    named = pd.DataFrame({"x": [1]}, index=pd.Index(["row"], name="method"))
    assert saved(named)[0] == "method,x\nrow,1\n"
    assert saved(named.rename_axis(None))[0] == "x\n1\n"


def test_the_table_is_displayed_by_a_notebook(tmp_path):
    table = save_table(pd.DataFrame({"x": [1]}), "t", title="T", output_dir=tmp_path)
    assert "<table" in table._repr_html_()


def test_a_notebook_holds_the_page_of_a_table_once(tmp_path):
    shown = save_table(pd.DataFrame({"a": [1]}), "t", title="A title", output_dir=tmp_path)
    assert "A title" in shown._repr_html_() and repr(shown) == "Html()"


def test_interval_cells():
    summary = pd.DataFrame(
        {"mean": [0.5, 0.25, np.nan], "low": [0.4, np.nan, np.nan], "high": [0.6, np.nan, 1]}
    )
    assert format_intervals(summary, decimals=2).tolist() == ["0.50 ±0.10", "0.25", None]
    cut = pd.DataFrame({"mean": [0.02], "low": [0.0], "high": [0.06]})
    assert format_intervals(cut, decimals=2).tolist() == ["0.02 (0.00 to 0.06)"]


def test_columns_of_two_levels_have_a_heading_over_them(saved):
    columns = pd.MultiIndex.from_tuples([("source", ""), ("search", "result"), ("review", "result")])
    rows = [("a paper", 0.4, np.nan), ("here", 0.1, 0.3)]
    csv, html, tex = saved(pd.DataFrame(rows, columns=columns), missing="not run")
    assert csv.splitlines() == ["source,search: result,review: result", "a paper,0.4,", "here,0.1,0.3"]
    assert html.count('<span class="gt_column_spanner">') == 2 and "not run" in html
    assert "source & result & result" in tex
