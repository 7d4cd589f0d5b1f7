"""Tables: what the three files hold, and that foreign text stays text in them."""

import csv
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pwagents.results.drawing import save_figure
from pwagents.results.figures import plot_bars
from pwagents.results.tables import format_differences, format_intervals, save_table


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


def test_csv_has_the_numbers_and_html_and_latex_the_reading(saved, tmp_path):
    data = pd.DataFrame({"method": ["a", "b"], "tasks": [12345, 7], "accuracy": [0.123456789, np.nan]})
    files = saved(data, note="On nothing.")
    csv, html, tex = files
    assert csv == "method,tasks,accuracy\na,12345,0.123457\nb,7,\n"
    assert cells(html) == ["a", "12,345", "0.123", "b", "7", "\N{EN DASH}"]
    assert re.findall(r"gt_row gt_(\w+)", html)[:3] == ["left", "right", "right"]
    assert "A title" in html and "On nothing." in html
    assert "a & 12,345 & 0.123 \\\\" in tex and "\\toprule" in tex and "On nothing." in tex
    assert saved(data, note="On nothing.") == files, "the same table gives the same bytes"
    shown = save_table(data, "t", title="A title", output_dir=tmp_path)
    assert "A title" in shown._repr_html_() and repr(shown) == "Html()", "a notebook holds it once"
    (look,) = re.findall("<table[^>]*>", shown.html)
    assert ";color: #333" in look and "background-color: #FFF" in look, "legible in a dark theme, too"


@pytest.mark.parametrize(
    ("column", "options", "expected"),
    [
        ([3.0, np.nan], {}, ["3", "\N{EN DASH}"]),  # a count with a gap
        ([1.0, 0.0], {}, ["1.000", "0.000"]),  # shares
        ([3.14159, np.nan], {"formats": {"x": ".1f"}, "missing": "not run"}, ["3.1", "not run"]),
        (["yes", ""], {}, ["yes", "\N{EN DASH}"]),
        ([-0.0001, 0.25], {}, ["0.000", "0.250"]),  # no minus zero
    ],
)
def test_how_values_are_shown(saved, column, options, expected):
    assert cells(saved(pd.DataFrame({"x": column}), **options)[1]) == expected


def test_indexes_and_columns_of_two_levels(saved):
    named = pd.DataFrame({"x": [1]}, index=pd.Index(["row"], name="method"))
    assert saved(named)[0] == "method,x\nrow,1\n" and saved(named.rename_axis(None))[0] == "x\n1\n"
    columns = pd.MultiIndex.from_tuples([("source", ""), ("search", "result"), ("review", "result")])
    rows = [("a paper", 0.4, np.nan), ("here", 0.1, 0.3)]
    csv, html, tex = saved(pd.DataFrame(rows, columns=columns), missing="not run")
    assert csv.splitlines() == ["source,search: result,review: result", "a paper,0.4,", "here,0.1,0.3"]
    assert html.count('<span class="gt_column_spanner">') == 2 and "not run" in html
    assert "source & result & result" in tex


def test_shown_replaces_the_numbers_for_the_reader_alone(saved):
    data = pd.DataFrame({"mean": [0.5], "low": [0.4], "high": [0.6]})
    csv, html, _ = saved(data, shown=pd.DataFrame({"accuracy": format_intervals(data)}))
    assert csv.startswith("mean,low,high") and cells(html) == ["0.500 ±0.100"]


def test_intervals_and_differences_as_text():
    frame = pd.DataFrame({"mean": [0.5, 0.25, np.nan, 0.02], "low": [0.4, np.nan, np.nan, 0.0]})
    frame = frame.assign(high=[0.6, np.nan, 1, 0.06])
    texts = ["0.500 ±0.100", "0.250", None, "0.020 (0.000 to 0.060)"]
    assert format_intervals(frame).tolist() == texts
    texts = ["0.500 ±0.100, 2 not scored", *texts[1:]]
    assert format_intervals(frame.assign(n_missing=[2, 0, 1, 0])).tolist() == texts
    tests = frame[:1].rename(columns={"mean": "difference"}).assign(task="search", n_tasks=3)
    assert format_differences(tests).to_dict("records") == [{"difference": "0.500 ±0.100", "tasks": 3}]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30))
@example("<script>alert(1)</script> <img src=x onerror=alert(1)> 50% & $5_x #1 {a} \\b ~^ {{<b>}}")
def test_any_text_is_escaped_wherever_it_stands(saved, text):
    columns = pd.MultiIndex.from_tuples([(text, text)])
    _, html, _ = saved(pd.DataFrame([[text]], columns=columns), title=text, note=text)
    places = "gt_row|gt_col_heading|gt_column_spanner_outer|gt_title|gt_sourcenote"
    shown = re.findall(rf"<t[dh][^>]*(?:{places})[^>]*>(.*?)</t[dh]>", html, re.DOTALL)
    shown = [re.sub("^<span[^>]*>|</span>$", "", part.strip()) for part in shown]
    assert len(shown) == 5 and not any(set(part) & set("<>") for part in shown)
    assert not any(re.search(r"&(?!(amp|lt|gt|quot|#x27|#39);)", part) for part in shown)


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", '=HYPERLINK("http://x")', "-2+3+cmd|' /C calc'!A0", "  =1"]
FORMULAS += ["\t=1", "\r=1", "\n=1", "\uff1d1", "+ price", "-", "=", "- a", "+1;2", "-1e9(", "@a"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_csv_begins_a_formula(saved, text, tmp_path):
    saved(pd.DataFrame({text: [text], "x": ["y"]}))
    with open(tmp_path / "tables" / "t.csv", newline="") as file:
        rows = list(csv.reader(file))
    text = text.replace("\r", "\n")
    assert rows == [[f"'{text}", "x"], [f"'{text}", "y"]]


def test_no_text_begins_a_row_of_its_own_and_numbers_stay_numbers(saved):
    assert saved(pd.DataFrame({"a": ["x\r=1"], "b": ["y\r\n=1"]}))[0] == 'a,b\n"x\n=1","y\n=1"\n'
    data = {"a": [-1, 2], "b": [-0.5, np.nan], "c": ["-0.5", "+3"], "d": ["-0.012 ±0.03", "-5%"]}
    assert saved(pd.DataFrame(data))[0] == "a,b,c,d\n-1,-0.5,-0.5,-0.012 ±0.03\n2,,+3,-5%\n"


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "", ".hidden", "..", "a\x00b", "a b", "-rf"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    frame = pd.DataFrame({"x": [1]})
    with pytest.raises(ValueError, match="expected letters, digits"):
        save_table(frame, name, title="T", output_dir=tmp_path / "out")
    with pytest.raises(ValueError, match="expected letters, digits"):
        save_figure(plot_bars, name, frame, output_dir=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="output_dir is empty; expected a folder"):
        save_table(frame, "t", title="T", output_dir=" ")
